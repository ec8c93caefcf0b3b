"""An httpx transport that uses urllib3, and reads responses in steps of a mebibyte.

httpx's own transport reads 64 KiB at a time. With so small steps, Python takes longer than the kernel takes to copy
the bytes. urllib3's connections notice a response only after they have sent the whole request. These connections also
never give up a response that arrives extremely slowly, byte by byte. The classes below correct both faults.
"""

from __future__ import annotations

import http.client
import re
import ssl
from contextlib import contextmanager
from io import BufferedReader, RawIOBase
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from socket import MSG_PEEK
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

if TYPE_CHECKING:
    from collections.abc import Iterator
    from socket import socket

    from _typeshed import WriteableBuffer
    from urllib3.response import HTTPResponse
import os
from collections.abc import Iterator, Mapping
from functools import partial
from urllib.parse import unquote
from urllib.request import getproxies, proxy_bypass

import httpx
import urllib3
from urllib3 import exceptions as failures
from urllib3.util import Timeout, make_headers, parse_url

_INTERIM: Final = re.compile(rb"HTTP/1\.[01] 1[0-9]{2}")
"""The beginning of an interim response, such as 100 Continue, which precedes the final response."""
LEAST_BYTES_PER_SECOND: Final = 1024
"""Minimum number of bytes that have to arrive per second of waiting. The service requires the same of its clients."""
_SILENCES: Final = 4
"""Number of read timeouts that make up the window in which the rate of a response is measured."""


class _Watched(RawIOBase):
    """The bytes of a response. A read raises `TimeoutError` if the response has been too slow.

    The rate is measured over windows of four read timeouts. Only the time that reads spend waiting counts.
    """

    def __init__(self, raw: RawIOBase, silence: float | None) -> None:
        self._raw = raw
        self._window = None if silence is None else silence * _SILENCES
        self._waited, self._received = 0.0, 0

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        """Read bytes that have arrived; if there are none, wait for some."""
        begin = perf_counter()
        count = self._raw.readinto(buffer)
        self._waited += perf_counter() - begin
        self._received += count or 0
        if self._window is not None and self._waited >= self._window:
            if self._received < LEAST_BYTES_PER_SECOND * self._waited:
                raise TimeoutError("the response comes too slowly")
            self._waited, self._received = 0.0, 0
        return count

    def readable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return the file descriptor of the socket."""
        return self._raw.fileno()

    def close(self) -> None:
        """Close this file. The socket closes when nothing else uses it."""
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp = BufferedReader(_Watched(self.fp.detach(), sock.gettimeout()))


class _Connection(HTTPConnection):
    """A connection that stops sending a request body as soon as a response arrives."""

    response_class = _Response
    _broken_off = False

    def connect(self) -> None:
        """Open the connection."""
        self._broken_off = False
        super().connect()

    def send(self, data: Any) -> None:
        """Send `data`; raise `BrokenPipeError` if the service has responded or has closed the connection.

        After a `BrokenPipeError`, urllib3 reads the response.
        """
        if self.sock is None:
            self.connect()
        with self._as_broken_pipe():
            if isinstance(data, bytes) and not isinstance(self.sock, ssl.SSLSocket):
                _send(self.sock, memoryview(data))
            else:
                # Bytes that arrive over TLS may be a session ticket instead of a response. Encrypted bytes cannot be
                # examined before they are read.
                super().send(data)

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]
        """Return the response. After an incomplete request body, prevent the pool from reusing the connection."""
        answer = super().getresponse()
        if self._broken_off and self.sock is not None:
            # The pool discards a closed connection. The response's file keeps the socket open until it is read.
            self.sock.close()
            self.sock = None
        return answer

    @contextmanager
    def _as_broken_pipe(self) -> Iterator[None]:
        try:
            yield
        except (BrokenPipeError, ConnectionResetError, ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
            self._broken_off = True
            raise BrokenPipeError(str(error)) from error


class _TlsConnection(_Connection, HTTPSConnection):
    """A connection over TLS. It notices an early response only when the service closes the connection."""


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


POOLS: Final = {"http": _Pool, "https": _TlsPool}
"""Connection pool classes by URL scheme, for urllib3's pool managers."""


def _send(sock: socket, left: memoryview) -> None:
    """Send all bytes of `left`; raise `BrokenPipeError` if a final response arrives before the end."""
    with DefaultSelector() as selector:
        selector.register(sock, EVENT_READ | EVENT_WRITE)
        while left:
            ready = selector.select(sock.gettimeout())
            if not ready:
                raise TimeoutError("timed out")
            events = ready[0][1]
            if events & EVENT_READ:
                if not _INTERIM.match(sock.recv(12, MSG_PEEK)):
                    raise BrokenPipeError("responded before the whole request was sent")
                selector.modify(sock, EVENT_WRITE)
            if events & EVENT_WRITE:
                left = left[sock.send(left) :]


_STEP: Final = 1 << 20
_QUICK: Final = 100 << 20
"""Rate in bytes per second above which reads wait for a whole step, because the wait is too short to notice."""
_KNOWN_TO_COME_AND_GO: Final = 16 << 20
_KEPT: Final = 16
"""Maximum number of idle connections that are kept for later requests. More connections are opened on demand."""

_MEANING: Final[Mapping[type[Exception], type[httpx.TransportError]]] = {
    failures.ReadTimeoutError: httpx.ReadTimeout,
    failures.NewConnectionError: httpx.ConnectError,
    failures.ConnectTimeoutError: httpx.ConnectTimeout,
    failures.ProxyError: httpx.ProxyError,
    failures.LocationValueError: httpx.UnsupportedProtocol,
    failures.ProtocolError: httpx.RemoteProtocolError,
    failures.HTTPError: httpx.NetworkError,
}
"""The httpx exception class for each urllib3 exception class. The first entry that matches an exception is used."""


class ServiceTransport(httpx.BaseTransport):
    """A transport to a service, directly or over the proxy that the environment sets for the service's host."""

    def __init__(self, service: httpx.URL) -> None:
        _let_memory_stay()
        self._begin = partial(_pool, service.scheme, service.host)
        self._pool, self._process = self._begin(), os.getpid()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request, and return the response before its body is read."""
        seconds = request.extensions.get("timeout", {})
        if self._process != os.getpid():  # after a fork, the connections still belong to the parent process
            self._pool, self._process = self._begin(), os.getpid()
        # For a proxy, urllib3 adds Host and Accept again if their names are not capitalized exactly like this.
        headers = [(name.title(), value) for name, value in request.headers.multi_items()]
        framed = "content-length" in request.headers or "transfer-encoding" in request.headers
        with _as_httpx(httpx.ConnectError):
            answer = self._pool.urlopen(
                request.method,
                str(request.url),
                body=request.stream if framed else None,
                headers=urllib3.HTTPHeaderDict(headers),
                timeout=Timeout(connect=seconds.get("connect"), read=seconds.get("read")),
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
        return httpx.Response(answer.status, headers=list(answer.headers.items()), stream=_Body(answer))

    def close(self) -> None:
        """Close the connections."""
        # `clear` alone would leave the pools open until the garbage collector frees the last response.
        for key in self._pool.pools.keys():  # noqa: SIM118 - it is no dict
            self._pool.pools[key].close()
        self._pool.clear()


class _Body(httpx.SyncByteStream):
    def __init__(self, answer: urllib3.BaseHTTPResponse) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        quick, before = False, perf_counter()
        with _as_httpx(httpx.ReadError):
            while piece := self._answer.read(_STEP) if quick else self._answer.read1(_STEP):
                yield piece
                now = perf_counter()
                quick, before = len(piece) > _QUICK * (now - before), now

    def close(self) -> None:
        """Return the connection to the pool after a complete body; otherwise, close the connection."""
        self._answer.close()


def _let_memory_stay() -> None:
    """Make glibc keep freed memory in the process, so that the next piece can use it.

    By default, glibc returns large freed blocks to the kernel, which clears their pages again for every piece. That
    took a fifth of a download's processor time. After a large block was freed once,
    glibc keeps blocks up to the size of that block.
    """
    bytes(_KNOWN_TO_COME_AND_GO)


@contextmanager
def _as_httpx(tls: type[httpx.TransportError]) -> Iterator[None]:
    """Turn exceptions of urllib3 into exceptions of httpx. A TLS failure becomes an exception of the class `tls`."""
    # urllib3 does not report at which stage TLS failed, so the caller passes the class.
    try:
        yield
    except failures.SSLError as error:
        raise tls(str(error)) from error
    except failures.HTTPError as error:
        kind = next(meant for kind, meant in _MEANING.items() if isinstance(error, kind))
        raise kind(str(error)) from error


def _pool(scheme: str, host: str) -> urllib3.PoolManager:
    named = getproxies()
    proxy = named.get(scheme) or named.get("all")
    if proxy is None or proxy_bypass(host):
        pool = urllib3.PoolManager(maxsize=_KEPT)
    else:
        auth = parse_url(proxy).auth
        headers = make_headers(proxy_basic_auth=unquote(auth)) if auth else None
        pool = urllib3.ProxyManager(proxy, maxsize=_KEPT, proxy_headers=headers)
    pool.pool_classes_by_scheme = POOLS
    return pool
