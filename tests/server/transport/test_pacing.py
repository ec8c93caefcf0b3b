"""Pipelined requests: they are answered in order, and read no faster than they are answered."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from tests.support.serve import LiveServer, ServiceProcess, exchange, read_answer, serve, service_process
from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.server import ServerState

from protoslice.server.app import create_app
from protoslice.server.settings import Settings
from protoslice.server.transport import protocol
from protoslice.server.transport.run import fast_path, uvicorn_config

PING = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"
LAST = b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
ROUNDS = 40
GROWTH = 24 << 20
"""A generous limit: before reading was paced, one connection took ten times as much in these rounds."""


def ask(path: str, more: bytes = b"") -> bytes:
    return b"GET %b HTTP/1.1\r\nhost: localhost\r\n%b\r\n" % (path.encode(), more)


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    folder: Path = tmp_path_factory.mktemp("pacing")
    settings = {"PROTOSLICE_LOG_LEVEL": "error", "PROTOSLICE_SPACE_WATERMARK_BYTES": "0"}
    with service_process("--storage", folder.as_uri(), settings=settings) as running:
        for size in (60_000, 16 << 20):
            body = b"\x0a" + varint(size) + bytes(size)
            made = httpx.put(f"{running.url}/v1/stores?tag=s{size}", content=body)
            assert made.status_code == 201
            url = f"{running.url}/v1/stores/{made.json()['id']}/files/model.pb"
            assert httpx.get(url).content == body
        yield running


def varint(value: int) -> bytes:
    return bytes([value & 127 | 128]) + varint(value >> 7) if value > 127 else bytes([value])


def store_of(process: ServiceProcess, size: int) -> str:
    found: str = httpx.get(f"{process.url}/v1/stores/s{size}").json()["id"]
    return found


@pytest.mark.parametrize("connections", [1, 16])
@pytest.mark.parametrize("what", ["ordinary", "express", "behind a long answer"])
def test_who_sends_on_without_reading_takes_no_memory(process: ServiceProcess, connections: int, what: str) -> None:
    """Each round sends as much as the socket accepts and reads little; another client is answered in between."""
    first, each = b"", PING
    if what == "express":
        each = ask(f"/v1/stores/{store_of(process, 60_000)}/files/model.pb")
    elif what != "ordinary":
        first = ask(f"/v1/stores/{store_of(process, 16 << 20)}/files/model.pb")
    process.forget_peak()
    before = process.peak()
    flooding = [process.server.connect() for _ in range(connections)]
    rest = dict.fromkeys(flooding, first)
    for _ in range(ROUNDS):
        for connection in flooding:
            rest[connection] = exchange_some(connection, rest[connection] or each * 4000)
        assert exchange(process.server, PING, timeout_seconds=60).status == 200
    for connection in flooding:
        connection.close()
    assert process.peak() - before < GROWTH + connections * (4 << 20)


def exchange_some(connection: socket.socket, data: bytes) -> bytes:
    """Send as much as possible at once and read a little; return the rest to send."""
    connection.setblocking(False)
    with suppress(BlockingIOError):
        data = data[connection.send(data) :]
    with suppress(BlockingIOError):
        connection.recv(1 << 10)
    return data


class Counted(RequestResponseCycle):
    """A count of the requests that were made and not yet answered."""

    open = most = 0

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        Counted.open += 1
        Counted.most = max(Counted.most, Counted.open)

    async def send(self, message: Any) -> None:
        await super().send(message)
        Counted.open -= self.response_complete


def test_one_request_is_under_way_and_no_other_waits(service: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(httptools_impl, "RequestResponseCycle", Counted)
    monkeypatch.setattr(Counted, "open", 0)
    monkeypatch.setattr(Counted, "most", 0)
    with service.connect() as connection:
        connection.sendall(PING * 1000 + LAST)
        received = b"".join(iter(lambda: connection.recv(1 << 20), b""))
    assert received.count(b"HTTP/1.1 200 ") == 1001
    assert Counted.most == 1, "what stands behind a request is not parsed before it has been answered"


def test_one_answer_comes_of_one_callback(tmp_path: Path) -> None:
    settings = Settings(storage=tmp_path.as_uri(), space_watermark_bytes=0, trust_seconds=60)
    app = create_app(settings)
    quick, counts = fast_path(app), [0]
    assert quick is not None

    def watch(*request: Any) -> bytes | None:
        if counts[-1] == 0:
            asyncio.get_running_loop().call_soon(counts.append, 0)  # runs after the current callback
        answer = quick(*request)
        counts[-1] += answer is not None
        return answer

    with serve(app=app, answerer=watch) as live:
        store = httpx.put(f"{live.url}/v1/stores", content=b"\x0a\x05paced").json()["id"]
        wanted = ask(f"/v1/stores/{store}/files/model.pb")
        assert exchange(live, wanted).body == b"\x0a\x05paced"
        counts[:] = [0]
        with live.connect() as connection:
            connection.sendall(wanted * 1000 + LAST)
            received = b"".join(iter(lambda: connection.recv(1 << 20), b""))
    assert received.count(b"\x0a\x05paced") == 1000 == sum(counts)
    assert max(counts) == 1


@pytest.mark.parametrize("seed", range(8))
def test_answers_come_in_turn_however_the_bytes_are_cut(
    service: LiveServer, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The requests have bodies of both framings with blank lines, small reads and faults, and are cut anywhere."""
    monkeypatch.setattr(httptools_impl, "RequestResponseCycle", Counted)
    monkeypatch.setattr(Counted, "open", 0)
    monkeypatch.setattr(Counted, "most", 0)
    random = Random(seed)
    requests, statuses = [], []
    for number in range(40):
        kind = random.choice(["sized", "chunked", "ping", "nothing"])
        content = b"\x0a\x14" + (b"%08d" % number) + b"\r\n\r\nGET / H\n"[:12]
        if kind in {"ping", "nothing"}:
            requests.append(PING if kind == "ping" else ask("/nowhere"))
        else:
            framed = b"16\r\n" + content + b"\r\n0\r\n\r\n" if kind == "chunked" else content
            framing = b"transfer-encoding: chunked" if kind == "chunked" else b"content-length: 22"
            requests.append(b"PUT /v1/stores HTTP/1.1\r\nhost: localhost\r\n" + framing + b"\r\n\r\n" + framed)
        statuses.append({"ping": (200,), "nothing": (404,)}.get(kind, (200, 201)))
    stream = b"".join(requests)
    with service.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while stream:
            cut = random.choice([1, 3, 40, 400, 4000])
            connection.sendall(stream[:cut])
            stream = stream[cut:]
        pending = b""
        for expected in statuses:
            status, pending = next_status(connection, pending)
            assert status in expected
    assert Counted.most == 1


def next_status(connection: socket.socket, data: bytes) -> tuple[int, bytes]:
    """Return the status of the next answer, and the bytes after it."""
    while b"\r\n\r\n" not in data:
        data += received_some(connection)
    head, _, data = data.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    while len(data) < length:
        data += received_some(connection)
    return int(head.split()[1]), data[length:]


def received_some(connection: socket.socket) -> bytes:
    some = connection.recv(1 << 16)
    assert some, "the connection was closed"
    return some


def test_a_body_goes_on_where_its_reader_does(service: LiveServer) -> None:
    """The body is larger than the limit for unparsed bytes, and a request follows directly."""
    body = b"\x0a" + varint(4 << 20) + bytes(4 << 20)
    head = b"PUT /v1/stores HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body)
    with service.connect(30) as connection:
        connection.sendall(head + body + PING)
        assert read_answer(connection).status in {200, 201}


class Slow(asyncio.Transport):
    """A transport to a client that reads slowly."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.unsent, self.over = 0, False

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def is_closing(self) -> bool:
        return self.over

    def close(self) -> None:
        self.over = True

    abort = close


async def test_an_answer_on_its_way_keeps_the_connection_open() -> None:
    """The last mebibyte of an answer may take longer than an idle connection is kept, on a slow line."""
    settings = Settings(storage="memory://")
    config = uvicorn_config(create_app(settings), settings)
    config.load()
    make: Any = config.http_protocol_class
    protocol = make(config=config, server_state=ServerState(), app_state={})
    transport = Slow()
    protocol.connection_made(transport)
    seen = []
    for transport.unsent in (1 << 20, 1 << 19, 0):
        protocol.timeout_keep_alive_handler()
        seen.append(transport.over)
    protocol.connection_lost(None)
    assert seen == [False, False, True]


def test_half_a_head_behind_a_long_answer_is_not_waited_for_without_end(
    serving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head's time runs out during the long answer, and begins again after it."""
    body = b"\x0a" + varint(16 << 20) + bytes(16 << 20)
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.2)
    with serving(keep_alive_seconds=1) as live:
        store = httpx.put(f"{live.url}/v1/stores", content=body).json()["id"]
        with live.connect() as connection:
            connection.sendall(ask(f"/v1/stores/{store}/files/model.pb") + PING[:9])
            read = len(connection.recv(1000))
            for _ in range(10):
                time.sleep(0.05)
                read += len(connection.recv(1000))
            received = b"".join(iter(lambda: connection.recv(1 << 20), b""))
    assert read + len(received) > len(body)
    assert b"HTTP/1.1 408 " in received[-1000:]


def test_the_rest_of_a_body_that_was_refused_holds_no_connection(serving: Any) -> None:
    """Sent slowly, the rest would never end."""
    with serving(keep_alive_seconds=1, max_upload_bytes=10) as live, live.connect() as connection:
        connection.sendall(b"PUT /v1/stores HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n\r\n")
        assert read_answer(connection).status == 413
        connection.settimeout(0.05)
        for _ in range(200):
            try:
                connection.sendall(b"x")
                if connection.recv(1) == b"":
                    return
            except TimeoutError:
                continue
            except ConnectionError:
                return
    pytest.fail("the connection was held open")
