"""Start a service and talk to it: without a socket, over a socket of a thread, or as a process.

`open_app` and `ask` need no socket; `serve` runs a server in a thread; `service_process` runs `protoslice serve`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import uvicorn
from starlette.types import Message, Receive

from protoslice.server.app import Application, create_app
from protoslice.server.settings import Settings
from protoslice.server.telemetry.logs import AUDIT, REQUESTS, configure_logs
from protoslice.server.transport.protocol import Answerer
from protoslice.server.transport.run import uvicorn_config

PEAK = "VmHWM"
RESIDENT = "VmRSS"
RESET_PEAK = "5"
PROBLEM_MEMBERS = {"type": str, "title": str, "status": int, "detail": str, "request_id": str}


@asynccontextmanager
async def open_app(**settings: Any) -> AsyncIterator[Application]:
    """Open an application over memory, without a socket; `ask` sends requests to it."""
    app = create_app(Settings(**{"storage": "memory://", "space_watermark_bytes": 0, **settings}))
    app.middleware_stack = app.build_middleware_stack()
    await app.services.open()
    try:
        yield app
    finally:
        await app.services.close()


class Asked(NamedTuple):
    """An answer: its headers by name, and its whole body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body as text, whatever bytes it has."""
        return self.body.decode("latin-1")


async def ask(
    app: Application,
    method: str,
    target: str,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    *,
    sized: bool = True,
    receiving: Callable[[Receive], Receive] = lambda receive: receive,
) -> Asked:
    """Send a request, and return the answer; the services of `app` must be open.

    `receiving` makes the channel in which the body arrives. Unless the request is `sized`, it has no Content-Length.
    """
    path, _, query = target.partition("?")
    given = {"host": "localhost", **({"content-length": str(len(body))} if sized else {}), **(headers or {})}
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": unquote(path), "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in given.items()],
        "client": ("192.0.2.1", 1), "server": ("localhost", 80),
    }  # fmt: skip
    sent: list[Message] = []
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if not left:
            await asyncio.Event().wait()  # the client waits for the answer
        return left.pop()

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receiving(receive), send)
    said = {name.decode(): value.decode("latin-1") for name, value in sent[0]["headers"]}
    return Asked(sent[0]["status"], said, b"".join(message.get("body", b"") for message in sent[1:]))


@contextmanager
def serve(*, app: Application | None = None, answerer: Answerer | None = None, **settings: Any) -> Iterator[LiveServer]:
    """Serve `app`, or a new application with these settings, in a thread; over memory if they name no storage."""
    app = app or create_app(Settings(**{"storage": "memory://", **settings}))
    with live_server(uvicorn_config(app, app.services.settings, answerer=answerer)) as live:
        yield live


@dataclass(frozen=True, slots=True)
class LiveServer:
    """The address of a running server."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """The address, without a slash at the end."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def connect(self, timeout_seconds: float = 10) -> socket.socket:
        """Open a new connection."""
        return socket.create_connection((self.host, self.port), timeout_seconds)


@contextmanager
def live_server(config: uvicorn.Config) -> Iterator[LiveServer]:
    """Run a server in a separate thread on a free port of the loopback until the block ends."""
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
    """An answer, with the bytes that came over the wire."""

    status: int
    headers: dict[str, str]
    body: bytes
    complete: bool
    """True if all bytes that Content-Length announced have arrived."""


def exchange(server: LiveServer, request: bytes, *, timeout_seconds: float = 10) -> RawAnswer:
    """Send exactly these bytes over a new connection and read one answer."""
    with server.connect(timeout_seconds) as connection:
        connection.sendall(request)
        return read_answer(connection, head_only=request.startswith(b"HEAD "))


def read_answer(connection: socket.socket, *, head_only: bool = False) -> RawAnswer:
    """Read one answer with or without a Content-Length; a reset counts as the end."""
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


@dataclass(frozen=True, slots=True)
class ServiceProcess:
    """A running service."""

    running: subprocess.Popen[str]
    server: LiveServer
    log: Path
    """The path of the file with the process's standard error."""

    @property
    def url(self) -> str:
        """The address, without a slash at the end."""
        return self.server.url

    def forget_peak(self) -> None:
        """Reset the peak of resident memory."""
        for pid in self._family():
            with suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text(RESET_PEAK)

    def peak(self) -> int:
        """Return the peak of resident bytes since `forget_peak`, for the service and its workers."""
        return sum(_bytes(pid, PEAK) for pid in self._family())

    def resident(self) -> int:
        """Return the resident bytes now, for the service and its workers."""
        return sum(_bytes(pid, RESIDENT) for pid in self._family())

    def _family(self) -> list[int]:
        """Return the process and its children."""
        pid = self.running.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return [pid, *map(int, children.split())]


@contextmanager
def service_process(*arguments: str, settings: Mapping[str, str] | None = None) -> Iterator[ServiceProcess]:
    """Run `protoslice serve` on a free port of the loopback; `settings` are environment variables."""
    command = [sys.executable, "-m", "protoslice.cli", "serve", "--port", "0", *arguments]
    with tempfile.NamedTemporaryFile("w", suffix=".log") as log:
        running = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env={"PATH": os.environ["PATH"], **(settings or {})}
        )
        try:
            yield ServiceProcess(running, _address(running, Path(log.name)), Path(log.name))
        finally:
            running.terminate()
            try:
                running.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                running.kill()
                running.communicate()


def _address(running: subprocess.Popen[str], log: Path) -> LiveServer:
    assert running.stdout is not None
    line = running.stdout.readline().strip()
    if not line.startswith("http://"):
        raise RuntimeError(f"the service did not start: {log.read_text()}")
    host, _, port = line.removeprefix("http://").rpartition(":")
    return LiveServer(host.strip("[]"), int(port))


def _bytes(pid: int, what: str) -> int:
    """Return a memory figure of a process in bytes; 0 for a process that has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(what):
                return int(line.split()[1]) << 10
    return 0


def assert_problem(
    status: int, headers: Mapping[str, str], body: bytes, *, expected: int, slug: str | None = None
) -> Any:
    """Check that the answer is an RFC 9457 problem with status `expected`, and return its members."""
    assert status == expected, body
    assert headers["content-type"] == "application/problem+json"
    assert headers["cache-control"] == "no-store"
    problem = json.loads(body)
    for name, kind in PROBLEM_MEMBERS.items():
        assert isinstance(problem.get(name), kind), f"{name} is missing or no {kind.__name__}: {problem}"
    assert problem["status"] == expected
    assert problem["type"].startswith("/problems/")
    assert slug is None or problem["type"] == f"/problems/{slug}"
    assert headers.get("x-request-id", problem["request_id"]) == problem["request_id"]
    return problem


@contextmanager
def logs_to(out: StringIO, form: str, level: str) -> Iterator[Callable[[], None]]:
    """Send log lines to `out` until the block ends; yield a function that flushes them."""
    names = ("protoslice", REQUESTS, "uvicorn", "opentelemetry", AUDIT, "python_multipart")
    loggers = [logging.getLogger(name) for name in names]
    before = [(logger, logger.level, logger.propagate, logger.handlers[:]) for logger in loggers]
    try:
        yield configure_logs(form, level, out)
    finally:
        for logger, level_before, propagate, handlers in before:
            logger.setLevel(level_before)
            logger.propagate, logger.handlers[:] = propagate, handlers
