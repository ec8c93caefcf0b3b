"""Tensors as floats of another type: dequantized, or rounded to the nearest."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Final

from protoslice import _core
from protoslice.errors import InvalidInput
from protoslice.sources.ropes import Rope, RopeBuilder, SourceList
from protoslice.tensors.dtypes import DTYPES, Dtype
from protoslice.tensors.model import Encoding, Stored, Tensor
from protoslice.tensors.reading import ReadableTensor, read

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
    return replace(tensor, dtype=to, data=Stored(Rope.of(_computed(stored, to, _has_big_blocks(tensor)))))


def _computed(stored: ReadableTensor, to: Dtype, big_endian: bool) -> _core.Computed:
    data, count = stored.bytes, prod(stored.shape)
    return _core.Computed.converted(data.core, data.sources, stored.dtype.name, to.name, count, big_endian=big_endian)


def _has_big_blocks(tensor: Tensor) -> bool:
    """Return True for blocks of quantized elements with big-endian scales."""
    big_endian = isinstance(tensor.data, Stored) and tensor.data.encoding is Encoding.BIG_ENDIAN
    return big_endian and tensor.dtype is not None and tensor.dtype.block is not None


class _Joined:
    """Stands for the elements of all tensors of one stored type, until all of them are known."""

    def __init__(self) -> None:
        self.size = 0
        self.sources = SourceList()
        self.stored = RopeBuilder(self.sources)

    def read(self, offset: int, length: int, /) -> bytes:
        """Fail: elements have no bytes yet."""
        raise AssertionError("`Converted.finish` comes first")  # pragma: no cover


class Converted:
    """Tensors converted to one type: all of one stored type are one computed source, however many they are."""

    def __init__(self, to: Dtype, sources: SourceList) -> None:
        """Take the `sources` of the file, which `finish` completes."""
        self._to = to
        self._sources = sources
        self._joined: dict[tuple[Dtype, bool], _Joined] = {}

    def takes(self, tensor: Tensor) -> bool:
        """Return True for floats of any other type, and for quantized elements."""
        dtype = tensor.dtype
        return dtype is not None and dtype is not self._to and is_float(dtype)

    def add(self, tensor: Tensor) -> ReadableTensor:
        """Return `tensor` as floats that can be placed now and read after `finish`; raise as `converted` does."""
        stored, big_endian = read(tensor, compare=False), _has_big_blocks(tensor)
        size = _computed(stored, self._to, big_endian).size  # a faulty tensor fails here, and alone
        joined = self._joined.setdefault((stored.dtype, big_endian), _Joined())
        start = joined.size
        joined.size += size
        joined.stored.add(stored.bytes)
        return ReadableTensor(Rope.of(joined, start, joined.size), self._to, stored.shape)

    def finish(self) -> None:
        """Replace what stands for the elements in the sources of the file by the elements."""
        for (dtype, big_endian), joined in self._joined.items():
            data = Rope(_core.Rope(joined.stored.ropes()), joined.sources.listed)
            elements = joined.size // self._to.width
            whole = ReadableTensor(data, dtype, (elements,))
            self._sources.listed[self._sources.number(joined)] = _computed(whole, self._to, big_endian)
