"""Validation of shapes from untrusted models: element counts and sizes in bytes."""

from __future__ import annotations

from collections.abc import Sequence

from protoslice.errors import CorruptModel
from protoslice.formats.model import Encoding, Stored
from protoslice.formats.tensors.dtypes import Dtype

_COUNTS_END = 1 << 63


def element_count(shape: Sequence[int]) -> int:
    """The number of elements; `CorruptModel` for a negative dimension, and from 2^63 elements on."""
    count = 1
    for length in shape:
        if length < 0:
            raise CorruptModel(f"Invalid dimension {length} in the tensor shape {_shown(shape)}")
        count *= length
    if count >= _COUNTS_END:
        raise CorruptModel(f"A tensor of shape {_shown(shape)} has too many elements to address")
    return count


def stored_size(dtype: Dtype, count: int, encoding: Encoding) -> int | None:
    """Bytes of `count` elements in `encoding`; None for varints, whose size depends on the values."""
    match encoding:
        case Encoding.PACKED:
            return -(-count * dtype.bits // 8)
        case Encoding.PLAIN | Encoding.LOOSE | Encoding.BIG_ENDIAN:
            return count * dtype.width
        case _:
            return None


def checked(stored: Stored, dtype: Dtype, shape: Sequence[int]) -> Stored:
    """`stored` as it is; `CorruptModel` if its size does not match `dtype` and `shape`."""
    count = element_count(shape if dtype.block is None else dtype.bytes_shape(shape))
    due = stored_size(dtype, count, stored.encoding)
    if due is None or due == stored.bytes.size:
        return stored
    raise CorruptModel(
        f"A tensor of {dtype.name} and shape {_shown(shape)} takes {due} bytes, but there are {stored.bytes.size}"
    )


def _shown(shape: Sequence[int]) -> str:
    shown = ", ".join(map(str, shape[:16]))
    return f"({shown}{', …' if len(shape) > 16 else ''})"
