"""Helpers between a client and a service: faulty proxies, relays that break or hang, delays, and servers in threads.

`faulty_proxy` disturbs single requests by a script. `Relay` counts bytes, and breaks or hangs after a number of them.
`far_away` delays each request, as a distant storage does.
"""

from __future__ import annotations

import asyncio
import http.client
import math
import socket
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Literal, Self, TypeVar
from urllib.parse import urlsplit

Kind = Literal[
    "pass", "reset", "busy", "bad gateway", "cut", "stall", "truncate", "prolong", "whole", "shift", "etag", "flip",
    "flip upload", "cut upload",
]  # fmt: skip
FAULTS: Final[tuple[Kind, ...]] = Kind.__args__  # type: ignore[attr-defined]
T = TypeVar("T")
_HOP: Final = {"connection", "keep-alive", "transfer-encoding", "host"}
Way = Literal["up", "down"]
_RELAYED: Final = 1 << 20
_PIECE: Final = 256 << 10


@contextmanager
def in_a_thread(server: socketserver.TCPServer) -> Iterator[str]:
    """Run a server in a thread until the block ends, and yield its `host:port`."""
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            host, port = server.server_address[:2]
            yield f"{host!s}:{port}"
        finally:
            server.shutdown()
            thread.join(10)


@dataclass(frozen=True, slots=True)
class Fault:
    """The fault of one request, or of its answer."""

    kind: Kind = "pass"
    at: float = 0.5
    """The position in the body, as a share of its length."""


@dataclass
class FaultyProxy:
    """The proxy's address, its script, and its past requests."""

    url: str
    upstream: str
    stall_seconds: float
    script: list[Fault] = field(default_factory=list)
    """The faults of the next requests; requests after the last fault pass."""
    done: list[tuple[str, str, Fault]] = field(default_factory=list)
    """The method, path and fault of each request so far."""
    lock: threading.Condition = field(default_factory=threading.Condition)
    sent_down: int = 0
    """The bytes of answer bodies that were sent to clients."""
    sent_up: int = 0
    """The bytes of request bodies that came from clients."""
    under_way: int = 0
    """The number of requests that are neither answered nor broken off."""

    def next(self, method: str, path: str) -> Fault:
        """Return the fault of the next request."""
        with self.lock:
            fault = self.script.pop(0) if self.script else Fault()
            self.done.append((method, path, fault))
            return fault

    def bytes_sent_by(self, work: Callable[[], T]) -> tuple[T, int]:
        """Return the result of `work`, and the number of body bytes that it sent.

        Earlier requests that were broken off must end first, within ten seconds.
        """
        with self.lock:
            if not self.lock.wait_for(lambda: self.under_way == 0, 10):
                raise TimeoutError("a request through the proxy does not end")
            before = self.sent_up
        return work(), self.sent_up - before

    def count(self, *, up: int = 0, down: int = 0) -> None:
        """Add to the counts of sent bytes."""
        with self.lock:
            self.sent_up += up
            self.sent_down += down


@contextmanager
def faulty_proxy(upstream: str, *, stall_seconds: float = 1.0) -> Iterator[FaultyProxy]:
    """Run a proxy in front of the service at `upstream`, on a free port of the loopback."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        host, port = server.server_address[:2]
        proxy = FaultyProxy(f"http://{host!s}:{port}", upstream, stall_seconds)
        server.proxy = proxy  # type: ignore[attr-defined]
        with in_a_thread(server):
            yield proxy


class _Handler(socketserver.StreamRequestHandler):
    """One request on one connection, which is closed afterwards."""

    def handle(self) -> None:
        proxy: FaultyProxy = self.server.proxy  # type: ignore[attr-defined]
        with proxy.lock:
            proxy.under_way += 1
        try:
            with suppress(OSError, http.client.HTTPException):
                self._serve(proxy)
        finally:
            with proxy.lock:
                proxy.under_way -= 1
                proxy.lock.notify_all()

    def _serve(self, proxy: FaultyProxy) -> None:
        line = self.rfile.readline(1 << 16).decode("latin-1").split()
        if len(line) != 3:
            return
        method, path, _ = line
        headers = {name.lower(): value for name, value in http.client.parse_headers(self.rfile).items()}
        fault = proxy.next(method, path)
        if fault.kind == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            return
        if fault.kind == "whole":
            headers.pop("range", None)
        body = self._body(proxy, headers, fault)
        if body is None:
            return
        if fault.kind in {"busy", "bad gateway"}:
            self._head(503 if fault.kind == "busy" else 502, {"retry-after": "0", "content-length": "0"})
            return
        status, said, content = _ask(proxy.upstream, method, path, headers, body)
        self._answer(proxy, fault, (status, _tampered(fault, said, len(content))), content, bare=method == "HEAD")

    def _body(self, proxy: FaultyProxy, headers: dict[str, str], fault: Fault) -> bytes | None:
        """Return the body of the request; None if the request is to break off."""
        body = bytearray()
        if "chunked" in headers.get("transfer-encoding", ""):
            while size := int(self.rfile.readline(100), 16):
                body += self.rfile.read(size)
                self.rfile.readline(10)
            self.rfile.readline(10)
        elif fault.kind == "cut upload":
            body += self.rfile.read(int(int(headers.get("content-length", "0")) * fault.at))
        else:
            body += self.rfile.read(int(headers.get("content-length", "0")))
        proxy.count(up=len(body))
        if fault.kind == "cut upload":
            return None
        if fault.kind == "flip upload" and body:
            body[int((len(body) - 1) * fault.at)] ^= 1
        return bytes(body)

    def _answer(
        self, proxy: FaultyProxy, fault: Fault, head: tuple[int, dict[str, str]], content: bytes, *, bare: bool
    ) -> None:
        status, headers = head
        place = int(len(content) * fault.at)
        if fault.kind == "flip" and content:
            place = min(place, len(content) - 1)
            content = content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :]
        if fault.kind in {"truncate", "cut", "stall"}:
            sent = content[:place]
        else:
            sent = content + b"more" if fault.kind == "prolong" else content
        if fault.kind in {"truncate", "prolong"} and not bare:
            headers["content-length"] = str(len(sent))
        self._head(status, headers)
        if not bare:
            self.wfile.write(sent)
            proxy.count(down=len(sent))
        if fault.kind == "stall":
            self.wfile.flush()
            time.sleep(proxy.stall_seconds)

    def _head(self, status: int, headers: dict[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} Whatever", *(f"{name}: {value}" for name, value in headers.items())]
        self.wfile.write("\r\n".join([*lines, "connection: close", "", ""]).encode("latin-1"))


def _ask(
    upstream: str, method: str, path: str, headers: dict[str, str], body: bytes
) -> tuple[int, dict[str, str], bytes]:
    place = urlsplit(upstream)
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=60)
    try:
        given = {name: value for name, value in headers.items() if name not in _HOP | {"content-length"}}
        connection.request(method, path, body or (b"" if method in {"POST", "PUT"} else None), given)
        answer = connection.getresponse()
        content = answer.read()
        return (
            answer.status,
            {name.lower(): value for name, value in answer.getheaders() if name.lower() not in _HOP},
            content,
        )
    finally:
        connection.close()


def _tampered(fault: Fault, headers: dict[str, str], length: int) -> dict[str, str]:
    """Return the headers with the fault applied."""
    headers = dict(headers)
    if fault.kind == "etag" and "etag" in headers:
        headers["etag"] = '"another"'
    if fault.kind == "shift" and "content-range" in headers:
        span, _, size = headers["content-range"].removeprefix("bytes ").partition("/")
        first, _, last = span.partition("-")
        by = 1 if int(last) + 1 < int(size) else -1
        headers["content-range"] = f"bytes {int(first) + by}-{int(last) + by}/{size}"
    return headers


class Relay:
    """A relay of connections to the service at `url`, limited to `up` bytes to the service or `down` bytes from it.

    At the limit, all connections break once. With `holds`, the relay stops to move bytes instead. With `cuts`, each
    connection breaks after its next number of bytes, in either direction.
    """

    def __init__(
        self,
        url: str,
        *,
        up: float = math.inf,
        down: float = math.inf,
        holds: bool = False,
        cuts: Iterator[int] | None = None,
    ) -> None:
        self.lead_to(url)
        self._cuts = cuts
        self.cut = 0
        """The number of connections that broke because of `cuts`."""
        self._lock = threading.Lock()
        self._alive: list[socket.socket] = []
        self._over = threading.Event()
        self.reached = threading.Event()
        """Set when the limit is reached, at which connections break or hang."""
        self.passed: dict[Way, int] = {}
        """The bytes that have passed, including headers."""
        self.begin(up=up, down=down, holds=holds)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def lead_to(self, url: str) -> None:
        """Lead new connections to the service at `url`."""
        host, _, port = url.removeprefix("http://").partition(":")
        self._service = host, int(port)

    def begin(self, *, up: float = math.inf, down: float = math.inf, holds: bool = False) -> None:
        """Break all connections, and start counting from zero."""
        self._over.set()
        self._break()
        with self._lock:
            self._over, self._holds = threading.Event(), holds
            self._left: dict[Way, float] = {"up": up, "down": down}
            self.passed |= {"up": 0, "down": 0}
        self.reached.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._over.set()
        _shut(self._listener)
        self._listener.close()
        self._break()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        with suppress(OSError), near, socket.create_connection(self._service) as far:
            with self._lock:
                self._alive += (near, far)
                left = [math.inf if self._cuts is None else next(self._cuts)]
            back = threading.Thread(target=self._pump, args=(far, near, "down", left), daemon=True)
            back.start()
            self._pump(near, far, "up", left)
            back.join()

    def _pump(self, source: socket.socket, sink: socket.socket, way: Way, left: list[float]) -> None:
        """Copy bytes one way; `left` holds the number of bytes after which this connection breaks."""
        over = self._over
        with suppress(OSError):
            while (data := source.recv(_RELAYED)) and not over.is_set():  # bytes in flight at the end are not counted
                due = self._take(way, len(data))
                with self._lock:
                    kept = int(min(due, left[0]))
                    left[0] -= due
                    self.passed[way] -= due - kept
                    self.cut += left[0] <= 0 < left[0] + due
                sink.sendall(data[:kept])
                if kept < due:
                    break
                if due < len(data):
                    self._stop(over)
        _shut(source)
        _shut(sink)

    def _take(self, way: Way, size: int) -> int:
        """Return how many of `size` bytes may pass."""
        with self._lock:
            due = int(min(size, self._left[way]))
            self._left[way] -= due
            self.passed[way] += due
            return due

    def _stop(self, over: threading.Event) -> None:
        self.reached.set()
        if self._holds:
            over.wait()
            return
        with self._lock:
            self._left = {"up": math.inf, "down": math.inf}
        self._break()

    def _break(self) -> None:
        """End all connections, and thereby their pumps."""
        with self._lock:
            alive, self._alive = self._alive, []
        for each in alive:
            _shut(each)


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class Distance:
    """A counter and delayer of requests on connections to `endpoint`, such as `http://127.0.0.1:9000`."""

    def __init__(self, endpoint: str, seconds: float) -> None:
        parts = urlsplit(endpoint)
        self._target = parts.hostname, parts.port
        self.seconds = seconds
        self.seen: Counter[str] = Counter()
        """The number of requests by method and first segments of the key, such as `GET objects`."""
        self.endpoint = ""
        """The relay's address, once it listens."""

    def reset(self) -> None:
        """Forget the counted requests."""
        self.seen.clear()

    async def serve(self, ready: threading.Event, over: asyncio.Event) -> None:
        """Relay connections until `over` is set."""
        server = await asyncio.start_server(self._relay, "127.0.0.1", 0, limit=_PIECE)
        self.endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        ready.set()
        await over.wait()
        server.close()
        relays = asyncio.all_tasks() - {asyncio.current_task()}
        for task in relays:
            task.cancel()
        await asyncio.gather(*relays, return_exceptions=True)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = self._target
        far_reader, far_writer = await asyncio.open_connection(host, port, limit=_PIECE)
        answered = asyncio.Event()
        answered.set()

        async def there() -> None:
            # Clients wait for an answer before their next request, so the first data after an answer begins a request.
            while data := await reader.read(_PIECE):
                if answered.is_set():
                    answered.clear()
                    self._count(data)
                    await asyncio.sleep(self.seconds)
                far_writer.write(data)
                await far_writer.drain()
            far_writer.write_eof()

        async def back() -> None:
            while data := await far_reader.read(_PIECE):
                answered.set()
                writer.write(data)
                await writer.drain()

        tasks = [asyncio.create_task(there()), asyncio.create_task(back())]
        try:
            with suppress(asyncio.CancelledError):  # the relay ends
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for each in (writer, far_writer):
                with suppress(OSError):
                    each.close()

    def _count(self, head: bytes) -> None:
        method, target, *_ = [*head.split(b"\r\n", 1)[0].decode("latin-1").split(" "), "", ""]
        path, _, query = target.partition("?")
        kind = "list" if "list-type=" in query else "/".join(path.split("/")[2:4])
        self.seen[f"{method} {kind}"] += 1


@contextmanager
def far_away(endpoint: str, seconds: float) -> Iterator[Distance]:
    """Run a relay to `endpoint` that delays each request by `seconds`."""
    distance = Distance(endpoint, seconds)
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    over = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(distance.serve(ready, over)), daemon=True)
    thread.start()
    ready.wait()
    try:
        yield distance
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()
