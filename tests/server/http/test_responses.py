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
from hypothesis import given, settings
from hypothesis import strategies as st
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
    """The lengths of the pieces that were asked for."""

    def check_budget(self, length: int) -> None:
        """Allow all: nothing is computed."""

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


@pytest.mark.parametrize(
    "extra", [{}, {"range": "bytes=0-9"}, {"range": "bytes=999999-"}, {"want-content-digest": "sha-256=5"}]
)
@pytest.mark.parametrize("path", ["/plain", "/empty", "/tag/plain"])
def test_head_is_the_whole_get_without_the_body(client: httpx.Client, path: str, extra: dict[str, str]) -> None:
    head = client.head(path, headers=extra)
    get = client.get(path, headers={name: value for name, value in extra.items() if name != "range"})
    assert head.status_code == 200
    assert head.content == b""
    own = {"date", "x-request-id"}
    assert [h for h in head.headers.items() if h[0] not in own] == [h for h in get.headers.items() if h[0] not in own]


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=10-19", 10, 20),
        ("Bytes=10-19", 10, 20),
        ("bytes=4090-", 4090, 4096),
        ("bytes=4090-99999", 4090, 4096),
        ("bytes=-5", 4091, 4096),
        ("bytes=-99999", 0, 4096),
        ("bytes=99999-,5-9", 5, 10),
        ("bytes=0-9,5-14", 0, 15),
        ("bytes=0-9,50-59", 0, 60),
        ("bytes= 0-9", None, None),
        ("bytes=5-4", None, None),
        ("bytes=1_0-20", None, None),
        ("bytes=+1-20", None, None),
        ("bytes=٣-٩".encode().decode("latin-1"), None, None),
        ("bytes=0-99999999999999999999", 0, 4096),
        ("items=0-9", None, None),
        ("bytes", None, None),
        ("bytes=", None, None),
        ("bytes=0-1," * 64 + "0-1", None, None),
    ],
)
def test_single_ranges(client: httpx.Client, asked: str, start: int | None, end: int | None) -> None:
    answer = client.get("/plain", headers=[(b"range", asked.encode("latin-1"))])
    if start is None:
        assert answer.status_code == 200
        assert answer.content == CONTENT
        return
    assert answer.status_code == 206
    assert answer.content == CONTENT[start:end]
    assert answer.headers["content-range"] == f"bytes {start}-{end - 1 if end else 0}/4096"
    assert answer.headers["content-length"] == str(len(answer.content))
    whole = client.get("/plain").headers
    for name in ("etag", "cache-control", "vary", "repr-digest", "content-type", "accept-ranges"):
        assert answer.headers[name] == whole[name]


@pytest.mark.parametrize("asked", ["bytes=4096-", "bytes=4096-5000", "bytes=-0", "bytes=5000-,-0"])
def test_ranges_that_do_not_exist(client: httpx.Client, asked: str) -> None:
    answer = client.get("/plain", headers={"range": asked})
    assert_problem(answer.status_code, answer.headers, answer.content, expected=416, slug="range-not-satisfiable")
    assert answer.headers["content-range"] == "bytes */4096"
    assert answer.headers["accept-ranges"] == "bytes"


def test_ranges_of_nothing_give_the_empty_whole(client: httpx.Client) -> None:
    answer = client.get("/empty", headers={"range": "bytes=0-9"})
    assert (answer.status_code, answer.content, answer.headers["content-length"]) == (200, b"", "0")


def parts_of(answer: httpx.Response) -> list[tuple[str, bytes]]:
    """Content-Range and bytes of each part, by a reader that knows only RFC 2046."""
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


@given(
    asked=st.lists(
        st.one_of(
            st.tuples(st.integers(0, 5000), st.integers(0, 5000)).map(lambda p: f"{min(p)}-{max(p)}"),
            st.integers(0, 5000).map(lambda n: f"{n}-"),
            st.integers(0, 5000).map(lambda n: f"-{n}"),
        ),
        min_size=1,
        max_size=4,
    )
)
@settings(max_examples=150)
def test_any_ranges_give_what_a_slice_gives(client: httpx.Client, asked: list[str]) -> None:
    answer = client.get("/plain", headers={"range": "bytes=" + ", ".join(asked)})
    wanted = {place for text in asked for place in naive(text, len(CONTENT))}
    if not wanted:
        assert answer.status_code == 416
        return
    assert answer.status_code == 206
    assert answer.headers["content-length"] == str(len(answer.content))
    multipart = answer.headers["content-type"].startswith("multipart/")
    parts = parts_of(answer) if multipart else [(answer.headers["content-range"], answer.content)]
    seen: set[int] = set()
    for content_range, body in parts:
        first, last = map(int, content_range.removeprefix("bytes ").removesuffix("/4096").split("-"))
        assert body == CONTENT[first : last + 1]
        assert seen.isdisjoint(range(first, last + 1))
        seen.update(range(first, last + 1))
    assert wanted <= seen


def naive(text: str, length: int) -> range:
    first, last = text.split("-")
    if not first:
        return range(length)[-int(last) :] if int(last) else range(0)
    return range(length)[int(first) : int(last) + 1 if last else length]


def test_if_range(client: httpx.Client) -> None:
    def status(value: str) -> int:
        return client.get("/plain", headers={"range": "bytes=0-9", "if-range": value}).status_code

    assert status('"sha256-fake"') == 206
    assert status('W/"sha256-fake"') == 200
    assert status('"other"') == 200
    assert status("Sat, 21 Nov 2026 10:00:00 GMT") == 200
    assert client.get("/plain", headers={"range": "bytes=9999-", "if-range": '"other"'}).status_code == 200
    assert client.get("/plain", headers={"if-range": '"other"'}).status_code == 200


def test_dates_are_ignored_without_a_modification_date(client: httpx.Client) -> None:
    assert client.get("/plain", headers={"if-modified-since": "Fri, 31 Dec 2100 10:00:00 GMT"}).status_code == 200
    assert client.get("/plain", headers={"if-unmodified-since": "Sun, 06 Nov 1994 08:49:37 GMT"}).status_code == 200


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_not_modified(client: httpx.Client, method: str) -> None:
    for listed in ('"sha256-fake"', 'W/"sha256-fake"', "*", '"a", "sha256-fake"'):
        answer = client.request(method, "/tag/plain", headers={"if-none-match": listed, "range": "bytes=9999-"})
        assert (answer.status_code, answer.content) == (304, b"")
        for name in ("etag", "cache-control", "vary", "content-location", "date"):
            assert name in answer.headers
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
    weak = client.get("/plain", headers={"if-match": 'W/"sha256-fake"'})
    assert weak.status_code == 412


def test_tags_are_revalidated(client: httpx.Client) -> None:
    headers = client.get("/tag/plain").headers
    assert headers["cache-control"] == "no-cache, no-transform"
    assert headers["content-location"] == "/lasting"


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


def test_connections_are_kept_between_answers(server: LiveServer) -> None:
    with server.connect() as connection:
        for asked in (b"", b"range: bytes=0-9\r\n", b"range: bytes=9999-\r\n", b"if-none-match: *\r\n"):
            connection.sendall(b"GET /plain HTTP/1.1\r\nhost: localhost\r\n" + asked + b"\r\n")
            assert read_answer(connection).complete


def test_long_and_malformed_heads_are_refused(server: LiveServer) -> None:
    for request, expected in (
        (b"GET /plain HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 70_000 + b"\r\n\r\n", 431),
        (b"GET /plain HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 300_000, 431),
        (b"NONSENSE\r\n\r\n", 400),
    ):
        answer = exchange(server, request)
        assert_problem(answer.status, answer.headers, answer.body, expected=expected)


def test_a_slow_head_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.2)
    config = uvicorn_config(RequestMiddleware(rope_app, Recorder(Metrics())), Settings())
    with live_server(config) as server:
        answer = exchange(server, b"GET /plain HTTP/1.1\r\nhost:")
        assert_problem(answer.status, answer.headers, answer.body, expected=408)
        with server.connect() as connection:
            assert connection.recv(1) == b""
