"""Faulty proxy: does by a script what broken ones do, one fault for each request that passes."""

from __future__ import annotations

import http.client
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, Literal, TypeVar
from urllib.parse import urlsplit

from tests.support.serving import in_a_thread

Kind = Literal[
    "pass", "reset", "busy", "bad gateway", "cut", "stall", "truncate", "prolong", "whole", "shift", "etag", "flip",
    "flip upload", "cut upload",
]  # fmt: skip
FAULTS: Final[tuple[Kind, ...]] = Kind.__args__  # type: ignore[attr-defined]
T = TypeVar("T")
_HOP: Final = {"connection", "keep-alive", "transfer-encoding", "host"}


@dataclass(frozen=True, slots=True)
class Fault:
    """Fault of one request, or of its answer."""

    kind: Kind = "pass"
    at: float = 0.5
    """Position in the body, as a share of its length."""


@dataclass
class FaultyProxy:
    """Address of the proxy, its script, and the requests so far."""

    url: str
    upstream: str
    stall_seconds: float
    script: list[Fault] = field(default_factory=list)
    """Faults of the next requests; requests after the last one pass."""
    done: list[tuple[str, str, Fault]] = field(default_factory=list)
    """Method, path and fault of each request so far."""
    lock: threading.Condition = field(default_factory=threading.Condition)
    sent_down: int = 0
    """Bytes of answers' bodies that went to clients."""
    sent_up: int = 0
    """Bytes of requests' bodies that came from clients."""
    under_way: int = 0
    """Requests that have come and have not been answered or broken off."""

    def next(self, method: str, path: str) -> Fault:
        """The fault of the next request."""
        with self.lock:
            fault = self.script.pop(0) if self.script else Fault()
            self.done.append((method, path, fault))
            return fault

    def bytes_sent_by(self, work: Callable[[], T]) -> tuple[T, int]:
        """The result of `work`, and the bytes of bodies it sent; waits for a push that was broken off before."""
        with self.lock:
            if not self.lock.wait_for(lambda: self.under_way == 0, 10):
                raise TimeoutError("a request through the proxy does not end")
            before = self.sent_up
        return work(), self.sent_up - before

    def count(self, *, up: int = 0, down: int = 0) -> None:
        """Count bytes."""
        with self.lock:
            self.sent_up += up
            self.sent_down += down


@contextmanager
def faulty_proxy(upstream: str, *, stall_seconds: float = 1.0) -> Iterator[FaultyProxy]:
    """A proxy before the service at `upstream`, on a free port of the loopback."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        host, port = server.server_address[:2]
        proxy = FaultyProxy(f"http://{host!s}:{port}", upstream, stall_seconds)
        server.proxy = proxy  # type: ignore[attr-defined]
        with in_a_thread(server):
            yield proxy


class _Handler(socketserver.StreamRequestHandler):
    """One request on one connection, which is closed behind it."""

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
        """The body of the request; none when it is to break off."""
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
    """The headers as the fault has them."""
    headers = dict(headers)
    if fault.kind == "etag" and "etag" in headers:
        headers["etag"] = '"another"'
    if fault.kind == "shift" and "content-range" in headers:
        span, _, size = headers["content-range"].removeprefix("bytes ").partition("/")
        first, _, last = span.partition("-")
        by = 1 if int(last) + 1 < int(size) else -1
        headers["content-range"] = f"bytes {int(first) + by}-{int(last) + by}/{size}"
    return headers
