"""Records of a stream, one file or several shards, as one sequence with the calls of `_core.Records`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Final

from protoslice import _core
from protoslice.errors import LimitExceeded
from protoslice.sources.source import RangeSource
from protoslice.streams.framing import CHUNKED

_READ_AT_ONCE: Final = 8
"""Shards whose records are read for one answer with a part of each."""


_PACKED: Final = 64 << 10
"""Bytes of packed chunks that are read together, which may unpack to a thousand times as many."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One of the streams."""

    name: str
    records: _core.Records
    source: RangeSource


class JoinedRecords:
    """Records of shards, numbered through; one file is one shard. Ropes refer to `sources`."""

    def __init__(self, shards: Sequence[Shard], pieces: int = 1 << 24, held: int = 1 << 31) -> None:
        """`pieces` bounds the pieces of a rope, `held` its literal bytes."""
        self.shards = shards
        self.sources = _core.Sources([shard.source for shard in shards])
        """The sources of all shards, in their order."""
        self._ends = list(accumulate(shard.records.count for shard in shards))
        self._pieces = pieces
        self._held = held

    @property
    def count(self) -> int:
        """Number of records."""
        return self._ends[-1]

    @property
    def framing(self) -> str:
        """Framing of the shards."""
        return self.shards[0].records.framing

    @property
    def end(self) -> int:
        """Bytes of all shards up to the end of their last records."""
        return sum(shard.records.end for shard in self.shards)

    @property
    def fault(self) -> tuple[int, str] | None:
        """Offset and description of the damage of the first shard that is damaged; None for sound ones."""
        if len(self.shards) == 1:
            return self.shards[0].records.fault
        faults = ((shard.name, shard.records.fault) for shard in self.shards)
        return next(((fault[0], f"{name}: {fault[1]}") for name, fault in faults if fault is not None), None)

    def rope(self, ranges: Sequence[tuple[int, int]], form: str | None) -> _core.Rope:
        """See `_core.Records.rope`."""
        if len(self.shards) == 1:
            return self.shards[0].records.rope(self.sources, ranges, form)
        parts, pieces, held = list[_core.Rope](), 0, 0
        for number, within in self._split(ranges):
            shard = self.shards[number]
            rope = shard.records.rope(_core.Sources([shard.source]), within, _framed(form))
            pieces, held = pieces + rope.piece_count, held + _literal(rope)
            if pieces > self._pieces or held > self._held:
                raise LimitExceeded("Too many records for one response: ask for fewer at a time")
            parts.append(self._moved(rope, number))
        return self._in_chunks(_core.Rope(parts), form)

    def views(
        self,
        ranges: Sequence[tuple[int, int]],
        form: str | None,
        schema: _core.Schema | None,
        root: str | None,
        path: str = "",
        fields: Sequence[str] | None = None,
        omit: int | None = None,
    ) -> _core.Rope:
        """See `_core.Records.views`."""
        if len(self.shards) == 1:
            return self.shards[0].records.views(self.sources, ranges, form, schema, root, path, fields, omit)
        split = list(self._split(ranges))
        if len(split) > _READ_AT_ONCE:
            raise LimitExceeded(
                f"The records switch between shards more than {_READ_AT_ONCE} times: ask for fewer, or in "
                "ascending order"
            )
        parts = []
        for number, within in split:
            read = _core.Sources([self.shards[number].source])
            records = self.shards[number].records
            parts.append(records.views(read, within, _framed(form), schema, root, path, fields, omit))
        return self._in_chunks(_core.Rope(parts), form)

    def read(self, start: int, stop: int, most: int) -> list[bytes]:
        """See `_core.Records.read`; those of one shard at most."""
        if len(self.shards) == 1:
            return self.shards[0].records.read(self.sources, start, stop, most)
        for number, within in self._split([(start, stop)]):
            shard = self.shards[number]
            return shard.records.read(_core.Sources([shard.source]), *within[0], most)
        return []

    def batch_end(self, number: int, most: int) -> int:
        """End of the records from `number` on that are read together: `most` bytes, or whole chunks."""
        at, begin = self.shard_of(number)
        most = min(most, _PACKED) if self.framing in CHUNKED else most
        return begin + self.shards[at].records.within(number - begin, most)

    def by_shard(self, numbers: Sequence[int]) -> Iterator[Sequence[int]]:
        """Sorted `numbers` in parts, each of one shard."""
        yield from (list(part) for _, part in groupby(numbers, lambda number: self.shard_of(number)[0]))

    def shard_of(self, number: int) -> tuple[int, int]:
        """The shard of record `number`, and the number of its first record."""
        at = bisect_right(self._ends, number)
        return at, self._ends[at - 1] if at else 0

    def _split(self, ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, list[tuple[int, int]]]]:
        """Each shard with ranges of its own numbers, in the order of `ranges`."""
        last, held = -1, list[tuple[int, int]]()
        for start, stop in ranges:
            while start < stop:
                shard, begin = self.shard_of(min(start, self.count - 1)) if self.count else (0, 0)
                end = min(stop, self._ends[shard]) if start < self.count else stop
                if shard != last and held:
                    yield last, held
                    held = []
                held.append((start - begin, end - begin))
                last, start = shard, end
        if held:
            yield last, held

    def _in_chunks(self, stream: _core.Rope, form: str | None) -> _core.Rope:
        """`stream` as a file in `form`, if that has chunks, which are of records of all shards."""
        if form not in CHUNKED:
            return stream
        return _core.chunked(stream, self.sources, form, limits=_core.Limits(pieces=self._pieces, held=self._held))

    def _moved(self, rope: _core.Rope, number: int) -> _core.Rope:
        """`rope` over the only source of a shard as one over the sources of all."""
        return rope.through(0, _core.Rope([(number, 0, self.shards[number].source.size)]))


def _framed(form: str | None) -> str | None:
    """Framing of the parts that an answer in `form` is made of."""
    return "u64le" if form in CHUNKED else form


def _literal(rope: _core.Rope) -> int:
    return rope.size - sum(end - start for start, end in rope.extents(0, 0))
