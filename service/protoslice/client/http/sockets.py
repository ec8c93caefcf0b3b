"""Connections that notice a response while sending, and give up one that hardly comes.

urllib3's notice a response after sending, and wait for one forever if a byte comes now and then.
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

_INTERIM: Final = re.compile(rb"HTTP/1\.[01] 1[0-9]{2}")
"""Interim response such as 100 Continue, before the final one."""
LEAST_BYTES_PER_SECOND: Final = 1024
"""Bytes of a response per second of waiting; the service asks as much of its clients."""
_SILENCES: Final = 4
"""Longest silences after which the bytes that have come are counted."""


class _Watched(RawIOBase):
    """Bytes of a response; `TimeoutError` when too few of them come in the time that is spent waiting for them."""

    def __init__(self, raw: RawIOBase, silence: float | None) -> None:
        self._raw = raw
        self._window = None if silence is None else silence * _SILENCES
        self._waited, self._received = 0.0, 0

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        """Read what has come, or wait for it."""
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
        """Close the socket, once nothing else uses it."""
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp = BufferedReader(_Watched(self.fp.detach(), sock.gettimeout()))


class _Connection(HTTPConnection):
    """Connection that stops sending a body when a response arrives, and reads the response."""

    response_class = _Response
    _broken_off = False

    def connect(self) -> None:
        """Open the connection."""
        self._broken_off = False
        super().connect()

    def send(self, data: Any) -> None:
        """Send `data`; `BrokenPipeError` when the service has answered or closed the connection.

        urllib3 reads the response after a `BrokenPipeError`.
        """
        if self.sock is None:
            self.connect()
        with self._as_broken_pipe():
            if isinstance(data, bytes) and not isinstance(self.sock, ssl.SSLSocket):
                _send(self.sock, memoryview(data))
            else:
                # Readable TLS bytes may be a session ticket and no response, and cannot be peeked at.
                super().send(data)

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]
        """The response; after an incomplete request body, the connection serves no further request."""
        answer = super().getresponse()
        if self._broken_off and self.sock is not None:
            # The response's file keeps the socket open until read; the pool discards a closed connection.
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
    """Same connection over TLS, which notices a refusal once the service closes the connection."""


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


POOLS: Final = {"http": _Pool, "https": _TlsPool}
"""Connection pools by scheme, for urllib3's managers."""


def _send(sock: socket, left: memoryview) -> None:
    """Send all of `left`; `BrokenPipeError` when a response arrives first."""
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
