"""Records of an opened store's files: one, several, a summary."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from protoslice import _core
from protoslice.concurrency.executor import Worker
from protoslice.concurrency.gather import map_concurrently
from protoslice.concurrency.results import Results
from protoslice.concurrency.shares import Shares
from protoslice.errors import InvalidInput, LimitExceeded, NotFound, Unsupported
from protoslice.facts import RecordsSummary
from protoslice.identity import RECORDS
from protoslice.library.documents import StreamDocument
from protoslice.schema import TypeSchema, bundled
from protoslice.sources.ropes import Rope
from protoslice.stores.derived_facts import DerivedFacts
from protoslice.stores.objects.representation import Representation
from protoslice.stores.objects.stored import StoredFile
from protoslice.stores.reading.record_indexes import RecordIndexes
from protoslice.streams.framing import DECODED, MEDIA_TYPES, SUMMED, Framing, checked_framing
from protoslice.streams.opening import framing_of_shards, type_of_shards
from protoslice.streams.records import JoinedRecords, Shard
from protoslice.streams.selection import WHOLE, KeyIndex, RecordChoice, RecordPart, RecordType
from protoslice.streams.shards import is_pattern, name_of, shards_among
from protoslice.tensors.layout import check_budget

_PASSES: Final = 8
_PASSES_OF_CLIENT: Final = 4
_ROOM: Final = 64 << 20
_PIECES: Final = 1 << 18
_LIMITS: Final = _core.Limits(records=_ROOM, decoded=_ROOM, held=_ROOM, pieces=_PIECES)
"""Bounds, in bytes, of an index, and of what is decoded for an answer; and of the pieces of a rope."""


def key_passes() -> Shares:
    """Places for passes over the streams of one process.

    Each pass reads a whole stream, and holds 64 MiB at most.
    """
    return Shares(_PASSES, _PASSES_OF_CLIENT, "record streams being searched by key")


Etag = Callable[..., str]
FindType = Callable[[str], Awaitable[TypeSchema | None]]
Plan = tuple[str, str | None, _core.Rope]
"""Kind, message type and rope of a view."""
PIECE_WEIGHT: Final = 32
"""Bytes of memory per piece of a rope, about."""


@dataclass(frozen=True, slots=True)
class RecordsRequest:
    """File of a store and the way to read it; None leaves each to detection."""

    file: str | None = None
    framing: str | None = None
    type: str | None = None
    client: str = ""
    """Key that the client counts under."""


@dataclass(frozen=True, slots=True)
class _Stream:
    """A file, or several that are shards, opened as a stream of records."""

    path: str
    """Path of the file; of shards, the name that they have in common."""
    sources: Sequence[StoredFile]
    records: JoinedRecords
    type: str | None
    """Type as detected; None when unknown."""


class StoreRecords:
    """Records of the files of one store. An index is made on first use, and kept beside the store."""

    def __init__(
        self,
        files: Mapping[str, StoredFile],
        worker: Worker,
        derived: DerivedFacts,
        find: FindType,
        etag: Etag,
        passes: Shares,
        row: int,
        results: Results,
    ) -> None:
        """`passes` bounds the passes over streams for their keys, of all stores together."""
        self._files = files
        self._worker = worker
        self._indexes = RecordIndexes(worker, derived)
        self._find = find
        self._etag = etag
        self._passes = passes
        self._row = row
        self._results = results
        self._turns = asyncio.Semaphore(1)

    async def one(self, number: int, request: RecordsRequest) -> Representation:
        """Record `number`, as it is; `NotFound` when there is none."""
        stream = await self._stream(request)
        return await self._represented(
            stream, request, [(number, number + 1)], None, kind="message", media_type="application/protobuf"
        )

    async def several(
        self, choice: RecordChoice, form: str, request: RecordsRequest, part: RecordPart = WHOLE
    ) -> Representation:
        """The `part` of the records of `choice`, in the framing `form`; empty for a record without it.

        `NotFound` for a key that no record has, or a part that none of them has. `LimitExceeded` when the answer takes
        too many pieces, or too many bytes have to be decoded for it.
        """
        framing = checked_framing(form)
        stream = await self._stream(request)
        ranges = await self._chosen(stream, choice, request)
        media_type = MEDIA_TYPES.get(framing, "application/octet-stream")
        return await self._represented(stream, request, ranges, framing, part, kind="records", media_type=media_type)

    async def _chosen(
        self, stream: _Stream, choice: RecordChoice, request: RecordsRequest
    ) -> Sequence[tuple[int, int]]:
        """Ranges of the records of `choice`."""
        choice.check()
        index = None if choice.key is None else await self._key_index(stream, choice.key, request)
        if index is None and choice.sample is None:
            return choice.ranges(stream.records.count, None)
        return await self._worker.bulk(lambda: choice.ranges(stream.records.count, index))

    async def _key_index(self, stream: _Stream, key: str, request: RecordsRequest) -> KeyIndex:
        """The records of `stream` by the field at `key`, read once for all callers and held in memory."""
        name, own = await self._type(stream, request)
        flat = await self._worker.run(lambda: _flat(name, own))

        async def made() -> tuple[KeyIndex, int]:
            index = KeyIndex(stream.records, RecordType(name, flat), key, _ROOM, _PIECES)
            # Each pass reads the whole stream: whoever asks for many fields waits for one after the other.
            with self._passes.one(request.client):
                async with self._turns:
                    await self._worker.finish(index.steps())
            return index, index.weight

        fingerprint = own.fingerprint if own is not None else name
        view = (self._row, "keys of records", stream.path, stream.records.framing, fingerprint, key)
        return await self._results.get(view, made, cancellable=True)

    async def summary(self, request: RecordsRequest, as_json: Callable[[RecordsSummary], bytes]) -> Representation:
        """`RecordsSummary` of a stream, as the JSON that `as_json` makes of it."""
        stream = await self._stream(request)
        records, fault = stream.records, stream.records.fault
        summary = RecordsSummary(
            file=stream.path,
            framing=records.framing,
            type=request.type or stream.type,
            count=records.count,
            size=records.end,
            fault=None if fault is None else f"{fault[1]} at byte {fault[0]}",
        )
        data = as_json(summary)
        etag = self._etag(RECORDS, "records summary", summary)
        return Representation(
            _core.Rope([data]),
            [],
            etag,
            "records.json",
            kind="summary",
            sha256=hashlib.sha256(data).digest(),
            media_type="application/json",
        )

    async def document(
        self, request: RecordsRequest
    ) -> tuple[StreamDocument, Sequence[StoredFile], TypeSchema | None, tuple[object, ...]]:
        """The stream as a document of one field; its files, its type, and the facts that decide its content."""
        stream = await self._stream(request)
        name, own = await self._type(stream, request)
        flat = await self._worker.run(lambda: _flat(name, own))
        facts = (stream.path, stream.records.framing, own.fingerprint if own is not None else name)
        return StreamDocument(stream.records, name, flat, _LIMITS), stream.sources, own, facts

    async def _type(self, stream: _Stream, request: RecordsRequest) -> tuple[str | None, TypeSchema | None]:
        """Name and schema of the records' type; None where unknown. `Unsupported` for an unknown named type."""
        name = request.type or stream.type
        if name is None:
            return None, None
        with suppress(*() if request.type else (Unsupported,)):  # a type that a file declares may be of nobody's
            return name, await self._find(name)
        return name, None

    async def _represented(
        self,
        stream: _Stream,
        request: RecordsRequest,
        ranges: Sequence[tuple[int, int]],
        form: Framing | None,
        part: RecordPart = WHOLE,
        *,
        kind: str,
        media_type: str,
    ) -> Representation:
        name, own = await self._type(stream, request)
        sources = stream.sources
        flat, wanted = await self._worker.run(lambda: _flat(name, own)), [*part.fields] or None
        reads = (
            part != WHOLE or stream.records.framing in DECODED or (form in SUMMED and form != stream.records.framing)
        )
        own_type = own.fingerprint if own is not None else name
        view = [stream.path, stream.records.framing, ranges, form, own_type, *([] if part == WHOLE else [part])]
        etag = await self._worker.sized(32 * len(ranges), lambda: self._etag(RECORDS, "records", *view))

        def planned() -> tuple[Plan, int]:
            if part == WHOLE:
                rope, shown = stream.records.rope(ranges, form), name
            else:
                known = name if flat is not None else None
                rope = stream.records.views(ranges, form, flat, known, part.path, wanted, part.omit_larger_than)
                document = StreamDocument(stream.records, known, flat, _LIMITS)
                shown = document.type_at(ranges, part.path)
            return (kind, shown, rope), Rope(rope, ()).literals + PIECE_WEIGHT * rope.piece_count if reads else 0

        if reads:
            _, shown, rope = await self._results.get((self._row, "records", etag), lambda: self._worker.bulk(planned))
        else:
            (_, shown, rope), _ = await self._worker.run(planned)
        stored = sum(source.size for source in sources)
        check_budget(rope.size, stored, "ask for fewer records, or for each record only once")
        ending = "pb" if form is None else form
        return Representation(
            rope,
            sources,
            etag,
            f"{stream.path.rpartition('/')[2]}.{ending}",
            kind=kind,
            message_type=shown,
            media_type=media_type,
            descriptor_set=own.canonical if own is not None else None,
        )

    async def _stream(self, request: RecordsRequest) -> _Stream:
        name, paths = self._paths(request.file)
        if request.framing is not None:
            checked_framing(request.framing)
        key = (self._row, "stream", name, request.framing)
        return await self._results.get(key, lambda: self._open(name, paths, request.framing), cancellable=True)

    def _paths(self, file: str | None) -> tuple[str, Sequence[str]]:
        """Name and paths of the stream `file`, which may stand for shards; None for all that there is.

        `InvalidInput` for a store of several files that are not shards of one sequence.
        """
        if file is None and len(self._files) == 1:
            file = next(iter(self._files))
        if file is not None and file in self._files:
            return file, [file]
        if file is not None and not is_pattern(file):
            raise NotFound(f"The store has no file {file[:200]!r}")
        try:
            paths = shards_among(self._files, file)
        except InvalidInput as error:
            if file is not None:
                raise
            raise InvalidInput(
                f"The store has {len(self._files)} files: choose one with file=, or a set of shards with "
                f"file=name@8 ({error.message})"
            ) from None
        return name_of(paths, file), paths

    async def _open(self, name: str, paths: Sequence[str], named: str | None) -> tuple[_Stream, int]:
        files = [self._files[path] for path in paths]
        framing = await self._worker.bulk(lambda: framing_of_shards(files)) if named is None else checked_framing(named)
        indexes = await map_concurrently(
            lambda path: self._indexes.of(path, self._files[path], framing, _LIMITS), paths
        )
        size = sum(map(len, indexes))
        if size > _ROOM:
            raise LimitExceeded(
                f"The indexes of {len(paths)} shards take {size} bytes, at most {_ROOM} are allowed: choose "
                "single shards with file="
            )

        def opened() -> _Stream:
            records = [_core.Records(index, limits=_LIMITS) for index in indexes]
            shards = [Shard(*each) for each in zip(paths, records, files, strict=True)]
            return _Stream(name, files, JoinedRecords(shards, _PIECES, _ROOM), type_of_shards(shards))

        return await self._worker.bulk(opened), 2 * size


def _flat(name: str | None, own: TypeSchema | None) -> _core.Schema | None:
    """The engine's table of the type `name`, uploaded as `own` or bundled; None for an unknown type."""
    if own is not None:
        return own.flat
    return bundled().flat(name) if name is not None and name in bundled() else None
