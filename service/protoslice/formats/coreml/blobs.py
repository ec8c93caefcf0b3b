"""Blob files of Core ML: records of 64 bytes that say where weights lie."""

from __future__ import annotations

import struct
from typing import Final

from protoslice.errors import CorruptModel
from protoslice.formats.model import Bytes, Encoding, Stored
from protoslice.formats.tensors.dtypes import Dtype
from protoslice.formats.tensors.shapes import stored_size
from protoslice.sources import RangeSource

__all__ = ["blob"]

_RECORD: Final = struct.Struct("<IIQQ")
"""A sentinel, the type, how many bytes there are, and where. What follows is padding."""
_SENTINEL: Final = 0xDEADBEEF
_RECORD_SIZE: Final = 64


def blob(source: RangeSource, offset: int, dtype: Dtype, count: int) -> Stored:
    """The `count` elements that the record at `offset` tells of; types narrower than a byte lie packed."""
    if offset + _RECORD_SIZE > source.size:
        raise CorruptModel(f"a blob's record would lie at byte {offset} of a file of {source.size} bytes", offset)
    sentinel, _, size, start = _RECORD.unpack(source.read(offset, _RECORD.size))
    if sentinel != _SENTINEL:
        raise CorruptModel(f"no blob's record lies at byte {offset}: it begins with {sentinel:#x}", offset)
    if start + size > source.size:
        raise CorruptModel(f"a blob of {size} bytes at {start} goes beyond its file of {source.size} bytes", offset)
    encoding = Encoding.PACKED if dtype.narrow else Encoding.PLAIN
    due = stored_size(dtype, count, encoding)
    if size != due:
        raise CorruptModel(f"a blob has {size} bytes, and {count} elements of {dtype.name} take {due}", offset)
    return Stored(Bytes.of(source, start, start + size), encoding)
