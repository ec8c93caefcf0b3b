"""Uvicorn applications without a framework's work, which the service is compared with in benchmarks."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from functools import cache
from typing import Any

import obstore
from obstore.store import S3Store
from starlette.responses import FileResponse

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

FROM_MEMORY = {"/small": bytes(4 << 10), "/large": bytes(range(256)) * (256 << 10)}
PATH = os.environ.get("PEER_FILE", "")


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve 4 KiB and 64 MiB from memory, a FileResponse, an upload with fsync, and a bucket's objects."""
    if scope["type"] != "http":
        return
    if scope["path"] == "/file":
        await FileResponse(PATH)(scope, receive, send)
        return
    if scope["path"].startswith("/bucket/"):
        key = scope["path"].removeprefix("/bucket/")
        if scope["method"] == "GET":
            await _pass_on(key, send)
            return
        await _hand_on(key, receive)
        body = b"done"
    else:
        body = FROM_MEMORY.get(scope["path"]) or await _upload(receive)
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@cache
def _bucket() -> S3Store:
    name, options = json.loads(os.environ["PEER_BUCKET"])
    return S3Store(name, config=options, client_options={"allow_http": True})


async def _pass_on(key: str, send: Send) -> None:
    """Send a bucket's object as it arrives, unverified."""
    found = await obstore.get_async(_bucket(), key)
    headers = [(b"content-length", str(found.meta["size"]).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    async for piece in found.stream(min_chunk_size=1 << 20):
        await send({"type": "http.response.body", "body": memoryview(piece), "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _hand_on(key: str, receive: Receive) -> None:
    """Write the request's body into an object of the bucket, by a multipart upload."""
    async with obstore.open_writer_async(_bucket(), key) as writer:
        async for piece in _pieces(receive):
            await writer.write(piece)


async def _pieces(receive: Receive) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await receive()
        yield message.get("body", b"")
        more = message.get("more_body", False)


async def _upload(receive: Receive) -> bytes:
    """Write the request's body durably into a file, and remove the file.

    The optional digest is the work that any service must do if its ids depend on content.
    """
    sha = hashlib.sha256() if os.environ.get("PEER_DIGEST") else None
    with open(PATH + ".upload", "wb", buffering=0) as file:
        async for piece in _pieces(receive):
            file.write(piece)
            if sha is not None:
                sha.update(piece)
        os.fsync(file.fileno())
    os.unlink(PATH + ".upload")
    return b"done"
