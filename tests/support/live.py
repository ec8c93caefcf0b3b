"""A live server in a thread, and raw exchanges with it: for tests that want a real socket."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn


@dataclass(frozen=True, slots=True)
class LiveServer:
    """Address of a running server."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """The address, without a slash at the end."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def connect(self, timeout_seconds: float = 10) -> socket.socket:
        """A fresh connection."""
        return socket.create_connection((self.host, self.port), timeout_seconds)


@contextmanager
def live_server(config: uvicorn.Config) -> Iterator[LiveServer]:
    """A server that runs in a thread of its own on a free port of the loopback, and is gone afterwards."""
    listener = socket.create_server(("127.0.0.1", 0))
    # A request that its client has forgotten is cut long before the thread counts as one that does not end.
    config.timeout_graceful_shutdown = 5
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        _await_start(server, thread)
        host, port = listener.getsockname()
        yield LiveServer(host, port)
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()
    if thread.is_alive():
        raise RuntimeError("the server does not end")


def _await_start(server: uvicorn.Server, thread: threading.Thread) -> None:
    deadline = time.monotonic() + 30
    while not server.started:
        if not thread.is_alive() or time.monotonic() > deadline:
            raise RuntimeError("the server did not start")
        time.sleep(0.005)


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """An answer as it came over the wire."""

    status: int
    headers: dict[str, str]
    body: bytes
    complete: bool
    """True when all bytes that Content-Length announced have come."""


def exchange(server: LiveServer, request: bytes, *, timeout_seconds: float = 10) -> RawAnswer:
    """Send exactly these bytes over a fresh connection and read one answer."""
    with server.connect(timeout_seconds) as connection:
        connection.sendall(request)
        return read_answer(connection, head_only=request.startswith(b"HEAD "))


def read_answer(connection: socket.socket, *, head_only: bool = False) -> RawAnswer:
    """One answer with a Content-Length, or none; a reset counts as an end."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = _receive(connection)
        if not more:
            raise EOFError(f"no answer but {data!r}")
        data += more
    head, _, rest = data.partition(b"\r\n\r\n")
    status, headers = _parse_head(head)
    wanted = 0 if head_only or status in {204, 304} else int(headers.get("content-length", "0"))
    parts, have = [rest], len(rest)
    while have < wanted and (more := _receive(connection)):
        parts.append(more)
        have += len(more)
    return RawAnswer(status, headers, b"".join(parts), have == wanted)


def _receive(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1 << 20)
    except ConnectionResetError:
        return b""


def _parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    headers: dict[str, Any] = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return int(first.split(" ")[1]), headers
