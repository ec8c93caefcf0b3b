"""Routes of Xet, the protocol with which clients send large files.

Xorbs hold chunks, and shards list the chunks of each file.
"""

from __future__ import annotations

import re
import struct
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from fastapi import Request
from starlette.responses import Response

from protoslice._core import Xorb
from protoslice.catalog.manifest import ObjectExtent
from protoslice.errors import ChecksumMismatch, InvalidInput, LimitExceeded
from protoslice.ingest.file_writer import Batches
from protoslice.repositories import Repository, XorbSession
from protoslice.server.auth.authenticator import secret_in
from protoslice.server.auth.permissions import HUB_WRITE
from protoslice.server.auth.spaces import absolute_url
from protoslice.server.bodies.ingest import body_stream, upload_slot
from protoslice.server.context import context_of
from protoslice.server.http.disconnect import BodyAhead, CancelOnDisconnect
from protoslice.server.http.headers import read_fields
from protoslice.server.http.responses import JsonAnswer
from protoslice.server.registries.hub.paths import NO_PULL_REQUESTS, Encoded, render_hub, repository_of
from protoslice.server.request.body import UPLOAD_PART
from protoslice.server.request.clients import pseudonym
from protoslice.server.routing import RouteGroup, endpoint
from protoslice.server.services import Services

router = RouteGroup(render=render_hub, strict=False, include_in_schema=False, dependencies=[NO_PULL_REQUESTS])

_HASH: Final = re.compile(r"[0-9a-f]{64}")


@endpoint(router, "GET /api/{kind}/{name:repository}/xet-write-token/{revision}", HUB_WRITE)
async def begin_session(request: Request, services: Services, kind: str, name: str, revision: Encoded) -> Response:
    """Begin a session at a separate URL. The client continues to use its token."""
    repository = await services.repositories.get(repository_of(kind, name))
    await repository.commit(revision)
    context_of(request.scope).changes = True
    session = await repository.sessions.begin(_client(request, services))
    url = absolute_url(request.scope, f"/api/xet/{kind}/{name}/{session}")
    end = int(time.time() + services.state.settings.upload_lifetime_seconds)
    # Clients remember by URL which chunks they have sent. At a new URL, they send everything that a shard needs.
    secret = secret_in(read_fields(request.scope).get(b"authorization", "")) or "none"
    # huggingface_hub before 1.0 reads the headers. Later versions and other clients read the JSON.
    headers = {"x-xet-cas-url": url, "x-xet-token-expiration": str(end), "x-xet-access-token": secret}
    return JsonAnswer(
        {"casUrl": url, "exp": end, "accessToken": secret}, headers={"cache-control": "no-store", **headers}
    )


@endpoint(
    router, "POST /api/xet/{kind}/{name:repository}/{session}/v1/xorbs/default/{hash}", HUB_WRITE, body=UPLOAD_PART
)
async def send_xorb(request: Request, services: Services, kind: str, name: str, session: str, hash: str) -> Response:
    """Receive a xorb. The xorb is unpacked as it arrives, and its hash is then checked."""
    if not _HASH.fullmatch(hash):
        raise InvalidInput("Invalid xorb hash: use 64 hex digits")
    repository = await services.repositories.get(repository_of(kind, name))
    opened = await repository.sessions.open(session, _client(request, services))
    new = not await opened.has(hash)
    async with upload_slot(services, request):
        if new:
            await _take(opened, services, hash, body_stream(request.receive))
        else:  # the client repeats the request because the answer was lost
            async for _ in body_stream(request.receive):
                pass
    return JsonAnswer({"was_inserted": new})


@endpoint(router, "POST /api/xet/{kind}/{name:repository}/{session}/v1/shards", HUB_WRITE, body=UPLOAD_PART)
async def send_shard(request: Request, services: Services, kind: str, name: str, session: str) -> Response:
    """Make the files that a shard lists, and check each file's SHA-256."""
    repository = await services.repositories.get(repository_of(kind, name))
    client = _client(request, services)
    opened = await repository.sessions.open(session, client)
    ahead = BodyAhead(request.receive)
    async with upload_slot(services, request), CancelOnDisconnect(ahead.receive) as disconnect:
        disconnect.watch()
        await _make_files(files_of(body_stream(ahead.next)), opened, repository, services, client)
    return JsonAnswer({"result": 1})


async def _take(session: XorbSession, services: Services, hash: str, pieces: AsyncIterator[bytes]) -> None:
    """Store the unpacked chunks of a xorb in an object of the session."""
    worker, xorb, objects = services.stores.worker, Xorb(), session.new_objects()
    chunks = await objects.writer()

    def unpack(batch: bytes | memoryview) -> bytes:
        data = xorb.feed(batch)
        chunks.sums.update(data)
        return data

    async def write(batch: bytes | memoryview) -> None:
        await chunks.write(await worker.run(lambda: unpack(batch)))

    batches = Batches(write)
    try:
        async for piece in pieces:
            await batches.add(piece)
        await batches.flush()
        if await worker.run(xorb.hash) != hash:
            raise ChecksumMismatch("The chunks do not match the xorb's hash: nothing was stored")
        await session.keep(hash, await chunks.commit(), xorb.ends(), objects)
    except BaseException:
        await batches.stop()
        await chunks.abort()
        raise
    finally:
        objects.end()


async def _make_files(
    files: AsyncIterator[ShardFile], session: XorbSession, repository: Repository, services: Services, client: str
) -> None:
    """Make files in the order of the list. Fail if the files have more bytes than the session's xorbs allow."""
    known, size = repository.known(), 0
    async for file in files:
        size += file.size
        services.stores.uploads.options.check_size(size)
        await session.check_named(size)
        extents = await _extents(file, session)
        if not extents:  # an empty file is sent within its commit
            continue
        await session.settle()
        if await known.find(file.sha256) is None:
            await _make(file, extents, session, repository, client)


async def _make(
    file: ShardFile, extents: Sequence[ObjectExtent], session: XorbSession, repository: Repository, client: str
) -> None:
    """Turn a shard's file into a staged file. A staged file waits for a commit that names the file's SHA-256."""
    upload = await repository.staged.begin(file.sha256, file.size, client, composed=True)
    if not upload.is_whole:
        upload = await session.compose(upload, extents)
    await repository.staged.keep(upload)


async def _extents(file: ShardFile, session: XorbSession) -> list[ObjectExtent]:
    """Return the extents of xorbs that make up a file. Consecutive extents are joined."""
    found: list[ObjectExtent] = []
    for each in file.extents:
        extent = (await session.xorb(each.xorb)).extent(each.first, each.end, each.size)
        if found and (found[-1].object, found[-1].end) == (extent.object, extent.start):
            extent = replace(extent, start=found.pop().start)
        found.append(extent)
    return found


def _client(request: Request, services: Services) -> str:
    """Return the key of the client to which a session belongs, and whose limits apply.

    If the service requires no tokens, all clients count as one client, because their addresses may change. The limits
    then apply to all clients together.
    """
    return "anyone" if services.auth.principal is None else pseudonym(context_of(request.scope).key)


_ROW: Final = 48
_HEAD: Final = struct.Struct("<32sII8x")
_EXTENT: Final = struct.Struct("<32sIIII")
_DIGEST: Final = struct.Struct("<32s16x")
_VERSION: Final = struct.Struct("<32xQQ")
_END: Final = b"\xff" * 32
_CHECKED: Final = 1 << 31
"""The flag of a file in which each extent has one more row, with a hash over the extent's chunks."""
_DIGESTED: Final = 1 << 30
"""The flag of a file whose last row has the file's SHA-256."""
_MOST_EXTENTS: Final = 1 << 17


@dataclass(frozen=True, slots=True)
class ShardExtent:
    """Consecutive chunks of a xorb."""

    xorb: str
    size: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class ShardFile:
    """A file of a shard: its SHA-256 in hex, and the chunks that make it up."""

    sha256: str
    extents: list[ShardExtent]

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return sum(extent.size for extent in self.extents)


async def files_of(pieces: AsyncIterator[bytes]) -> AsyncIterator[ShardFile]:
    """Yield the files in order, each with its SHA-256. Skip the rest of the shard."""
    rows = _rows(pieces)
    version, _ = _VERSION.unpack(await _next(rows))
    if version != 2:
        raise InvalidInput(f"Unsupported shard version {version}: use 2")
    while (row := await _next(rows))[:32] != _END:
        _, flags, count = _HEAD.unpack(row)
        if count > _MOST_EXTENTS:
            raise LimitExceeded(f"A file of the shard has too many terms: at most {_MOST_EXTENTS}, not {count}")
        extents = [_extent(await _next(rows)) for _ in range(count)]
        for _ in range(count if flags & _CHECKED else 0):
            await _next(rows)
        if not flags & _DIGESTED:
            raise InvalidInput("A file of the shard has no SHA-256")
        (digest,) = _DIGEST.unpack(await _next(rows))
        yield ShardFile(_spelled(digest), extents)
    async for _ in rows:
        pass


def _extent(row: bytes) -> ShardExtent:
    xorb, _, size, first, end = _EXTENT.unpack(row)
    return ShardExtent(_spelled(xorb), size, first, end)


async def _rows(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    held = b""
    async for piece in pieces:
        held += piece
        whole = len(held) - len(held) % _ROW
        for at in range(0, whole, _ROW):
            yield held[at : at + _ROW]
        held = held[whole:]


async def _next(rows: AsyncIterator[bytes]) -> bytes:
    row = await anext(rows, None)
    if row is None:
        raise InvalidInput("The shard ends inside its list of files")
    return row


def _spelled(hash: bytes) -> str:
    """Return a hash in hex. The hash consists of four little-endian words."""
    return "".join(hash[at : at + 8][::-1].hex() for at in range(0, 32, 8))
