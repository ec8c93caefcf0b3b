"""From the body of a request to a store: one file after the other, piece by piece, with back-pressure."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from time import perf_counter
from typing import Final

from fastapi import Request
from starlette.types import Receive

from protoslice.errors import InvalidInput, ProtosliceError
from protoslice.recipes import MEDIA_TYPE as RECIPE
from protoslice.server.auth.permissions import Scope
from protoslice.server.bodies import files_of
from protoslice.server.context import context_of
from protoslice.server.http.digests import BodyDigest
from protoslice.server.http.disconnect import ClientGone
from protoslice.server.http.headers import plain_media_type, read_fields
from protoslice.server.problems import problem_of_error
from protoslice.server.request.body_limits import TAR, upload_type
from protoslice.server.services import Services
from protoslice.stores import BaseStore, Created, DedupingWriter, FileWriter, IngestRequest, OpenStore, base_of, follow

_SEVERAL: Final = {"multipart/form-data", TAR}


async def take_in(
    request: Request,
    services: Services,
    wanted: IngestRequest,
    filename: str | None,
    base: str | None = None,
    form: str | None = None,
) -> Created:
    """The store that the body makes; nothing of it is read before all that can be checked has been.

    Files share what they have in common with those of the store `base`, by default that of the first tag.
    """
    fields = read_fields(request.scope)
    if base is not None:
        services.require(Scope.READ)
    over = await base_of(services.stores, wanted.tags, base)
    async with counted(services, request):
        try:
            return await _take_in(request, services, wanted, upload_type(fields, form), filename, over)
        except ProtosliceError as error:
            raise problem_of_error(error, uploading=True) from error


async def _take_in(
    request: Request,
    services: Services,
    wanted: IngestRequest,
    content_type: str | None,
    filename: str | None,
    over: BaseStore | None,
) -> Created:
    fields = read_fields(request.scope)
    digest = BodyDigest(fields)
    media_type = plain_media_type(content_type or "")
    if media_type == RECIPE:
        return await follow_recipe(services, wanted, digest.watch(pieces_of(request)), digest.check)
    one = media_type not in _SEVERAL
    body = pieces_of(request)
    files = files_of(
        content_type,
        fields.get(b"content-disposition"),
        filename,
        body if one else digest.watch(body),
    )
    told = digest.expected if one else None  # of one file the ingest makes the digest anyway, off the loop
    async with await services.stores.ingest(wanted) as ingest:
        started = perf_counter()
        async for file in files:
            writer = await ingest.file(file.path, expected_sha256=told)
            async with nullcontext(writer) if over is None else over.comparing(writer, file.path) as each:
                size = await _take_file(each, file.pieces)
            if one and not size and wanted.type is None and filename is None:
                raise InvalidInput(
                    "The body is empty: send the file, or pass `filename` or `type` to store an empty file"
                )
        received = perf_counter()
        if not one:
            digest.check()
        created = await ingest.commit(expected_sha256=told)
    services.metrics.stage("receive", received - started)
    services.metrics.stage("commit", perf_counter() - received)
    return created


async def unpack(services: Services, wanted: IngestRequest, archive: AsyncIterator[bytes]) -> Created:
    """Make the store of the files in a tar archive."""
    async with await services.stores.ingest(wanted) as ingest:
        async for file in files_of(TAR, None, None, archive):
            await _take_file(await ingest.file(file.path), file.pieces)
        return await ingest.commit()


async def follow_recipe(
    services: Services, wanted: IngestRequest, recipe: AsyncIterator[bytes], check: Callable[[], None] | None = None
) -> Created:
    """Make the store of a recipe, which names each file's digest; `check` is called once all is read."""

    async def view(store_id: str) -> OpenStore:
        services.require(Scope.READ)  # a recipe without copies needs no scope but that of an upload
        return await services.stores.view(store_id)

    async with await services.stores.ingest(wanted) as ingest:
        started = perf_counter()
        await follow(recipe, ingest, view)
        if check is not None:
            check()
        received = perf_counter()
        created = await ingest.commit()
    services.metrics.stage("receive", received - started)
    services.metrics.stage("commit", perf_counter() - received)
    return created


async def _take_file(writer: FileWriter | DedupingWriter, pieces: AsyncIterator[bytes]) -> int:
    """Take in a file; returns its size in bytes."""
    async for piece in pieces:
        await writer.write(piece)
    return (await writer.close()).size


def pieces_of(request: Request) -> AsyncIterator[bytes]:
    """The body as it comes. Not `request.stream()`: a client that left is no failure to be answered."""
    return pieces_from(request.receive)


async def pieces_from(receive: Receive) -> AsyncIterator[bytes]:
    """Pieces of the body whose messages `receive` gives; `ClientGone` when the client has left."""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        if piece := message.get("body", b""):
            yield piece
        more = message.get("more_body", False)


@asynccontextmanager
async def counted(services: Services, request: Request) -> AsyncIterator[None]:
    """Count an upload while it is under way; it waits when too many are, in all or of its client."""
    context, clients = context_of(request.scope), services.clients
    body = context.body
    if body is None:
        raise RuntimeError("an upload comes by a route that guards its body")
    async with (clients.small_uploads if body.is_small else clients.uploads).queued(context.key, body):
        services.metrics.open_uploads.inc()
        try:
            yield
        finally:
            services.metrics.open_uploads.dec()
