"""Peers of the service in benchmarks: the barest uvicorn applications, and nginx where installed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.responses import FileResponse

__all__ = ["app"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

FROM_MEMORY = {"/small": bytes(4 << 10), "/large": bytes(range(256)) * (256 << 10)}
PATH = os.environ.get("PEER_FILE", "")


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Four routes: 4 KiB and 64 MiB from memory, a FileResponse, and an upload to a file with fsync."""
    if scope["type"] != "http":
        return
    if scope["path"] == "/file":
        await FileResponse(PATH)(scope, receive, send)
        return
    body = FROM_MEMORY.get(scope["path"]) or await _upload(receive)
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _upload(receive: Receive) -> bytes:
    """The body in a file, durable; the digest is what any service that gives ids by content must take."""
    sha = hashlib.sha256() if os.environ.get("PEER_DIGEST") else None
    with open(PATH + ".upload", "wb", buffering=0) as file:
        more = True
        while more:
            message = await receive()
            piece = message.get("body", b"")
            file.write(piece)
            if sha is not None:
                sha.update(piece)
            more = message.get("more_body", False)
        os.fsync(file.fileno())
    os.unlink(PATH + ".upload")
    return b"done"
