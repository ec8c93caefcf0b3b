"""Selection of records by number, range, key or random sample, and of the part of each record to return."""

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
"""The bytes of records whose keys are read in one step."""
_RECORDS: Final = 1 << 16
"""Largest number of records whose keys are read in one step, even if they are small."""


@dataclass(frozen=True, slots=True)
class RecordType:
    """The message type of a stream's records. Both attributes are None if the type is unknown."""

    name: str | None
    flat: _core.Schema | None
    """The engine's table of the type's fields."""


@dataclass(slots=True)
class KeyIndex:
    """An index of records by the value at `path`. It stores a hash of each value with the record's number."""

    records: JoinedRecords
    type: RecordType
    path: str
    max_bytes: int
    """The most memory in bytes that the index may take."""
    max_records: int
    """Largest number of records that one look-up may return."""
    _table: _core.KeyTable = field(init=False)

    def __post_init__(self) -> None:
        """Create an empty table."""
        self._table = _core.KeyTable(self.records.count, self.max_bytes)

    @property
    def weight(self) -> int:
        """The exact memory of the table in bytes."""
        return self._table.weight

    def steps(self) -> Job[None]:
        """Read the keys of all records, one batch in each step.

        Raise `NotFound` if no record has a value at the path, and `LimitExceeded` if the keys need too much memory.
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
                most = 1  # the chunks of a batch are too large when decompressed: read them one by one
                continue
            self._table.push(at, keys)
            at = stop
            yield
        if missing is not None and not self._table:
            raise missing
        self._table.sort()

    def numbers(self, values: Sequence[str]) -> list[Sequence[int]]:
        """Return, for each of `values`, the sorted numbers of the records with this value, or no numbers.

        Raise `LimitExceeded` for more than `max_records` records in total. A repeated value counts again.
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
        """Return the numbers of the records whose value has the same hash as `wanted`.

        Different values may have the same hash.
        """
        return self._table.numbers(wanted, most)

    def _keys(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the value of each record in `ranges`; empty for a record without a value."""
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
"""Largest number of records of a sample."""


@dataclass(frozen=True, slots=True)
class RecordPart:
    """The part of each record to return. The default is the whole record."""

    path: str = ""
    fields: tuple[str, ...] = ()
    """The paths below `path` to return; empty for all paths."""
    omit_larger_than: int | None = None
    """The size in bytes above which fields are left out; None leaves out no field."""

    def params(self) -> list[tuple[str, str]]:
        """Return the part as query parameters."""
        omit = [] if self.omit_larger_than is None else [("omit_larger_than", str(self.omit_larger_than))]
        return [*([("path", self.path)] if self.path else []), *(("fields", each) for each in self.fields), *omit]


WHOLE: Final = RecordPart()


@dataclass(frozen=True, slots=True)
class RecordChoice:
    """The records to return: first a range, then records by number, by key, and in a sample. All records by default."""

    range: str | None = None
    numbers: tuple[int, ...] = ()
    key: str | None = None
    """The path of the field in which `values` are looked up."""
    values: tuple[str, ...] = ()
    sample: int | None = None
    """The number of records to draw at random."""
    seed: int = 0

    def check(self) -> None:
        """Raise `InvalidInput` for a key without values, values without a key, or a sample that is too large."""
        if (self.key is None) != (not self.values):
            raise InvalidInput("Pass both key= (the path of a field) and value=, or neither")
        if self.sample is not None and not 0 <= self.sample <= MOST_SAMPLED:
            raise InvalidInput(f"Invalid sample: at most {MOST_SAMPLED} records")

    def params(self) -> list[tuple[str, str]]:
        """Return the choice as query parameters. A slice is sent as `range`, which older services know too."""
        given = {"range": self.range, "key": self.key, "sample": self.sample, "seed": self.seed or None}
        return [
            *((name, str(value)) for name, value in given.items() if value is not None),
            *([("n", ",".join(map(str, self.numbers)))] if self.numbers else []),
            *(("value", value) for value in self.values),
        ]

    def ranges(self, count: int, index: KeyIndex | None) -> Sequence[tuple[int, int]]:
        """Return the chosen records among `count` records as ranges. `index` looks up the values.

        Raise `NotFound` for a value that no record has, and `LimitExceeded` if too many records have the values.
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
    """Return the start and stop of a range such as `10:20`, limited to `count`.

    Raise `InvalidInput` for a malformed range.
    """
    start, colon, stop = text.partition(":")
    if not colon or not all(
        part == "" or (part.isascii() and part.isdigit() and len(part) < 19) for part in (start, stop)
    ):
        raise InvalidInput(f"Invalid range {text[:40]!r}: use 10:20, 10: or :20")
    last = min(int(stop or count), count)
    return min(int(start or 0), last), last
