"""TFRecord files: consecutive records, each with checksums of its length and of its content."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from protoslice._core import crc32c
from protoslice.errors import CorruptModel, ProtosliceError
from protoslice.formats.tensorflow.checksums import check, crc_of
from protoslice.sources.ropes import Rope
from protoslice.sources.source import RangeSource

_HEAD: Final = 12
_TAIL: Final = 4


def records(source: RangeSource) -> Iterator[Rope]:
    """The content of each record, yielded after both checksums were compared.

    `CorruptModel` with the offset for a record that is damaged or cut off.
    """
    at = 0
    while at < source.size:
        try:
            record = _record(source, at)
        except ProtosliceError as error:
            error.offset = at if error.offset is None else error.offset
            raise
        yield record
        at += _HEAD + record.size + _TAIL


def _record(source: RangeSource, at: int) -> Rope:
    if at + _HEAD > source.size:
        raise CorruptModel(f"A record is cut off: {source.size - at} bytes are too few for a header", at)
    head = source.read(at, _HEAD)
    check("the length of a record", crc32c(head[:8]), int.from_bytes(head[8:], "little"))
    length, start = int.from_bytes(head[:8], "little"), at + _HEAD
    if start + length + _TAIL > source.size:
        raise CorruptModel(
            f"A record should have {length} bytes, but only {source.size - start} remain in the file", at
        )
    record = Rope.of(source, start, start + length)
    check("a record", crc_of(record), int.from_bytes(source.read(start + length, _TAIL), "little"))
    return record
