"""Selection of records: by number, range, key or chance, and the part of each that is returned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from protoslice import _core
from protoslice.concurrency import Job
from protoslice.errors import InvalidInput, LimitExceeded, NotFound
from protoslice.sources.files import BytesSource
from protoslice.streams.records import JoinedRecords

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
    max_bytes: int
    """Most bytes of memory."""
    max_records: int
    """Most records of one look-up."""
    _table: _core.KeyTable = field(init=False)

    def __post_init__(self) -> None:
        """Begin with an empty table."""
        self._table = _core.KeyTable(self.records.count, self.max_bytes)

    @property
    def weight(self) -> int:
        """Bytes of memory of the table, exactly."""
        return self._table.weight

    def steps(self) -> Job[None]:
        """Read the keys of all records, one batch in each step.

        Raise `NotFound` if no record has a value at the path, `LimitExceeded` for more keys than the memory holds.
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
        """Return for each of `values` the numbers of the records with it, in order; may be empty.

        Raise `LimitExceeded` for more than `max_records` records in all; a value that is repeated counts again.
        """
        found, left = dict[str, Sequence[int]](), self.max_records
        for value in values:
            if value not in found:
                found[value] = self._numbers(value.encode("utf-8", "surrogateescape"), left)
            left -= len(found[value])
            if left < 0:
                raise LimitExceeded(
                    f"More than {self.max_records} records have these keys: ask for fewer keys at a time"
                )
        return [found[value] for value in values]

    def _numbers(self, wanted: bytes, most: int) -> Sequence[int]:
        found = list[int]()
        for part in self.records.by_shard(self.candidates(wanted, most)):
            keys = self._keys([(number, number + 1) for number in part])
            found += [number for number, key in zip(part, keys, strict=True) if key == wanted]
        return found

    def candidates(self, wanted: bytes, most: int) -> Sequence[int]:
        """Return the numbers of the records whose value has the hash of `wanted`.

        Different values may have equal hashes.
        """
        return self._table.numbers(wanted, most)

    def _keys(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the value of each record of `ranges`; empty for a record without one."""
        data = self._delimited(ranges)
        scanner = _core.RecordScanner("delimited")
        scanner.feed(data)
        keys = _core.Records(scanner.finish(len(data)))
        return keys.read(_core.Sources([BytesSource(data)]), 0, keys.count, len(data))

    def _delimited(self, ranges: Sequence[tuple[int, int]]) -> bytes:
        kind = self.type
        rope = self.records.views(ranges, "delimited", kind.flat, kind.name, self.path)
        return self.records.sources.read(rope, 0, rope.size)


MOST_SAMPLED: Final = 10_000
"""Records of a sample, at most."""


@dataclass(frozen=True, slots=True)
class RecordPart:
    """The part of each record that is returned; by default the whole record."""

    path: str = ""
    fields: tuple[str, ...] = ()
    """Paths below `path` that are kept; empty for all."""
    omit_larger_than: int | None = None
    """Size in bytes of fields that are left out above it."""

    def params(self) -> list[tuple[str, str]]:
        """Return the part as parameters of a query."""
        omit = [] if self.omit_larger_than is None else [("omit_larger_than", str(self.omit_larger_than))]
        return [*([("path", self.path)] if self.path else []), *(("fields", each) for each in self.fields), *omit]


WHOLE: Final = RecordPart()


@dataclass(frozen=True, slots=True)
class RecordChoice:
    """Records that are returned: a range, then those with given numbers, keys, or in a sample; by default all."""

    range: str | None = None
    numbers: tuple[int, ...] = ()
    key: str | None = None
    """Path of the field that `values` are looked up in."""
    values: tuple[str, ...] = ()
    sample: int | None = None
    """Number of records that are drawn at random."""
    seed: int = 0

    def check(self) -> None:
        """Raise `InvalidInput` for a key without a value, a value without a key, and for too large a sample."""
        if (self.key is None) != (not self.values):
            raise InvalidInput("Pass both key= (the path of a field) and value=, or neither")
        if self.sample is not None and not 0 <= self.sample <= MOST_SAMPLED:
            raise InvalidInput(f"Invalid sample: at most {MOST_SAMPLED} records")

    def params(self) -> list[tuple[str, str]]:
        """Return the choice as parameters of a query; services of older versions know a slice only as `range`."""
        given = {"range": self.range, "key": self.key, "sample": self.sample, "seed": self.seed or None}
        return [
            *((name, str(value)) for name, value in given.items() if value is not None),
            *([("n", ",".join(map(str, self.numbers)))] if self.numbers else []),
            *(("value", value) for value in self.values),
        ]

    def ranges(self, count: int, index: KeyIndex | None) -> Sequence[tuple[int, int]]:
        """Return the ranges chosen among `count` records; raise `NotFound` for a value that is not in `index`.

        Raise `LimitExceeded` for values of more records than `index` returns at a time.
        """
        numbers = list(self.numbers)
        of_values = [] if index is None else index.numbers(self.values)
        for value, found in zip(self.values, of_values, strict=True):
            if not found:
                raise NotFound(f"No record has the value {value[:80]!r} in field {self.key}")
            numbers += found
        if self.sample is not None:
            numbers += sorted(Random(self.seed).sample(range(count), min(self.sample, count)))
        ranges = [(number, number + 1) for number in numbers]
        if self.range is not None or not (numbers or self.sample is not None):
            ranges.insert(0, _range(self.range or ":", count))
        return ranges


def _range(text: str, count: int) -> tuple[int, int]:
    """Return start and stop of a range such as `10:20`, cut to `count`; raise `InvalidInput` for anything else."""
    start, colon, stop = text.partition(":")
    if not colon or not all(
        part == "" or (part.isascii() and part.isdigit() and len(part) < 19) for part in (start, stop)
    ):
        raise InvalidInput(f"Invalid range {text[:40]!r}: use 10:20, 10: or :20")
    last = min(int(stop or count), count)
    return min(int(start or 0), last), last
