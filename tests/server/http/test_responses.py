"""The rope response over a real socket: the edge cases of ranges, conditions and failures, one by one."""

from __future__ import annotations

import asyncio
import hashlib
import re
import socket
import time
from base64 import b64encode
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from typing import cast

import httpx
import pytest
from starlette.types import Receive, Scope, Send
from tests.support.serve import LiveServer, assert_problem, exchange, live_server, read_answer

from protoslice.concurrency.windows import Window, Windows
from protoslice.errors import IntegrityError
from protoslice.server.http.disconnect import CancelOnDisconnect
from protoslice.server.http.headers import read_fields
from protoslice.server.http.planner import ResponsePolicy
from protoslice.server.http.responses import send_representation
from protoslice.server.request.middleware import RequestMiddleware
from protoslice.server.settings import Settings
from protoslice.server.telemetry.logs import Recorder
from protoslice.server.telemetry.metrics import Metrics
from protoslice.server.transport import protocol
from protoslice.server.transport.run import uvicorn_config
from protoslice.serving.representation import Representation
from protoslice.tensors.omitted import Omitted

CONTENT = bytes(range(256)) * 16
BIG = 64 << 20
WINDOWS = Windows()


@dataclass
class FakeRope:
    """A representation made of a repeated pattern, which may break after some bytes."""

    size: int = len(CONTENT)
    etag: str = "sha256-fake"
    sha256: bytes | None = hashlib.sha256(CONTENT).digest()
    message_type: str | None = "test.Message"
    filename: str = 'modèl "1".onnx'
    media_type: str = "application/protobuf"
    elements: tuple[str, tuple[int, ...]] | None = None
    omitted: Omitted | None = None
    breaks_at: int | None = None
    waits: bool = False
    events: list[str] = field(default_factory=list)
    given: list[int] = field(default_factory=list)
    """The lengths of the requested pieces."""

    def check_budget(self, length: int) -> None:
        """Allow everything, since nothing is computed."""

    async def pieces(
        self, start: int, end: int, window: Window | None = None
    ) -> AsyncGenerator[bytes | memoryview, None]:
        self.events.append("open")
        try:
            async for piece in self._read(start, end):
                yield piece
        finally:
            self.events.append("closed")

    async def _read(self, start: int, end: int) -> AsyncGenerator[bytes, None]:
        step = 1 << 10 if self.size == len(CONTENT) else 1 << 20
        while start < end:
            if self.breaks_at is not None and start >= self.breaks_at:
                raise IntegrityError("block sums differ", offset=start)
            if self.waits:
                await asyncio.sleep(3600)
            stop = min(end, start + step)
            self.given.append(stop - start)
            first = start % 256
            yield (CONTENT[:256] * ((stop - start) // 256 + 2))[first : first + stop - start]
            start = stop


ROPES = {
    "/plain": FakeRope(),
    "/empty": FakeRope(size=0, sha256=None),
    "/unknown-digest": FakeRope(sha256=None, message_type=None),
    "/bad-first": FakeRope(breaks_at=0),
    "/bad-later": FakeRope(size=8 << 20, sha256=None, breaks_at=4 << 20),
    "/big": FakeRope(size=BIG, sha256=None),
    "/stuck": FakeRope(size=BIG, sha256=None, waits=True),
}


async def rope_app(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        while (message := await receive())["type"] != "lifespan.shutdown":
            await send({"type": message["type"] + ".complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    rope = cast("Representation", ROPES[scope["path"].removeprefix("/tag")])
    policy = ResponsePolicy(location="/lasting" if scope["path"].startswith("/tag") else None, private=False)
    async with CancelOnDisconnect(receive) as disconnect:
        await send_representation(
            scope,
            send,
            rope,
            fields=read_fields(scope),
            policy=policy,
            disconnect=disconnect,
            window=lambda length: WINDOWS.open(length, ""),
        )


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    metrics = Metrics()
    config = uvicorn_config(RequestMiddleware(rope_app, Recorder(metrics)), Settings())
    with pytest.MonkeyPatch.context() as patch, live_server(config) as live:
        patch.setattr(protocol, "SEND_SECONDS", 0.5)
        yield live


@pytest.fixture(scope="module")
def client(server: LiveServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, headers={"accept-encoding": "identity"}) as client:
        yield client


def test_the_whole(client: httpx.Client) -> None:
    answer = client.get("/plain")
    assert answer.status_code == 200
    assert answer.content == CONTENT
    headers = answer.headers
    assert headers["etag"] == '"sha256-fake"'
    assert headers["accept-ranges"] == "bytes"
    assert headers["content-type"] == "application/protobuf"
    assert headers["content-length"] == str(len(CONTENT))
    assert headers["repr-digest"] == f"sha-256=:{b64encode(hashlib.sha256(CONTENT).digest()).decode()}:"
    assert headers["cache-control"] == "public, max-age=31536000, immutable, no-transform"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'; sandbox"
    assert headers["x-protobuf-message"] == "test.Message"
    assert headers["content-disposition"] == (
        "attachment; filename=\"mod_l _1_.onnx\"; filename*=UTF-8''mod%C3%A8l%20%221%22.onnx"
    )
    assert "content-encoding" not in headers
    assert "date" in headers


def test_ranges_that_do_not_exist(client: httpx.Client) -> None:
    answer = client.get("/plain", headers={"range": "bytes=4096-"})
    assert_problem(answer.status_code, answer.headers, answer.content, expected=416, slug="range-not-satisfiable")
    assert answer.headers["content-range"] == "bytes */4096"
    assert answer.headers["accept-ranges"] == "bytes"


def parts_of(answer: httpx.Response) -> list[tuple[str, bytes]]:
    """Return Content-Range and bytes of each part, by a reader that knows only RFC 2046."""
    match = re.fullmatch(r"multipart/byteranges; boundary=([0-9a-f]+)", answer.headers["content-type"])
    assert match is not None
    mark = f"--{match[1]}".encode()
    first, *middle = answer.content.split(mark + b"\r\n")
    assert first == b""
    assert middle[-1].endswith(b"\r\n" + mark + b"--\r\n")
    middle[-1] = middle[-1].removesuffix(mark + b"--\r\n")
    parts = []
    for text in middle:
        head, _, body = text.partition(b"\r\n\r\n")
        lines = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        assert lines["Content-Type"] == "application/protobuf"
        parts.append((lines["Content-Range"], body.removesuffix(b"\r\n")))
    return parts


def test_several_ranges(client: httpx.Client) -> None:
    answer = client.get("/plain", headers={"range": "bytes=3000-3099,0-9,-100,9999-"})
    assert answer.status_code == 206
    assert "content-range" not in answer.headers
    assert answer.headers["content-length"] == str(len(answer.content))
    assert parts_of(answer) == [
        ("bytes 3000-3099/4096", CONTENT[3000:3100]),
        ("bytes 0-9/4096", CONTENT[:10]),
        ("bytes 3996-4095/4096", CONTENT[-100:]),
    ]
    assert (
        answer.headers["content-type"]
        != client.get("/plain", headers={"range": "bytes=0-9,-9"}).headers["content-type"]
    )


def test_a_range_applies_to_the_representation_that_if_range_names(client: httpx.Client) -> None:
    for value, expected in (('"sha256-fake"', 206), ('"other"', 200)):
        answer = client.get("/plain", headers={"range": "bytes=0-9", "if-range": value})
        assert answer.status_code == expected
    assert client.get("/plain", headers={"range": "bytes=9999-", "if-range": '"other"'}).status_code == 200


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_not_modified(client: httpx.Client, method: str) -> None:
    answer = client.request(method, "/tag/plain", headers={"if-none-match": '"sha256-fake"', "range": "bytes=9999-"})
    assert (answer.status_code, answer.content) == (304, b"")
    assert {"etag", "cache-control", "vary", "content-location", "date"} <= answer.headers.keys()
    assert "content-length" not in answer.headers
    assert client.request(method, "/tag/plain", headers={"if-none-match": '"other"'}).status_code == 200


def test_preconditions_come_before_ranges(client: httpx.Client) -> None:
    answer = client.get("/plain", headers={"if-match": '"other"', "range": "bytes=9999-"})
    problem = assert_problem(answer.status_code, answer.headers, answer.content, expected=412)
    assert problem["etag"] == '"sha256-fake"'
    unquoted = client.get("/plain", headers={"if-match": "sha256-fake"})
    problem = assert_problem(unquoted.status_code, unquoted.headers, unquoted.content, expected=412)
    assert "double quotes" in problem["detail"]
    assert client.get("/plain", headers={"if-match": '"sha256-fake"', "range": "bytes=0-9"}).status_code == 206


def test_wanted_digests(client: httpx.Client) -> None:
    def digest(data: bytes) -> str:
        return f"sha-256=:{b64encode(hashlib.sha256(data).digest()).decode()}:"

    def headers(path: str = "/plain", **given: str) -> httpx.Headers:
        return client.get(path, headers={name.replace("_", "-"): value for name, value in given.items()}).headers

    assert "repr-digest" not in headers(want_repr_digest="sha-256=0")
    assert "repr-digest" not in headers(want_repr_digest="sha-512=3")
    assert headers(want_repr_digest="sha-512=3, sha-256=10")["repr-digest"] == digest(CONTENT)
    assert headers(want_content_digest="sha-256=1")["content-digest"] == digest(CONTENT)
    part = headers(want_content_digest="sha-256=1", range="bytes=5-2500")
    assert part["content-digest"] == digest(CONTENT[5:2501])
    assert part["repr-digest"] == digest(CONTENT)
    assert "content-digest" not in headers()
    assert "repr-digest" not in headers("/unknown-digest")


def test_a_fault_before_the_first_byte_is_a_problem_that_gives_nothing_away(client: httpx.Client) -> None:
    for extra in ({}, {"range": "bytes=0-9"}, {"range": "bytes=0-9,2000-2009"}):
        answer = client.get("/bad-first", headers=extra)
        problem = assert_problem(
            answer.status_code, answer.headers, answer.content, expected=500, slug="damaged-object"
        )
        assert "sums" not in answer.text
        assert problem["offset"] == 0


def test_a_fault_later_breaks_the_connection(server: LiveServer) -> None:
    answer = exchange(server, b"GET /bad-later HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert answer.status == 200
    assert answer.headers["content-length"] == str(8 << 20)
    assert not answer.complete
    assert len(answer.body) == 4 << 20
    with pytest.raises(httpx.RemoteProtocolError), httpx.Client(base_url=server.url) as client:
        client.get("/bad-later")


def test_a_client_that_leaves_stops_the_work(server: LiveServer) -> None:
    for path in ("/stuck", "/big"):
        rope = ROPES[path]
        rope.events.clear()
        with server.connect() as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            await_event(rope, "open")
            time.sleep(0.3)
        left = time.monotonic()
        await_event(rope, "closed")
        assert time.monotonic() - left < 1
        assert rope.events == ["open", "closed"]


def await_event(rope: FakeRope, name: str) -> None:
    deadline = time.monotonic() + 5
    while name not in rope.events:
        assert time.monotonic() < deadline, f"{name} never happened"
        time.sleep(0.005)


def test_a_client_that_does_not_read_is_dropped(server: LiveServer) -> None:
    rope = ROPES["/big"]
    rope.events.clear()
    rope.given.clear()
    with socket.create_connection((server.host, server.port), 10) as connection:
        connection.sendall(b"GET /big HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await_event(rope, "closed")
        answer = read_answer(connection)
    assert not answer.complete
    assert rope.given == [1 << 20], "nothing is read that the client does not take"


def test_a_client_that_reads_slowly_but_steadily_is_served(server: LiveServer) -> None:
    size = 3 << 20
    with server.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        connection.sendall(f"GET /big HTTP/1.1\r\nhost: localhost\r\nrange: bytes=0-{size - 1}\r\n\r\n".encode())
        received = 0
        while received < size:
            data = connection.recv(200_000)
            assert data, "dropped"
            received += len(data)
            time.sleep(0.02)
