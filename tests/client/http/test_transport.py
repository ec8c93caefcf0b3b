"""The transport below httpx: reused connections, proxies of the environment, certificates, refusals.

In pools of daemon threads, every future completes.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from threading import Semaphore
from typing import Any

import httpx
import pytest
from tests.support.certificates import certificate
from tests.support.serve import LiveServer, serve
from tests.support.wire import in_a_thread

from protoslice.client import AsyncClient, Client
from protoslice.client.http import transport
from protoslice.client.threads import DaemonPool
from protoslice.errors import InvalidInput, LimitExceeded, NotFound, StorageDenied, StorageUnavailable


class Door:
    """A listener that forwards connections to a service; with a context, the listener itself speaks TLS."""

    def __init__(self, service: LiveServer, tls: ssl.SSLContext | None = None) -> None:
        self.connections = 0
        self.first_lines: list[bytes] = []
        self._service, self._tls = service, tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with suppress(OSError):
            if self._tls is not None:
                near = self._tls.wrap_socket(near, server_side=True)
            with near, self._service.connect() as far:
                back = threading.Thread(target=self._pump, args=(far, near, False), daemon=True)
                back.start()
                self._pump(near, far, True)
                back.join()

    def _pump(self, source: socket.socket, sink: socket.socket, kept: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if kept:
                    self.first_lines.append(data.partition(b"\r\n")[0])
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


@contextmanager
def door(service: LiveServer, tls: ssl.SSLContext | None = None) -> Iterator[Door]:
    made = Door(service, tls)
    try:
        yield made
    finally:
        made.close()


OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"


@pytest.mark.parametrize(
    ("first", "dripped"),
    [
        (OK % 400, b" " * 398 + b"{}"),
        (b"HTTP/1.1 200 OK\r\nx: ", b"x" * 400 + (b"\r\n\r\n" + OK % 2)[2:] + b"{}"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 20 + OK % 2 + b"{}"),
    ],
)
def test_a_response_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch, first: bytes, dripped: bytes) -> None:
    """Only the client's reads advance time; each takes 20 seconds."""
    seconds, reads = count(step=10), Semaphore(0)

    def clock() -> float:
        reads.release()
        return float(next(seconds))

    monkeypatch.setattr(transport, "perf_counter", clock)
    sent = list[int]()

    class Dripping(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.wfile.write(first)
            for byte in dripped:
                reads.acquire(timeout=0.05)
                self.wfile.write(bytes([byte]))
                sent.append(byte)
            self.close_connection = True

        def log_message(self, *_: Any) -> None:
            pass

    with (
        in_a_thread(ThreadingHTTPServer(("127.0.0.1", 0), Dripping)) as place,
        Client(f"http://{place}", attempts=1, timeout_seconds=30) as client,
        pytest.raises(StorageUnavailable, match="stopped responding"),
    ):
        list(client.spaces())
    assert len(sent) < 100


def test_a_connection_is_used_again(service: LiveServer, versions: Any) -> None:
    """A connection is used again after a complete body, a failure, or a body that was not read to its end."""
    with door(service) as between, Client(f"http://127.0.0.1:{between.port}") as client:
        store = client.push(versions.old, type="tensorflow.GraphDef").store
        assert client.merge(store.id) == versions.old
        before = between.connections
        for _ in range(5):
            list(client.stores())
            assert client.source(store.id, "files/model.pb").read(2 << 20, 5) == versions.old[2 << 20 :][:5]
            with pytest.raises(NotFound):
                client.store("0123456789ab")
        assert between.connections == before


@pytest.mark.parametrize("host", [None, "models.example"])
def test_the_environment_names_a_proxy(service: LiveServer, monkeypatch: pytest.MonkeyPatch, host: str | None) -> None:
    """The proxy is strict: it refuses requests that have a header twice."""
    heads = list[Message]()

    class Strict(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heads.append(self.headers)
            names = [name.lower() for name in self.headers]
            body = self.rfile.read(int(self.headers.get("content-length", "0")))
            if len(set(names)) < len(names) or not self.path.startswith(f"{service.url}/v1/"):
                self.send_error(400)
                return
            asked = {name: value for name, value in self.headers.items() if name.lower() not in {"host", "connection"}}
            answer = httpx.request(self.command, self.path, content=body, headers=asked, trust_env=False)
            self.send_response(answer.status_code)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.content)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: Any) -> None:
            pass

    with in_a_thread(ThreadingHTTPServer(("127.0.0.1", 0), Strict)) as place:
        monkeypatch.setenv("http_proxy", f"http://name:secret@{place}")
        with Client(service.url, headers={} if host is None else {"host": host}) as client:
            store = client.push(b"just words", filename="notes.txt").store
            assert client.source(store.id, "files/notes.txt").read(5, 5) == b"words"
    assert {head["host"] for head in heads} == {host or f"{service.host}:{service.port}"}
    assert all(head["proxy-authorization"] for head in heads)


def test_a_host_that_needs_no_proxy(service: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with door(service) as between:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{between.port}")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        with Client(service.url) as client:
            list(client.tags())
    assert between.connections == 0


def test_a_certificate_is_trusted_when_it_is_named(
    service: LiveServer, versions: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls, trusted = certificate(tmp_path, "localhost")
    with door(service, tls) as between:
        url = f"https://localhost:{between.port}"
        with Client(url) as client, pytest.raises(StorageDenied, match=r"not trusted \(self.signed .* SSL_CERT_FILE"):
            list(client.tags())
        assert between.connections == 1, "it would be refused again"
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        with Client(url) as client:
            store = client.push(versions.old, type="tensorflow.GraphDef").store
            assert client.merge(store.id) == versions.old


def test_a_refusal_while_the_body_is_sent_is_heard() -> None:
    with serve(storage="memory://", log_level="error", max_upload_bytes=1 << 20) as small, Client(small.url) as client:
        for _ in range(5):
            with pytest.raises(LimitExceeded):
                client.push(bytes(32 << 20))


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with (
        Client(f"http://name:secret@127.0.0.1:{port}", attempts=1) as client,
        pytest.raises(StorageUnavailable, match=f"Cannot connect to http://127.0.0.1:{port}: Connection refused"),
    ):
        list(client.tags())


@pytest.mark.parametrize("url", ["http://", "http://[::1", "ftp://host", "host:8000", "", "https:///v1"])
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(InvalidInput, match="Invalid service URL"):
        Client(url)


LONG = 10


def test_work_given_after_the_end_is_refused() -> None:
    with DaemonPool(2, "a-pool") as pool:
        assert pool.submit(lambda: 7).result(LONG) == 7
    with pytest.raises(InvalidInput, match="a-pool is closed"):
        pool.submit(lambda: 7)
    pool.close()  # a second call is harmless


def test_work_dropped_at_the_end_is_told() -> None:
    begun, go_on, ran = threading.Event(), threading.Event(), list[int]()
    with DaemonPool(1, "a-pool") as pool:
        first = pool.submit(lambda: begun.set() or go_on.wait(LONG))  # type: ignore[func-returns-value]
        dropped, cancelled = pool.submit(lambda: ran.append(1)), pool.submit(lambda: ran.append(2))
        assert begun.wait(LONG)
        assert cancelled.cancel()
        dropped.add_done_callback(lambda _: go_on.set())
    with pytest.raises(InvalidInput, match="a-pool is closed"):
        dropped.result(LONG)
    assert first.result(LONG)
    assert ran == []


async def test_a_closed_client_says_so() -> None:
    client = AsyncClient("http://127.0.0.1:9")
    await client.close()
    with pytest.raises(InvalidInput, match="closed"):
        await asyncio.wait_for(client.store("model:1"), LONG)
