"""The head of `.npy` files, and what NumPy calls our types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from protoslice.formats.tensors.dtypes import Dtype

__all__ = ["descr", "head"]

_MAGIC: Final = b"\x93NUMPY"
_ALIGNMENT: Final = 64


def descr(dtype: Dtype) -> str:
    """NumPy's word for `dtype`, or for the integers that have its bits where NumPy has no such type.

    Integers narrower than a byte are integers of a byte, floats of 16 bits or fewer are shown as `<u2` and `|u1`.
    """
    if dtype.numpy is not None:
        return dtype.numpy
    if dtype.narrow and dtype.signed:
        return "|i1"
    return "|u1" if dtype.width == 1 else f"<u{dtype.width}"


def head(dtype: Dtype, shape: Sequence[int]) -> bytes:
    """What stands before the elements of a tensor in an `.npy` file: as long as keeps them aligned."""
    lengths = "".join(f"{length}, " for length in shape)
    lengths = lengths[:-1] if len(shape) == 1 else lengths[:-2]
    text = f"{{'descr': '{descr(dtype)}', 'fortran_order': False, 'shape': ({lengths}), }}".encode()
    version, digits = (1, 2) if len(text) < 65000 else (2, 4)
    before = len(_MAGIC) + 2 + digits
    text = text.ljust(-(-(before + len(text) + 1) // _ALIGNMENT) * _ALIGNMENT - before - 1) + b"\n"
    return _MAGIC + bytes([version, 0]) + len(text).to_bytes(digits, "little") + text
