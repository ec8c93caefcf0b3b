"""Records by key: the numbers of records by the value of one field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from protoslice import _core
from protoslice.concurrency import Job
from protoslice.errors import LimitExceeded, NotFound
from protoslice.sources.files import BytesSource
from protoslice.streams.joined import JoinedRecords

_BATCH: Final = 1 << 20
"""Bytes of records whose keys are read at a time."""
_RECORDS: Final = 1 << 16
"""Records whose keys are read at a time, however small."""


@dataclass(frozen=True, slots=True)
class RecordType:
    """Type of the records of a stream; both None if unknown."""

    name: str | None
    flat: _core.Schema | None
    """The engine's table of the type."""


@dataclass(slots=True)
class KeyIndex:
    """Numbers of the records that have a value at `path`, by a hash of the value."""

    records: JoinedRecords
    type: RecordType
    path: str
    room: int
    """Most bytes of memory."""
    most: int
    """Most records of one look-up."""
    _table: _core.KeyTable = field(init=False)

    def __post_init__(self) -> None:
        """Begin with an empty table."""
        self._table = _core.KeyTable(self.records.count, self.room)

    @property
    def weight(self) -> int:
        """Bytes of memory of the table, exactly."""
        return self._table.weight

    def steps(self) -> Job[None]:
        """Read the keys of all records, one batch in each step.

        `NotFound` if no record has a value at the path, `LimitExceeded` for more keys than the memory holds.
        """
        missing: NotFound | None = None
        at, most = 0, _BATCH
        while at < self.records.count:
            stop = min(self.records.batch_end(at, most), at + _RECORDS)
            try:
                keys = self._delimited([(at, stop)])
            except NotFound as error:
                missing, keys = error, b""
            except LimitExceeded:
                if most == 1:
                    raise
                most = 1  # chunks unpack to more than may be held together: from here on one by one
                continue
            self._table.push(at, keys)
            at = stop
            yield
        if missing is not None and not self._table:
            raise missing
        self._table.sort()

    def numbers(self, values: Sequence[str]) -> list[Sequence[int]]:
        """For each of `values` the numbers of the records with it, in order; empty if there is none.

        `LimitExceeded` for more than `most` records in all; a value that is repeated counts again.
        """
        found, left = dict[str, Sequence[int]](), self.most
        for value in values:
            if value not in found:
                found[value] = self._numbers(value.encode("utf-8", "surrogateescape"), left)
            left -= len(found[value])
            if left < 0:
                raise LimitExceeded(f"More than {self.most} records have these keys: ask for fewer keys at a time")
        return [found[value] for value in values]

    def _numbers(self, wanted: bytes, most: int) -> Sequence[int]:
        found = list[int]()
        for part in self.records.by_shard(self.candidates(wanted, most)):
            keys = self._keys([(number, number + 1) for number in part])
            found += [number for number, key in zip(part, keys, strict=True) if key == wanted]
        return found

    def candidates(self, wanted: bytes, most: int) -> Sequence[int]:
        """Numbers of the records whose value has the hash of `wanted`; different values may have one hash."""
        return self._table.numbers(wanted, most)

    def _keys(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The value of each record of `ranges`; empty for a record without one."""
        data = self._delimited(ranges)
        scanner = _core.RecordScanner("delimited")
        scanner.feed(data)
        keys = _core.Records(scanner.finish(len(data)))
        return keys.read(_core.Sources([BytesSource(data)]), 0, keys.count, len(data))

    def _delimited(self, ranges: Sequence[tuple[int, int]]) -> bytes:
        kind = self.type
        rope = self.records.views(ranges, "delimited", kind.flat, kind.name, self.path)
        return self.records.sources.read(rope, 0, rope.size)
