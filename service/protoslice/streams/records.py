"""Access to a stream's records by number. The stream may be a path, bytes, shards, or an object with range reads."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, groupby
from typing import Final, SupportsIndex, cast, overload

from protoslice import _core
from protoslice.detection import HEAD, detect_record, is_record_name, types_by_name
from protoslice.errors import Conflict, CorruptModel, InvalidInput, LimitExceeded, named_options
from protoslice.riegeli import RecordReader
from protoslice.sources.opening import SourceLike, as_source, filename_of, files_at, opened_by
from protoslice.sources.ropes import Rope
from protoslice.sources.source import FileSet, RangeSource, SourceOwner
from protoslice.streams.framing import CHUNKED, Framing, checked_framing, framing_of, written_framing
from protoslice.streams.shards import is_pattern, shards_among
from protoslice.uris import is_uri

_READ_AT_ONCE: Final = 8
"""Largest number of times that a response with parts of records may switch between shards."""


_PACKED: Final = 64 << 10
"""The bytes of compressed chunks that are read together. They may decompress to a thousand times as many bytes."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One file of a stream."""

    name: str
    records: _core.Records
    source: RangeSource


class JoinedRecords:
    """The records of all shards, numbered consecutively. A stream in one file has one shard.

    Ropes that its methods return refer to `sources` by number.
    """

    def __init__(self, shards: Sequence[Shard], pieces: int = 1 << 24, held: int = 1 << 31) -> None:
        """Set the limits for returned ropes: `pieces` is the most pieces, and `held` the most literal bytes."""
        self.shards = shards
        self.sources = _core.Sources([shard.source for shard in shards])
        """The sources of all shards, in the order of the shards."""
        self._ends = list(accumulate(shard.records.count for shard in shards))
        self._pieces = pieces
        self._held = held

    @property
    def count(self) -> int:
        """The number of records in all shards."""
        return self._ends[-1]

    @property
    def framing(self) -> str:
        """The framing of the shards."""
        return self.shards[0].records.framing

    @property
    def end(self) -> int:
        """The total bytes of all shards, each up to the end of its last record."""
        return sum(shard.records.end for shard in self.shards)

    @property
    def fault(self) -> tuple[int, str] | None:
        """The offset and the description of the damage in the first damaged shard; None without damage."""
        if len(self.shards) == 1:
            return self.shards[0].records.fault
        faults = ((shard.name, shard.records.fault) for shard in self.shards)
        return next(((fault[0], f"{name}: {fault[1]}") for name, fault in faults if fault is not None), None)

    def rope(self, ranges: Sequence[tuple[int, int]], form: str | None) -> _core.Rope:
        """Return the records in `ranges` as a rope; see `_core.Records.rope`."""
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
        """Return parts of the records in `ranges` as a rope; see `_core.Records.views`."""
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
        """Read records from number `start` on, up to `stop` or the end of a shard; see `_core.Records.read`."""
        if len(self.shards) == 1:
            return self.shards[0].records.read(self.sources, start, stop, most)
        for number, within in self._split([(start, stop)]):
            shard = self.shards[number]
            return shard.records.read(_core.Sources([shard.source]), *within[0], most)
        return []

    def batch_end(self, number: int, most: int) -> int:
        """Return the end of the batch that begins with record `number`: the number after the last record in it.

        The records of the batch have at most `most` bytes. Records in chunks are read as whole chunks.
        """
        at, begin = self.shard_of(number)
        most = min(most, _PACKED) if self.framing in CHUNKED else most
        return begin + self.shards[at].records.within(number - begin, most)

    def by_shard(self, numbers: Sequence[int]) -> Iterator[Sequence[int]]:
        """Yield the sorted `numbers` in parts. Each part contains the numbers of one shard."""
        yield from (list(part) for _, part in groupby(numbers, lambda number: self.shard_of(number)[0]))

    def shard_of(self, number: int) -> tuple[int, int]:
        """Return the index of the shard with record `number`, and the number of the shard's first record."""
        at = bisect_right(self._ends, number)
        return at, self._ends[at - 1] if at else 0

    def _split(self, ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, list[tuple[int, int]]]]:
        """Yield each shard's index with ranges that count from the shard's first record, in the order of `ranges`."""
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
        """Return `stream` as a file in the framing `form`. A chunked framing mixes records of all shards in its chunks.

        Other framings leave `stream` unchanged.
        """
        if form not in CHUNKED:
            return stream
        return _core.chunked(stream, self.sources, form, limits=_core.Limits(pieces=self._pieces, held=self._held))

    def _moved(self, rope: _core.Rope, number: int) -> _core.Rope:
        """Return a copy of `rope` that refers to `sources`. `rope` itself refers to the only source of a shard."""
        return rope.through(0, _core.Rope([(number, 0, self.shards[number].source.size)]))


def _framed(form: str | None) -> str | None:
    """Return the framing of the parts from which a response in the framing `form` is composed."""
    return "u64le" if form in CHUNKED else form


def _literal(rope: _core.Rope) -> int:
    return rope.size - sum(end - start for start, end in rope.extents(0, 0))


Again = Callable[..., "Records"]
"""A function that opens records with a saved index. It can be pickled."""
_BATCH: Final = 1 << 18
"""The bytes of records that are read at a time."""
_NEAR: Final = 16
"""The largest distance between two wanted records that are read at once, together with the records between them."""


class Records(SourceOwner, Sequence[bytes]):
    """A sequence of a stream's records, or of a slice of them. `protoslice.records` returns such a sequence.

    A record is read when it is used. If the framing has checksums, the record is compared with its checksum.

    Examples:
        >>> data = bytes([3]) + b"abc" + bytes([2]) + b"de"
        >>> with protoslice.records(data, framing="delimited") as records:
        ...     list(records), list(records[::-1])
        ([b'abc', b'de'], [b'de', b'abc'])
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
        """The source of the stream, or the sources of its shards."""
        self.index_bytes = index
        """The saved index, empty for shards.

        If it is passed to `protoslice.records` together with the same stream, the stream is not scanned again.
        """
        self.type = type
        """The full name of the records' message type; None if it is unknown."""
        self.limits = limits
        """The engine's limits for the stream and for each record."""
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
        """The damage at which the records end early, with its offset; None if the stream is not damaged."""
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
        """Return the records with these numbers, in the order of the numbers. Nearby records are read at once."""
        wanted = [self._number(number) for number in numbers]
        found = {number: record for run in _runs(sorted(set(wanted))) for number, record in self._run(run)}
        return [found[number] for number in wanted]

    def __iter__(self) -> Iterator[bytes]:
        return self._batches(_BATCH)

    def all(self) -> list[bytes]:
        """Return all records at once. The whole stream must fit into memory.

        Returns:
            A list of bytes.

        Raises:
            CorruptModel: A checksum does not match.

        Examples:
            >>> data = bytes([3]) + b"abc" + bytes([2]) + b"de"
            >>> protoslice.records(data, framing="delimited").all()
            [b'abc', b'de']
        """
        return list(self._batches(self.core.end))

    def record(self, number: int) -> Rope:
        """Return a record as a rope, which may be larger than memory. No checksum is compared.

        Args:
            number: Index of the record, starting at 0; a negative index counts from the end.

        Returns:
            The rope.

        Raises:
            IndexError: There is no such record.

        Examples:
            >>> data = bytes([3]) + b"abc" + bytes([2]) + b"de"
            >>> protoslice.records(data, framing="delimited").record(0).size
            3
        """
        at = self._number(number)
        return Rope(self.core.rope([(at, at + 1)], None), self.sources, self._read)

    def rope(self, framing: Framing | None = None) -> Rope:
        """Return all records as one rope in a framing.

        Args:
            framing: Framing to write; by default the framing of the stream, or `delimited` for a stream of chunks.

        Returns:
            The rope.

        Raises:
            LimitExceeded: There are more records than a rope can have pieces.

        Examples:
            >>> data = bytes([3]) + b"abc" + bytes([2]) + b"de"
            >>> protoslice.records(data, framing="delimited").rope("tfrecord").size
            37
        """
        numbers = self._numbers
        ranges = [(numbers.start, numbers.stop)] if numbers.step == 1 else [(n, n + 1) for n in numbers]
        return Rope(self.core.rope(ranges, framing or written_framing(self.framing)), self.sources, self._read)

    def __repr__(self) -> str:
        return f"<{len(self)} records of {self.type or 'unknown type'}, {self.framing}>"

    def _number(self, index: SupportsIndex) -> int:
        try:
            return self._numbers[index]
        except IndexError:
            raise IndexError(f"No record {index}: there are {len(self)} records") from None

    def _sliced(self, numbers: range) -> Records:
        """Return a view of the records with these `numbers`. Closing the view does not close the stream."""
        part = object.__new__(Records)
        vars(part).update(vars(self), _numbers=numbers, _owned=[])
        return part

    def opened_by(self, again: Again) -> None:
        """Set the function that opens these records in another process. This makes the records picklable.

        Args:
            again: Function that takes the saved index and returns the records.

        Examples:
            >>> data = bytes([3]) + b"abc"
            >>> records = protoslice.records(data, framing="delimited")
            >>> records.opened_by(lambda index: protoslice.records(data, framing="delimited", index=index))
        """
        self._again = again

    def __reduce__(self) -> tuple[Callable[..., Records], tuple[object, ...]]:
        """Pickle the function that opens the records again, and the saved index. Workers of data loaders need this.

        A stream that is in memory becomes part of the pickle.
        """
        if self._again is None:
            raise TypeError("These records cannot be pickled: open them with `protoslice.records`")
        return _opened, (self._again, self.index_bytes, self._size, self._numbers)

    @property
    def _size(self) -> int:
        return sum(source.size for source in self.sources)

    def _batches(self, most: int) -> Iterator[bytes]:
        """Yield all records. They are read in batches of at most `most` bytes, each from one chunk or shard."""
        if self._numbers.step != 1:
            yield from (self[number] for number in range(len(self)))
            return
        number, stop = self._numbers.start, self._numbers.stop
        while number < stop:
            batch = self.core.read(number, stop, most)
            yield from batch
            number += len(batch)

    def _run(self, run: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        """Yield the number and content of each record in `run`, which holds sorted numbers close to each other."""
        wanted, number = set(run), run[0]
        while number <= run[-1]:
            batch = self.core.read(number, run[-1] + 1, _BATCH)
            yield from ((n, record) for n, record in enumerate(batch, number) if n in wanted)
            number += len(batch)


def _opened(again: Again, index: bytes, size: int, numbers: range) -> Records:
    """Open a pickled stream again and return its records with these `numbers`.

    Raise `Conflict` if the stream has changed.
    """
    records = again(index=index or None)
    if records._size != size or (numbers and max(numbers[0], numbers[-1]) >= len(records)):
        records.close()
        raise Conflict("The stream has changed since its records were pickled: open it again")
    records._numbers = numbers
    return records


def _runs(numbers: Iterable[int]) -> Iterator[list[int]]:
    """Yield the sorted `numbers` in lists. The numbers of one list are close to each other."""
    run: list[int] = []
    for number in numbers:
        if run and number - run[-1] > _NEAR:
            yield run
            run = []
        run.append(number)
    if run:
        yield run


_AT_ONCE: Final = 8
"""The number of shards that are indexed in parallel."""


@named_options
def open_records(
    source: SourceLike,
    type: str | None = None,
    *,
    framing: str | None = None,
    index: bytes | None = None,
    limits: _core.Limits | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Records:
    """Open a stream of records, or the shards of a stream, as a sequence.

    If the stream is damaged or truncated, the sequence has the records before the damage, and `Records.fault`
    describes the damage. Records can be pickled for workers of data loaders, unless they are in a file object. Close
    the records after use, or use them in a `with`.

    Args:
        source: Path, URI, bytes, seekable file, or object with `size` and `read(offset, length)`. Shards are a folder,
            `name@8`, `name@*`, or a pattern with `*`.
        type: Full name of the records' message type; detected by default.
        framing: `tfrecord`, `riegeli`, `delimited` or another framing; detected by default.
        index: `Records.index_bytes` of the same bytes, which makes the scan unnecessary; not for shards.
        limits: Limits for hostile input.
        progress: Function that is called now and then with the bytes done and the total.

    Returns:
        The records.

    Raises:
        NotFound: There is no such file, or a shard is missing.
        Unsupported: The framing cannot be detected.

    Examples:
        >>> data = bytes([3]) + b"abc" + bytes([2]) + b"de"
        >>> with protoslice.records(data, framing="delimited") as records:
        ...     len(records), records[1]
        (2, b'de')
    """
    records = _opened_file(source, type, framing, index, limits, progress)
    is_path = isinstance(source, str | os.PathLike) and not is_uri(source)
    place = (
        os.path.abspath(cast(str, source)) if is_path else source
    )  # another process may have another working directory
    records.opened_by(partial(open_records, place, records.type, framing=framing, limits=limits))
    return records


def _opened_file(
    source: SourceLike,
    type: str | None,
    framing: str | None,
    index: bytes | None,
    limits: _core.Limits | None,
    progress: Callable[[int, int], object] | None,
) -> Records:
    if isinstance(source, str | os.PathLike) and (of_shards := _shards(os.fspath(source))) is not None:
        if index is not None:
            raise InvalidInput("An index works only with a single file, not with shards")
        return _joined(*of_shards, type, framing, limits, progress)
    opening = as_source(source)
    with ExitStack() as held:
        for taken in opened_by(opening, source):
            held.callback(taken.close)
        if index is None:
            known = framing_of(opening) if framing is None else checked_framing(framing)
            index = _core.index_records(_core.Sources([opening]), known, limits=limits, progress=progress)
        core = _core.Records(index, limits=limits)
        shard, found = Shard("", core, opening), type or type_of(core, opening, filename_of(source))
        records = Records([shard], found, index=index, limits=limits)
        records.own(*opened_by(opening, source))
        held.pop_all()
        return records
    raise AssertionError("a with block that returns")  # pragma: no cover


def _shards(name: str) -> tuple[FileSet, Sequence[str]] | None:
    """Return the files at `name`, and the ordered paths of the shards; None if `name` means one file."""
    parent, slash, last = name.rpartition("/")
    if last == "" or (not is_uri(name) and os.path.isdir(name)):
        files, _ = files_at(name)
        wanted = None
    elif is_pattern(last) and (is_uri(name) or not os.path.exists(name)):
        files, _ = files_at(parent + slash or ".")
        wanted = last
    else:
        return None
    try:
        return files, shards_among((path for path in files if "/" not in path), wanted)
    except BaseException:
        files.close()
        raise


def _joined(
    files: FileSet,
    names: Sequence[str],
    type: str | None,
    framing: str | None,
    limits: _core.Limits | None,
    progress: Callable[[int, int], object] | None,
) -> Records:
    with ExitStack() as held:
        held.callback(files.close)
        sources = [files[name] for name in names]
        known = framing_of_shards(sources) if framing is None else checked_framing(framing)
        total, done = sum(source.size for source in sources), 0

        def indexed(source: RangeSource) -> _core.Records:
            return _core.Records(_core.index_records(_core.Sources([source]), known, limits=limits), limits=limits)

        shards = []
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for name, source, records in zip(names, sources, pool.map(indexed, sources), strict=True):
                shards.append(Shard(name, records, source))
                done += source.size
                if progress is not None:
                    progress(done, total)
        found = Records(shards, type or type_of_shards(shards), limits=limits)
        found.own(files)
        held.pop_all()
        return found
    raise AssertionError("a with block that returns")  # pragma: no cover


def framing_of_shards(sources: Sequence[RangeSource]) -> Framing:
    """Return the framing of the first source that is not empty; raise `Unsupported` if the framing is unknown."""
    return framing_of(next((source for source in sources if source.size), sources[0]))


def type_of_shards(shards: Sequence[Shard]) -> str | None:
    """Return the full name of the records' type, found in the first shard with records; None if it is unknown."""
    first = next((shard for shard in shards if shard.records.count), shards[0])
    return type_of(first.records, first.source, first.name.rpartition("/")[2])


_LOOKED_AT: Final = 64
"""Largest number of records that are searched for the first record that is not empty."""


def type_of(records: _core.Records, source: RangeSource, filename: str | None = None) -> str | None:
    """Return the full name of the records' type; None if it is unknown.

    It is the type that the file declares, else the usual type for `filename`, else the type of the first record that
    is not empty.
    """
    with suppress(CorruptModel, LimitExceeded):  # a later read of the record reports the damage
        if records.framing in CHUNKED and (declared := _declared(source)):
            return declared
        if is_record_name(filename):
            return types_by_name(filename)[0]
        read = _core.Sources([source])
        for number in range(min(records.count, _LOOKED_AT)):
            rope = records.rope(read, [(number, number + 1)], None)
            if rope.size:
                return detect_record(read.read(rope, 0, min(rope.size, HEAD)))
    return None


def _declared(source: RangeSource) -> str:
    """Return the type that the metadata of a riegeli file declares; empty if it declares none."""
    return str(RecordReader(source).read_metadata().record_type_name)  # type: ignore[attr-defined]
