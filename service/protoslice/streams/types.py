"""Message type of the records of a stream."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from protoslice import _core
from protoslice.errors import CorruptModel, LimitExceeded
from protoslice.riegeli import RecordReader
from protoslice.schema.detection.detect import HEAD
from protoslice.schema.detection.names import means_records, usual_types
from protoslice.schema.detection.records import detect_record
from protoslice.sources.source import RangeSource
from protoslice.streams.framing import CHUNKED

_LOOKED_AT: Final = 64
"""Records among which the first that has bytes is looked for."""


def type_of(records: _core.Records, source: RangeSource, filename: str | None = None) -> str | None:
    """Full name of the records' type, by declaration, `filename` or detection; None when unknown."""
    with suppress(CorruptModel, LimitExceeded):  # damage is told by whoever reads the record
        if records.framing in CHUNKED and (declared := _declared(source)):
            return declared
        if means_records(filename):
            return usual_types(filename)[0]
        read = _core.Sources([source])
        for number in range(min(records.count, _LOOKED_AT)):
            rope = records.rope(read, [(number, number + 1)], None)
            if rope.size:
                return detect_record(read.read(rope, 0, min(rope.size, HEAD)))
    return None


def _declared(source: RangeSource) -> str:
    """The type that the metadata of a riegeli file declare; empty without one."""
    return str(RecordReader(source).read_metadata().record_type_name)  # type: ignore[attr-defined]
