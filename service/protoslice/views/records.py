"""Records of an opened store's files: a single record, several records, or a summary."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from protoslice import _core
from protoslice.concurrency import Job
from protoslice.concurrency.executor import SLICE
from protoslice.concurrency.gather import map_concurrently
from protoslice.errors import InvalidInput, LimitExceeded, NotFound, Unsupported
from protoslice.facts import RecordsSummary
from protoslice.library.documents import StreamDocument
from protoslice.schema import TypeSchema, bundled
from protoslice.serving.opened import OpenStore
from protoslice.serving.representation import Representation
from protoslice.serving.stored import StoredFile
from protoslice.sources.ropes import Rope
from protoslice.streams.framing import CHUNKED, DECODED, MEDIA_TYPES, SUMMED, Framing, checked_framing
from protoslice.streams.records import JoinedRecords, Shard, framing_of_shards, type_of_shards
from protoslice.streams.selection import WHOLE, KeyIndex, RecordChoice, RecordPart, RecordType
from protoslice.streams.shards import is_pattern, name_of, shards_among
from protoslice.tensors.layout import check_budget
from protoslice.versions import RECORDS

_ROOM: Final = 64 << 20
_PIECES: Final = 1 << 18
_LIMITS: Final = _core.Limits(records=_ROOM, decoded=_ROOM, held=_ROOM, pieces=_PIECES)
"""The limits: bytes of an index, bytes that one response decodes or holds, and pieces of a rope."""
_HEADS: Final = 64 << 10
"""The number of bytes of one read if records are so long that only their beginnings must be read."""


Plan = tuple[str, str | None, _core.Rope]
"""The kind, message type and rope of a view."""
PIECE_WEIGHT: Final = 32
"""The approximate memory per piece of a rope in bytes."""


@dataclass(frozen=True, slots=True)
class RecordsRequest:
    """A file of a store and the way to read it; the service detects every value that is None."""

    file: str | None = None
    framing: str | None = None
    type: str | None = None
    client: str = ""
    """The key under which the client's running passes over streams are counted."""


@dataclass(frozen=True, slots=True)
class _Stream:
    """A file or a set of shards, opened as one stream of records."""

    path: str
    """The path of the file, or the common name of the shards."""
    sources: Sequence[StoredFile]
    records: JoinedRecords
    type: str | None
    """The detected type; None if it is unknown."""


async def one(opened: OpenStore, number: int, request: RecordsRequest) -> Representation:
    """Return record `number` unchanged; raise `NotFound` when the stream has no such record."""
    stream = await _stream(opened, request)
    return await _represented(
        opened, stream, request, [(number, number + 1)], None, kind="message", media_type="application/protobuf"
    )


async def several(
    opened: OpenStore, choice: RecordChoice, form: str, request: RecordsRequest, part: RecordPart = WHOLE
) -> Representation:
    """Return the `part` of each record in `choice`, in the framing `form`.

    A record that lacks the part becomes an empty record.
    Raise `NotFound` for a key or a part that no record has. Raise `LimitExceeded` when the response would need too many
    pieces or too many decoded bytes.
    """
    framing = checked_framing(form)
    stream = await _stream(opened, request)
    ranges = await _chosen(opened, stream, choice, request)
    media_type = MEDIA_TYPES.get(framing, "application/octet-stream")
    return await _represented(opened, stream, request, ranges, framing, part, kind="records", media_type=media_type)


async def _chosen(
    opened: OpenStore, stream: _Stream, choice: RecordChoice, request: RecordsRequest
) -> Sequence[tuple[int, int]]:
    """Return the ranges of the record numbers in `choice`."""
    choice.check()
    index = None if choice.key is None else await _key_index(opened, stream, choice.key, request)
    if index is None and choice.sample is None:
        return choice.ranges(stream.records.count, None)
    return await opened.worker.run_long(lambda: choice.ranges(stream.records.count, index))


async def _key_index(opened: OpenStore, stream: _Stream, key: str, request: RecordsRequest) -> KeyIndex:
    """Return the index of `stream` by the field at `key`. The index is made once for all callers and kept in memory."""
    name, own = await _type(opened, stream, request)
    flat = await opened.worker.run(lambda: _flat(name, own))

    async def made() -> tuple[KeyIndex, int]:
        index = KeyIndex(stream.records, RecordType(name, flat), key, _ROOM, _PIECES)
        # Each pass reads the whole stream, so passes over one store run one after the other.
        with opened.passes.one(request.client):
            async with opened.pass_turn:
                await opened.worker.finish(index.steps())
        return index, index.weight

    fingerprint = own.fingerprint if own is not None else name
    view = (opened.row, "keys of records", stream.path, stream.records.framing, fingerprint, key)
    return await opened.results.get(view, made, cancellable=True)


async def summary(
    opened: OpenStore, request: RecordsRequest, as_json: Callable[[RecordsSummary], bytes]
) -> Representation:
    """Return the `RecordsSummary` of a stream as JSON; `as_json` encodes it."""
    stream = await _stream(opened, request)
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
    etag = opened.etag(RECORDS, "records summary", summary)
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
    opened: OpenStore, request: RecordsRequest
) -> tuple[StreamDocument, Sequence[StoredFile], TypeSchema | None, tuple[object, ...]]:
    """Return a stream as a document of one field, its files, its type, and the facts that determine its content."""
    stream = await _stream(opened, request)
    name, own = await _type(opened, stream, request)
    flat = await opened.worker.run(lambda: _flat(name, own))
    facts = (stream.path, stream.records.framing, own.fingerprint if own is not None else name)
    return StreamDocument(stream.records, name, flat, _LIMITS), stream.sources, own, facts


async def _type(opened: OpenStore, stream: _Stream, request: RecordsRequest) -> tuple[str | None, TypeSchema | None]:
    """Return the name and schema of the records' type; each of them is None if it is unknown.

    Raise `Unsupported` if the request names an unknown type.
    """
    name = request.type or stream.type
    if name is None:
        return None, None
    with suppress(*() if request.type else (Unsupported,)):  # a type that only the file declares may be unknown
        return name, await opened.find_type(name)
    return name, None


async def _represented(
    opened: OpenStore,
    stream: _Stream,
    request: RecordsRequest,
    ranges: Sequence[tuple[int, int]],
    form: Framing | None,
    part: RecordPart = WHOLE,
    *,
    kind: str,
    media_type: str,
) -> Representation:
    name, own = await _type(opened, stream, request)
    sources = stream.sources
    flat, wanted = await opened.worker.run(lambda: _flat(name, own)), [*part.fields] or None
    reads = part != WHOLE or stream.records.framing in DECODED or (form in SUMMED and form != stream.records.framing)
    own_type = own.fingerprint if own is not None else name
    view = [stream.path, stream.records.framing, ranges, form, own_type, *([] if part == WHOLE else [part])]
    etag = await opened.worker.run_if_large(32 * len(ranges), lambda: opened.etag(RECORDS, "records", *view))

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
        _, shown, rope = await opened.results.get(
            (opened.row, "records", etag), lambda: opened.worker.run_long(planned)
        )
    else:
        (_, shown, rope), _ = await opened.worker.run(planned)
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


async def _stream(opened: OpenStore, request: RecordsRequest) -> _Stream:
    name, paths = _paths(opened, request.file)
    if request.framing is not None:
        checked_framing(request.framing)
    key = (opened.row, "stream", name, request.framing)
    return await opened.results.get(key, lambda: _open(opened, name, paths, request.framing), cancellable=True)


def _paths(opened: OpenStore, file: str | None) -> tuple[str, Sequence[str]]:
    """Return the name of the stream `file` and the paths of its shards. A `file` of None means all shards of the store.

    Raise `InvalidInput` if `file` is None and the store's files are not shards of one sequence.
    """
    if file is None and len(opened.files) == 1:
        file = next(iter(opened.files))
    if file is not None and file in opened.files:
        return file, [file]
    if file is not None and not is_pattern(file):
        raise NotFound(f"The store has no file {file[:200]!r}")
    try:
        paths = shards_among(opened.files, file)
    except InvalidInput as error:
        if file is not None:
            raise
        raise InvalidInput(
            f"The store has {len(opened.files)} files: choose one with file=, or a set of shards with "
            f"file=name@8 ({error.message})"
        ) from None
    return name_of(paths, file), paths


async def _open(opened: OpenStore, name: str, paths: Sequence[str], named: str | None) -> tuple[_Stream, int]:
    files = [opened.files[path] for path in paths]
    framing = (
        await opened.worker.run_long(lambda: framing_of_shards(files)) if named is None else checked_framing(named)
    )
    indexes = await map_concurrently(lambda path: _index(opened, path, framing), paths)
    size = sum(map(len, indexes))
    if size > _ROOM:
        raise LimitExceeded(
            f"The indexes of {len(paths)} shards take {size} bytes, at most {_ROOM} are allowed: choose "
            "single shards with file="
        )

    def stream() -> _Stream:
        records = [_core.Records(index, limits=_LIMITS) for index in indexes]
        shards = [Shard(*each) for each in zip(paths, records, files, strict=True)]
        return _Stream(name, files, JoinedRecords(shards, _PIECES, _ROOM), type_of_shards(shards))

    return await opened.worker.run_long(stream), 2 * size


async def _index(opened: OpenStore, path: str, framing: Framing) -> bytes:
    """Return the index of the file at `path`; the first call makes the index and saves it with the store.

    Raise `LimitExceeded` for too many records.
    """
    name = f"records-{RECORDS}-{hashlib.sha256(f'{framing}/{path}'.encode()).hexdigest()[:32]}"
    saved = await opened.derived.load(name)
    if saved is None:
        saved = await _indexed(opened, opened.files[path], framing)
        await opened.derived.save(name, saved)
    return saved


async def _indexed(opened: OpenStore, stored: StoredFile, framing: Framing) -> bytes:
    """Return the index of a stream. The index is made slice by slice, unless the framing has chunks."""
    if framing in CHUNKED:
        sources = _core.Sources([stored])
        return await opened.worker.run_long(lambda: _core.index_records(sources, framing, limits=_LIMITS))
    scanner = _core.RecordScanner(framing, limits=_LIMITS)
    await opened.worker.finish(_scan_job(scanner, stored))
    return await opened.worker.run_long(lambda: scanner.finish(stored.size))


def _scan_job(scanner: _core.RecordScanner, stored: StoredFile) -> Job[None]:
    """Feed `scanner` the bytes of `stored`, except the contents of long records."""
    at, length = 0, _HEADS
    while at < stored.size:
        scanner.feed(stored.read(at, min(length, stored.size - at)))
        seen, at = at + length, scanner.jump()
        length = _HEADS if at > seen + SLICE else min(2 * length, SLICE)
        yield


def _flat(name: str | None, own: TypeSchema | None) -> _core.Schema | None:
    """Return the core's table for the type `name`, uploaded as `own` or bundled; return None for an unknown type."""
    if own is not None:
        return own.flat
    return bundled().flat(name) if name is not None and name in bundled() else None
