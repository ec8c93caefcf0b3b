"""Opening of streams: a path, bytes or any object with range reads becomes `Records`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from typing import Final, cast

from protoslice import _core
from protoslice.detection import HEAD, detect_record, is_record_name, types_by_name
from protoslice.errors import CorruptModel, InvalidInput, LimitExceeded, named_options
from protoslice.riegeli import RecordReader
from protoslice.sources.opening import SourceLike, as_source, filename_of, files_at, opened_by
from protoslice.sources.source import FileSet, RangeSource
from protoslice.streams.framing import CHUNKED, Framing, checked_framing, framing_of
from protoslice.streams.records import Records, Shard
from protoslice.streams.shards import is_pattern, shards_among
from protoslice.uris import is_uri

_AT_ONCE: Final = 8
"""Shards that are indexed side by side."""


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
    """Open a stream of records: a path, bytes, a seekable file, a range source, or shards as one sequence.

    Shards are a folder of them, `name@8`, `name@*` or a pattern with `*`; one that is missing is `NotFound`. `framing`
    and `type`, the message type of the records, are detected unless given. `index`, from `Records.index_bytes` for the
    same bytes, spares the pass over the heads of the records.

    The records can be pickled, for workers of data loaders, unless they are those of a file object.

    A stream that is cut off or damaged keeps its records up to there; `Records.fault` says where and why.
    `progress(done, total)` is called now and then, in bytes.
    """
    records = _opened(source, type, framing, index, limits, progress)
    is_path = isinstance(source, str | os.PathLike) and not is_uri(source)
    place = os.path.abspath(cast(str, source)) if is_path else source  # another process may be in another folder
    records.opened_by(partial(open_records, place, records.type, framing=framing, limits=limits))
    return records


def _opened(
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
    """The files of shards that `name` stands for, in order; None for the name of one file."""
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
    """The framing of the first of `sources` that has bytes; `Unsupported` if it is not told."""
    return framing_of(next((source for source in sources if source.size), sources[0]))


def type_of_shards(shards: Sequence[Shard]) -> str | None:
    """Full name of the records' type, by the first shard that has records; None when unknown."""
    first = next((shard for shard in shards if shard.records.count), shards[0])
    return type_of(first.records, first.source, first.name.rpartition("/")[2])


_LOOKED_AT: Final = 64
"""Records among which the first that has bytes is looked for."""


def type_of(records: _core.Records, source: RangeSource, filename: str | None = None) -> str | None:
    """Full name of the records' type, by declaration, `filename` or detection; None when unknown."""
    with suppress(CorruptModel, LimitExceeded):  # reading the record reports the damage
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
    """The type that the metadata of a riegeli file declare; empty without one."""
    return str(RecordReader(source).read_metadata().record_type_name)  # type: ignore[attr-defined]
