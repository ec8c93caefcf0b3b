"""Records by key: the numbers of records by the value of one field."""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from protoslice import _core
from protoslice.errors import LimitExceeded, NotFound
from protoslice.sources.files import BytesSource
from protoslice.streams.joined import AnyRecords, batch_end, by_shard

_BATCH: Final = 1 << 20
"""Bytes of records whose keys are read at a time."""
_ENTRY: Final = 16
"""Bytes of memory for a record."""


@dataclass(frozen=True, slots=True)
class RecordType:
    """Type of the records of a stream; both None if unknown."""

    name: str | None
    flat: _core.Schema | None
    """The engine's table of the type."""


@dataclass(slots=True)
class KeyIndex:
    """Numbers of the records that have a value at `path`, by a hash of the value."""

    records: AnyRecords
    sources: _core.Sources
    type: RecordType
    path: str
    room: int
    """Most bytes of memory."""
    _hashes: array[int] = field(default_factory=lambda: array("Q"))
    _numbers: array[int] = field(default_factory=lambda: array("Q"))

    @property
    def weight(self) -> int:
        """Bytes of memory, about."""
        return _ENTRY * len(self._hashes)

    def steps(self) -> Iterator[None]:
        """Read the keys of all records, one batch in each step.

        `NotFound` if no record has a value at the path, `LimitExceeded` for more keys than the memory holds.
        """
        found: list[tuple[int, int]] = []
        missing: NotFound | None = None
        at = 0
        while at < self.records.count:
            stop = batch_end(self.records, at, _BATCH)
            try:
                keys = self._keys([(at, stop)])
            except NotFound as error:
                missing, keys = error, []
            found += [(_hash(key), at + n) for n, key in enumerate(keys) if key]
            if _ENTRY * len(found) > self.room:
                raise LimitExceeded(f"the keys of {len(found)} records take more than {self.room} bytes of memory")
            at = stop
            yield
        if missing is not None and not found:
            raise missing
        found.sort()
        self._hashes.extend(hashed for hashed, _ in found)
        self._numbers.extend(number for _, number in found)

    def numbers(self, value: str) -> Sequence[int]:
        """Numbers of the records with `value`, in order; empty if there is none."""
        wanted = value.encode("utf-8", "surrogateescape")
        hashed = _hash(wanted)
        start = bisect_left(self._hashes, hashed)
        alike = self._numbers[start : bisect_right(self._hashes, hashed, start)]
        # Different values may have one hash.
        found = list[int]()
        for part in by_shard(self.records, alike):
            keys = self._keys([(number, number + 1) for number in part])
            found += [number for number, key in zip(part, keys, strict=True) if key == wanted]
        return found

    def _keys(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The value of each record of `ranges`; empty for a record without one."""
        kind = self.type
        rope = self.records.views(self.sources, ranges, "delimited", kind.flat, kind.name, self.path)
        data = self.sources.read(rope, 0, rope.size)
        scanner = _core.RecordScanner("delimited")
        scanner.feed(data)
        keys = _core.Records(scanner.finish(len(data)))
        return keys.read(_core.Sources([BytesSource(data)]), 0, keys.count, len(data))


def _hash(key: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little")
