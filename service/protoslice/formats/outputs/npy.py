"""Headers of `.npy` files, and NumPy's names of dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from protoslice.formats.tensors.dtypes import Dtype

_MAGIC: Final = b"\x93NUMPY"
_ALIGNMENT: Final = 64


def descr(dtype: Dtype) -> str:
    """NumPy's `descr` of `dtype`, or of integers of the same width where NumPy has no such type.

    Integers narrower than a byte appear as `|i1` or `|u1`, floats without a NumPy type as `|u1` or `<u2`.
    """
    if dtype.numpy is not None:
        return dtype.numpy
    if dtype.narrow and dtype.signed:
        return "|i1"
    return "|u1" if dtype.width == 1 else f"<u{dtype.width}"


def head(dtype: Dtype, shape: Sequence[int]) -> bytes:
    """The header of an `.npy` file, padded so that the elements are aligned to 64 bytes."""
    lengths = "".join(f"{length}, " for length in shape)
    lengths = lengths[:-1] if len(shape) == 1 else lengths[:-2]
    text = f"{{'descr': '{descr(dtype)}', 'fortran_order': False, 'shape': ({lengths}), }}".encode()
    version, digits = (1, 2) if len(text) < 65000 else (2, 4)
    before = len(_MAGIC) + 2 + digits
    text = text.ljust(-(-(before + len(text) + 1) // _ALIGNMENT) * _ALIGNMENT - before - 1) + b"\n"
    return _MAGIC + bytes([version, 0]) + len(text).to_bytes(digits, "little") + text
