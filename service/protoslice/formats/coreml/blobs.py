"""Blob files of Core ML: 64-byte records that point to weights."""

from __future__ import annotations

import struct
from typing import Final

from protoslice.errors import CorruptModel
from protoslice.formats.model import Encoding, Stored
from protoslice.formats.tensors.dtypes import Dtype
from protoslice.formats.tensors.shapes import stored_size
from protoslice.sources.ropes import Rope
from protoslice.sources.source import RangeSource

_RECORD: Final = struct.Struct("<IIQQ")
"""Sentinel, type, size in bytes, offset of the weights; padding follows."""
_SENTINEL: Final = 0xDEADBEEF
_RECORD_SIZE: Final = 64


def blob(source: RangeSource, offset: int, dtype: Dtype, count: int) -> Stored:
    """The `count` elements described by the record at `offset`; narrow types are packed.

    `CorruptModel` for a bad record, and for a size other than that of `count` elements.
    """
    if offset + _RECORD_SIZE > source.size:
        raise CorruptModel(f"A blob record at byte {offset} is outside of its file of {source.size} bytes", offset)
    sentinel, _, size, start = _RECORD.unpack(source.read(offset, _RECORD.size))
    if sentinel != _SENTINEL:
        raise CorruptModel(
            f"No blob record at byte {offset}: it starts with the wrong magic number {sentinel:#x}", offset
        )
    if start + size > source.size:
        raise CorruptModel(f"A blob of {size} bytes at {start} reaches beyond its file of {source.size} bytes", offset)
    encoding = Encoding.PACKED if dtype.narrow else Encoding.PLAIN
    due = stored_size(dtype, count, encoding)
    if size != due:
        raise CorruptModel(f"A blob has {size} bytes, but {count} elements of {dtype.name} take {due}", offset)
    return Stored(Rope.of(source, start, start + size), encoding)
