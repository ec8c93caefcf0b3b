"""Tensors as floats of another type: dequantized, or rounded to the nearest."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Final

from protoslice import _core
from protoslice.errors import InvalidInput
from protoslice.formats.bytes import Bytes
from protoslice.formats.model import Encoding, Stored, Tensor
from protoslice.formats.tensors.dtypes import DTYPES, Dtype
from protoslice.formats.tensors.reading import read

FLOATS: Final = ("F64", "F32", "F16", "BF16")
"""Types that tensors can be converted to."""
_WIDENED: Final = frozenset({"F16", "BF16"})


def float_type(name: str) -> Dtype:
    """The type of floats called `name`, in any case; `InvalidInput` for another type."""
    if name.upper() not in FLOATS:
        raise InvalidInput(f"Cannot convert tensors to {name[:40]!r}: use one of {', '.join(FLOATS)}")
    return DTYPES[name.upper()]


def is_float(dtype: Dtype) -> bool:
    """True for floats of any width, and for quantized ones."""
    return dtype.block is not None or dtype.name.startswith(("F", "BF"))


def dequantized(tensor: Tensor) -> Tensor:
    """A quantized tensor, or one of F16 or BF16, as F32; any other is returned unchanged.

    `Unsupported` for blocks of a type that cannot be decoded.
    """
    dtype = tensor.dtype
    wanted = dtype is not None and (dtype.block is not None or dtype.name in _WIDENED)
    return converted(tensor, DTYPES["F32"]) if wanted else tensor


def converted(tensor: Tensor, to: Dtype) -> Tensor:
    """`tensor` as floats of the type `to`, computed when they are read; raises the error of a faulty tensor.

    `Unsupported` for strings, complex numbers, and blocks of a type that cannot be decoded.
    """
    if tensor.dtype is to:
        return tensor
    stored = read(tensor, compare=False)
    big_endian = isinstance(tensor.data, Stored) and tensor.data.encoding is Encoding.BIG_ENDIAN
    elements = _core.Computed.converted(
        stored.bytes.rope,
        stored.bytes.sources,
        stored.dtype.name,
        to.name,
        prod(stored.shape),
        big_endian=big_endian and stored.dtype.block is not None,
    )
    return replace(tensor, dtype=to, data=Stored(Bytes.of(elements)))
