"""Creates stores from request bodies: one file after the other, piece by piece, with back-pressure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from fastapi import Request
from starlette.types import Receive

from protoslice.errors import InvalidInput, UnsupportedMediaType
from protoslice.ingest import BaseStore, DedupingWriter, FileWriter, Ingest, base_of, follow
from protoslice.recipes import MEDIA_TYPE as RECIPE
from protoslice.server.auth.permissions import Scope
from protoslice.server.bodies.form import FormReader
from protoslice.server.bodies.raw import Event, FileEnd, FileStart, RawReader, Reader, parse_value, raw_path
from protoslice.server.bodies.tar import TarReader
from protoslice.server.context import context_of
from protoslice.server.http.digests import BodyDigest
from protoslice.server.http.disconnect import ClientGone
from protoslice.server.http.headers import plain_media_type, read_fields
from protoslice.server.request.body import TAR, upload_type
from protoslice.server.request.failures import body_at_fault
from protoslice.server.services import Services
from protoslice.serving import OpenStore
from protoslice.stores import Created, IngestRequest

_RAW: Final = {
    "application/protobuf",
    "application/x-protobuf",
    "application/x-protobuffer",
    "application/octet-stream",
    "application/x-riegeli",
    "application/x-protobuf-delimited",
}
_FORM: Final = "multipart/form-data"
_TURN: Final = 16
"""The number of events after which other tasks get a turn. A small file has three events."""


async def ingest_body(
    request: Request,
    services: Services,
    wanted: IngestRequest,
    filename: str | None,
    base: str | None = None,
    form: str | None = None,
) -> Created:
    """Create a store from the body. Parameters and headers are checked before the body is read.

    Files share equal bytes with files of the store `base`. The default base is the store of the first tag.
    """
    content_type = upload_type(read_fields(request.scope), form)
    if base is not None:
        services.auth.require(Scope.READ)
    over = await base_of(services.stores, wanted.tags, base)
    async with upload_slot(services, request):
        with body_at_fault():
            return await _ingest_body(request, services, wanted, content_type, filename, over)


async def _ingest_body(
    request: Request,
    services: Services,
    wanted: IngestRequest,
    content_type: str | None,
    filename: str | None,
    over: BaseStore | None,
) -> Created:
    fields = read_fields(request.scope)
    digest, body = BodyDigest(fields), body_stream(request.receive)
    media_type = plain_media_type(content_type or "")
    if media_type == RECIPE:
        return await ingest_recipe(services, wanted, digest.watch(body), digest.check)
    is_one = media_type not in {_FORM, TAR}
    expected = digest.expected if is_one else None  # the ingest hashes a single file anyway, in a thread
    if not is_one:
        body = digest.watch(body)
    files = files_of(content_type, fields.get(b"content-disposition"), filename, body)
    async with await services.stores.ingest(wanted) as ingest:
        started = perf_counter()
        async for file in files:
            writer = await ingest.file(file.path, expected_sha256=expected)
            async with nullcontext(writer) if over is None else over.comparing(writer, file.path) as each:
                size = await _write(each, file.pieces)
            if is_one and not size and wanted.type is None and filename is None:
                raise InvalidInput(
                    "The body is empty: send the file, or pass `filename` or `type` to store an empty file"
                )
        if not is_one:
            digest.check()
        return await _commit(services, ingest, started, expected)


async def ingest_archive(services: Services, wanted: IngestRequest, archive: AsyncIterator[bytes]) -> Created:
    """Create a store from the files in a tar archive."""
    async with await services.stores.ingest(wanted) as ingest:
        async for file in files_of(TAR, None, None, archive):
            await _write(await ingest.file(file.path), file.pieces)
        return await ingest.commit()


async def ingest_recipe(
    services: Services, wanted: IngestRequest, recipe: AsyncIterator[bytes], check: Callable[[], None] | None = None
) -> Created:
    """Create a store from a recipe, which has the digest of each file. `check` is called after the last byte."""

    async def view(store_id: str) -> OpenStore:
        services.auth.require(Scope.READ)  # only recipes that copy from stores need the scope `read`
        return await services.stores.view(store_id)

    async with await services.stores.ingest(wanted) as ingest:
        started = perf_counter()
        await follow(recipe, ingest, view)
        if check is not None:
            check()
        return await _commit(services, ingest, started)


async def _write(writer: FileWriter | DedupingWriter, pieces: AsyncIterator[bytes]) -> int:
    """Write a file, and return its size in bytes."""
    async for piece in pieces:
        await writer.write(piece)
    return (await writer.close()).size


async def _commit(services: Services, ingest: Ingest, started: float, expected: bytes | None = None) -> Created:
    received = perf_counter()
    created = await ingest.commit(expected_sha256=expected)
    services.state.metrics.stage("receive", received - started)
    services.state.metrics.stage("commit", perf_counter() - received)
    return created


async def body_stream(receive: Receive) -> AsyncIterator[bytes]:
    """Yield the pieces of the body. Raise `ClientGone` if the client disconnects."""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        if piece := message.get("body", b""):
            yield piece
        more = message.get("more_body", False)


@asynccontextmanager
async def upload_slot(services: Services, request: Request) -> AsyncIterator[None]:
    """Count an upload while it runs. Wait while too many uploads run in total or for the same client."""
    context, clients = context_of(request.scope), services.state.clients
    body = context.body
    if body is None:
        raise RuntimeError("an upload comes by a route that guards its body")
    async with (clients.small_uploads if body.is_small else clients.uploads).queued(context.key, body):
        services.state.metrics.open_uploads.inc()
        try:
            yield
        finally:
            services.state.metrics.open_uploads.dec()


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """A file in a body. All pieces of the file must be consumed before the next file is read. No piece is empty."""

    path: str
    pieces: AsyncIterator[bytes]


def files_of(
    content_type: str | None, disposition: str | None, query_filename: str | None, body: AsyncIterator[bytes]
) -> AsyncGenerator[UploadedFile]:
    """Yield the files in `body`. The body is read only as the caller consumes the pieces of a file.

    Headers are checked before the body is read.
    """
    return _files(_reader(content_type, disposition, query_filename), body)


def _reader(content_type: str | None, disposition: str | None, query_filename: str | None) -> Reader:
    kind, parameters = parse_value(content_type, "Content-Type") if content_type else ("application/octet-stream", {})
    if kind in _RAW:
        return RawReader(raw_path(disposition, query_filename))
    if kind == TAR:
        return TarReader()
    if kind == _FORM:
        return FormReader(parameters.get("boundary"))
    raise UnsupportedMediaType(
        f"Unsupported body type {kind}: use application/protobuf or application/octet-stream for one "
        f"file, {_FORM} or {TAR} for several (with curl --data-binary, add -H 'Content-Type: "
        "application/protobuf')"
    )


async def _files(reader: Reader, body: AsyncIterator[bytes]) -> AsyncGenerator[UploadedFile]:
    events = _events(reader, body)
    async for event in events:
        if isinstance(event, FileStart):
            pieces = _Pieces(events)
            yield UploadedFile(event.path, pieces)
            if not pieces.complete:
                raise RuntimeError(f"the pieces of {event.path!r} must be taken before the next file")


async def _events(reader: Reader, body: AsyncIterator[bytes]) -> AsyncGenerator[Event]:
    count = 0
    async for piece in body:
        if piece:
            for event in reader.feed(piece):
                yield event
                count += 1
                if not count % _TURN:  # one piece may hold thousands of small files
                    await asyncio.sleep(0)
    for event in reader.finish():
        yield event


class _Pieces(AsyncIterator[bytes]):
    def __init__(self, events: AsyncIterator[Event]) -> None:
        self._events = events
        self.complete = False

    async def __anext__(self) -> bytes:
        if self.complete:
            raise StopAsyncIteration
        event = await anext(self._events)
        if isinstance(event, bytes):
            return event
        assert event is FileEnd.FILE_END, "readers end a file before they start another"
        self.complete = True
        raise StopAsyncIteration
