"""Upstream of nginx: a service of a few lines with ranges and uploads, which records its requests."""

from __future__ import annotations

import asyncio
import hashlib
import random
import socket
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import uvicorn

from protoslice.server.http.planner import select

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

ID: Final = "ab" * 32
FILE: Final = f"/v1/stores/{ID}/files/variables/variables.data"
BY_TAG: Final = "/v1/stores/resnet:3/files/variables/variables.data"
SMALL: Final = f"/v1/stores/{ID}/files/small"
EMPTY: Final = f"/v1/stores/{ID}/files/empty"
ENDLESS: Final = f"/v1/stores/{ID}/cpb"
ENDLESS_SIZE: Final = 512 << 20
UPLOAD: Final = "/v1/stores"
DATA: Final = random.Random(20261121).randbytes((20 << 20) + 123)
CONTENTS: Final = {FILE: DATA, BY_TAG: DATA, SMALL: DATA[:100], EMPTY: b""}
PIECE: Final = 256 << 10


class Upstream:
    """The application, and the requests that it has received."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.received = bytearray()
        self.sent = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        target = scope["raw_path"].decode()
        self.requests.append((scope["method"], target, headers))
        if scope["method"] == "POST":
            await self._upload(headers, receive, send)
        elif target in CONTENTS:
            await _serve(CONTENTS[target], scope["method"], headers, send)
        elif target == ENDLESS:
            await self._endless(send)
        else:
            await _answer(send, 404, b'{"status": 404}', {"content-type": "application/problem+json"})

    async def _upload(self, headers: dict[str, str], receive: Receive, send: Send) -> None:
        if "x-refuse" in headers:
            await _answer(send, 413, b'{"status": 413}', {"content-type": "application/problem+json"})
            return
        while True:
            message = await receive()
            self.received += message.get("body", b"")
            if not message.get("more_body"):
                break
        await _answer(send, 201, hashlib.sha256(self.received).hexdigest().encode(), {"location": f"/v1/stores/{ID}"})

    async def _endless(self, send: Send) -> None:
        headers = [(b"content-length", b"%d" % ENDLESS_SIZE), (b"content-type", b"application/octet-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        while self.sent < ENDLESS_SIZE:
            await send({"type": "http.response.body", "body": bytes(PIECE), "more_body": True})
            self.sent += PIECE
        await send({"type": "http.response.body", "body": b""})


async def _serve(data: bytes, method: str, headers: dict[str, str], send: Send) -> None:
    etag = f'"sha256-{hashlib.sha256(data).hexdigest()}"'
    common = {
        "etag": etag,
        "accept-ranges": "bytes",
        "cache-control": "public, max-age=31536000, immutable, no-transform",
        "content-type": "application/protobuf",
        "vary": "Accept, Accept-Encoding, Origin",
        "x-request-id": headers.get("x-request-id", "none"),
    }
    if "origin" in headers:  # as the service does for allowed origins
        common |= {"access-control-allow-origin": headers["origin"], "access-control-expose-headers": "*"}
    if headers.get("if-match", etag) != etag:
        await _answer(send, 412, b'{"status": 412}', {})
        return
    if headers.get("if-none-match") == etag:
        await _answer(send, 304, b"", common)
        return
    wanted = headers.get("range") if method == "GET" and headers.get("if-range", etag) == etag else None
    selection = select(wanted, len(data))
    if selection is None:
        await _answer(send, 200, data if method == "GET" else b"", common | {"content-length": str(len(data))})
    elif not selection:
        await _answer(send, 416, b'{"status": 416}', {"content-range": f"bytes */{len(data)}"})
    elif len(selection) == 1:
        part = selection[0]
        common["content-range"] = part.content_range(len(data)).decode()
        await _answer(send, 206, data[part.start : part.end], common)
    else:
        common["content-type"] = "multipart/byteranges; boundary=b"
        lines = [
            b"--b\r\nContent-Range: "
            + part.content_range(len(data))
            + b"\r\n\r\n"
            + data[part.start : part.end]
            + b"\r\n"
            for part in selection
        ]
        await _answer(send, 206, b"".join(lines) + b"--b--\r\n", common)


async def _answer(send: Send, status: int, body: bytes, headers: dict[str, str]) -> None:
    pairs = {"content-length": str(len(body))} | headers
    if status == 304:
        del pairs["content-length"]
    encoded = [(name.encode(), value.encode()) for name, value in pairs.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    for start in range(0, len(body), PIECE):
        await send({"type": "http.response.body", "body": body[start : start + PIECE], "more_body": True})
    await send({"type": "http.response.body", "body": b""})


class Running:
    """The application on a free port of the loopback, in a separate thread."""

    def __init__(self) -> None:
        self.app = Upstream()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._server = uvicorn.Server(uvicorn.Config(self.app, log_level="critical", lifespan="off", ws="none"))
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._socket]))

    def __enter__(self) -> Running:
        self._thread.start()
        for _ in range(1000):
            if self._server.started:
                return self
            time.sleep(0.01)
        raise TimeoutError("the upstream did not start")

    def __exit__(self, *error: object) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(timeout=30)
