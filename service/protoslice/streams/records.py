"""Records of a stream by number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, SupportsIndex, cast, overload

from protoslice import _core
from protoslice.errors import Conflict, CorruptModel
from protoslice.sources.ropes import Rope
from protoslice.sources.source import RangeSource, SourceOwner
from protoslice.streams.framing import CHUNKED, DECODED, Framing, checked_framing
from protoslice.streams.joined import JoinedRecords, Shard

Again = Callable[..., "Records"]
"""Opens records by their saved index; can be pickled."""
_BATCH: Final = 1 << 18
"""Bytes of records read at a time."""
_NEAR: Final = 16
"""Records between two wanted ones that are read along with them."""


class Records(SourceOwner, Sequence[bytes]):
    """Records of a stream, or a slice of them: a sequence of bytes, read when asked for.

    Checksums of TFRecords and of compressed chunks are compared when a record is read.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        type: str | None = None,
        *,
        index: bytes = b"",
        limits: _core.Limits | None = None,
    ) -> None:
        super().__init__([])
        self.sources: Sequence[RangeSource] = [shard.source for shard in shards]
        """The stream, or its shards."""
        self.index_bytes = index
        """The saved index; passed to `protoslice.records`, it spares the pass over the same bytes.

        Empty for shards.
        """
        self.type = type
        """Full name of the records' message type; None when it is unknown."""
        self.limits = limits
        """Limits of the engine for the stream, and for each of its records."""
        self.core = JoinedRecords(shards)
        self._read = self.core.sources
        self._again: Again | None = None
        self._numbers = range(self.core.count)

    @property
    def framing(self) -> Framing:
        """The framing of the stream."""
        return checked_framing(self.core.framing)

    @property
    def fault(self) -> CorruptModel | None:
        """Damage that ends the records before the end of the stream, with its offset; else None."""
        fault = self.core.fault
        return None if fault is None else CorruptModel(fault[1], fault[0])

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, key: SupportsIndex) -> bytes: ...
    @overload
    def __getitem__(self, key: slice) -> Records: ...
    @overload
    def __getitem__(self, key: Iterable[SupportsIndex]) -> list[bytes]: ...
    def __getitem__(self, key: SupportsIndex | slice | Iterable[SupportsIndex]) -> bytes | Records | list[bytes]:
        if isinstance(key, slice):
            return self._sliced(self._numbers[key])
        # Arrays without dimensions are numbers, although they have `__iter__`.
        if isinstance(key, Iterable) and getattr(key, "ndim", None) != 0:
            return self.__getitems__(key)
        number = self._number(cast(SupportsIndex, key))
        return self.core.read(number, number + 1, 0)[0]

    def __getitems__(self, numbers: Iterable[SupportsIndex]) -> list[bytes]:
        """The records of these numbers, in their order; those that lie near each other come with one read."""
        wanted = [self._number(number) for number in numbers]
        found = {number: record for run in _runs(sorted(set(wanted))) for number, record in self._run(run)}
        return [found[number] for number in wanted]

    def __iter__(self) -> Iterator[bytes]:
        return self._batches(_BATCH)

    def all(self) -> list[bytes]:
        """All records at once, for a stream that fits into memory."""
        return list(self._batches(self.core.end))

    def record(self, number: int) -> Rope:
        """Record `number` as a rope, for records too large for memory; no checksum is compared."""
        at = self._number(number)
        return Rope(self.core.rope([(at, at + 1)], None), self.sources, self._read)

    def rope(self, framing: Framing | None = None) -> Rope:
        """All records as one rope in `framing`: by default the stream's, `delimited` for chunks.

        `LimitExceeded` for more records than a rope can have pieces.
        """
        form = framing or (
            "delimited" if self.framing in CHUNKED else "tfrecord" if self.framing in DECODED else self.framing
        )
        numbers = self._numbers
        ranges = [(numbers.start, numbers.stop)] if numbers.step == 1 else [(n, n + 1) for n in numbers]
        return Rope(self.core.rope(ranges, form), self.sources, self._read)

    def __repr__(self) -> str:
        return f"<{len(self)} records of {self.type or 'unknown type'}, {self.framing}>"

    def _number(self, index: SupportsIndex) -> int:
        try:
            return self._numbers[index]
        except IndexError:
            raise IndexError(f"No record {index}: there are {len(self)} records") from None

    def _sliced(self, numbers: range) -> Records:
        """A view of only `numbers`; closing it closes nothing."""
        part = object.__new__(Records)
        vars(part).update(vars(self), _numbers=numbers, _owned=[])
        return part

    def opened_by(self, again: Again) -> None:
        """Pickle these records as `again`, which opens them in another process by the index that it is given."""
        self._again = again

    def __reduce__(self) -> tuple[Callable[..., Records], tuple[object, ...]]:
        """Pickled as the way to open them again, for workers of data loaders; bytes in memory go along."""
        if self._again is None:
            raise TypeError("Only records that `protoslice.records` opened can be pickled")
        return _opened, (self._again, self.index_bytes, self._size, self._numbers)

    @property
    def _size(self) -> int:
        return sum(source.size for source in self.sources)

    def _batches(self, most: int) -> Iterator[bytes]:
        """All records, read in batches of at most `most` bytes; those of one chunk or shard at most."""
        if self._numbers.step != 1:
            yield from (self[number] for number in range(len(self)))
            return
        number, stop = self._numbers.start, self._numbers.stop
        while number < stop:
            batch = self.core.read(number, stop, most)
            yield from batch
            number += len(batch)

    def _run(self, run: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        """The records of `run`, near each other and in order, with their numbers."""
        wanted, number = set(run), run[0]
        while number <= run[-1]:
            batch = self.core.read(number, run[-1] + 1, _BATCH)
            yield from ((n, record) for n, record in enumerate(batch, number) if n in wanted)
            number += len(batch)


def _opened(again: Again, index: bytes, size: int, numbers: range) -> Records:
    """Return the records of `numbers` of a stream that is opened again; `Conflict` when it is another one by now."""
    records = again(index=index or None)
    if records._size != size or (numbers and max(numbers[0], numbers[-1]) >= len(records)):
        records.close()
        raise Conflict("The stream has changed since its records were pickled: open it again")
    records._numbers = numbers
    return records


def _runs(numbers: Iterable[int]) -> Iterator[list[int]]:
    """Sorted `numbers` in lists of those that are near each other."""
    run: list[int] = []
    for number in numbers:
        if run and number - run[-1] > _NEAR:
            yield run
            run = []
        run.append(number)
    if run:
        yield run
