"""Routes of Xet, by which clients send large files: chunks in xorbs, then shards that list files."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from protoslice._core import Xorb
from protoslice.errors import InvalidInput, ProtosliceError
from protoslice.repositories import Repository, XorbSession
from protoslice.server.access.credentials import secret_in
from protoslice.server.http.headers import read_fields
from protoslice.server.intake.uploads import counted, pieces_of
from protoslice.server.middleware.body_limits import PART_BODY, takes_body
from protoslice.server.middleware.clients import pseudonym
from protoslice.server.middleware.context import context_of
from protoslice.server.middleware.guarded_route import GuardedRoute
from protoslice.server.registries.hub.failures import answering
from protoslice.server.registries.hub.paths import Encoded, repository_of
from protoslice.server.registries.hub.shards import ShardFile, files_of
from protoslice.server.services import Given, Services
from protoslice.stores.uploads import Body, Checksum, Extent, Uploads

router = APIRouter(route_class=GuardedRoute, include_in_schema=False)

_SESSION: Final = "/api/xet/{kind}/{name:repository}/{session}/v1"
_HASH: Final = re.compile(r"[0-9a-f]{64}")


@router.get("/api/{kind}/{name:repository}/xet-write-token/{revision}")
@answering
async def begin_session(request: Request, services: Given, kind: str, name: str, revision: Encoded) -> Response:
    """Begin a session at a URL of its own; the client goes on with the token that it has."""
    repository = await services.repositories.get(repository_of(kind, name))
    await repository.commit(revision)
    session = await repository.sessions.begin(_client(request, services))
    url = f"{str(request.base_url).rstrip('/')}/api/xet/{kind}/{name}/{session}"
    end = int(time.time() + services.settings.upload_lifetime_seconds)
    # Clients remember by URL what they have sent: at a new one they send all that a shard needs.
    secret = secret_in(read_fields(request.scope).get(b"authorization", "")) or "none"
    return JSONResponse({"casUrl": url, "exp": end, "accessToken": secret}, headers={"cache-control": "no-store"})


@router.post(_SESSION + "/xorbs/default/{hash}")
@takes_body(PART_BODY)
@answering
async def send_xorb(request: Request, services: Given, kind: str, name: str, session: str, hash: str) -> Response:
    """Take a xorb, which is unpacked as it comes and compared with its hash."""
    if not _HASH.fullmatch(hash):
        raise InvalidInput("the hash of a xorb has 64 hex digits")
    repository = await services.repositories.get(repository_of(kind, name))
    opened = await repository.sessions.open(session, _client(request, services))
    new = not await opened.has(hash)
    with counted(services, request):
        if new:
            await _take(opened, services, hash, pieces_of(request))
        else:  # sent again, since the answer was lost
            async for _ in pieces_of(request):
                pass
    return JSONResponse({"was_inserted": new})


@router.post(_SESSION + "/shards")
@takes_body(PART_BODY)
@answering
async def send_shard(request: Request, services: Given, kind: str, name: str, session: str) -> Response:
    """Make the files that a shard lists, each of which is compared with its SHA-256."""
    repository = await services.repositories.get(repository_of(kind, name))
    client = _client(request, services)
    opened = await repository.sessions.open(session, client)
    uploads, known, size = services.stores.uploads, repository.known(), 0
    with counted(services, request):
        async for file in files_of(pieces_of(request)):
            size += file.size
            uploads.options.check_size(size)
            extents = await _extents(file, opened)
            if extents and await known.find(file.sha256) is None:  # an empty file comes within its commit
                await _make(file, extents, uploads, repository, client)
    return JSONResponse({"result": 1})


class _Named:
    """Hash of a xorb, which its chunks have when they are unpacked."""

    def __init__(self, xorb: Xorb) -> None:
        self._xorb = xorb

    def update(self, piece: bytes, /) -> None:
        """Pass over bytes that the xorb has seen."""

    def digest(self) -> bytes:
        """The hash as URLs spell it."""
        return bytes.fromhex(self._xorb.hash())


async def _take(session: XorbSession, services: Services, hash: str, pieces: AsyncIterator[bytes]) -> None:
    """Keep the chunks of a xorb in an upload of their own."""
    uploads, worker, xorb = services.stores.uploads, services.stores.worker, Xorb()

    async def unpacked() -> AsyncIterator[bytes]:
        async for piece in pieces:
            if data := await worker.run(lambda piece=piece: xorb.feed(piece)):  # type: ignore[misc]
                yield data

    upload = await session.begin()
    try:
        checksum = Checksum(_Named(xorb), bytes.fromhex(hash))
        upload = await uploads.append(upload.id, Body(pieces=unpacked(), offset=0, last=True, checksum=checksum))
    except BaseException:
        with suppress(ProtosliceError):
            await uploads.remove(upload.id)  # else it counted as open until it expired
        raise
    await session.keep(hash, upload, xorb.ends())


async def _make(
    file: ShardFile, extents: Sequence[Extent], uploads: Uploads, repository: Repository, client: str
) -> None:
    """Make a file of a shard a staged one, which commits find by its SHA-256."""
    upload = await repository.staged.begin(file.sha256, file.size, client)
    if not upload.is_whole:
        checksum = Checksum(hashlib.sha256(), bytes.fromhex(file.sha256))
        pieces = uploads.extents(extents)
        upload = await uploads.append(upload.id, Body(pieces=pieces, offset=0, last=True, checksum=checksum))
    await repository.staged.keep(upload)


async def _extents(file: ShardFile, session: XorbSession) -> list[Extent]:
    """Extents of uploads that a file consists of; those that follow each other are one."""
    found: list[Extent] = []
    for each in file.extents:
        upload, start, end = (await session.xorb(each.xorb)).extent(each.first, each.end, each.size)
        if found and found[-1][0] == upload and found[-1][2] == start:
            start = found.pop()[1]
        found.append((upload, start, end))
    return found


def _client(request: Request, services: Services) -> str:
    """Client that a session belongs to; "" where nobody is asked who it is, and an address may change."""
    return "" if services.admission is None else pseudonym(context_of(request.scope).key)
