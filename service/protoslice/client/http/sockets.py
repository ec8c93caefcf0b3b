"""Connections that notice a response while sending; urllib3's notice it after sending."""

from __future__ import annotations

import re
import ssl
from contextlib import contextmanager
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from socket import MSG_PEEK
from typing import TYPE_CHECKING, Any, Final

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

if TYPE_CHECKING:
    from collections.abc import Iterator
    from socket import socket

    from urllib3.response import HTTPResponse

_INTERIM: Final = re.compile(rb"HTTP/1\.[01] 1[0-9]{2}")
"""Interim response such as 100 Continue, before the final one."""


class _Connection(HTTPConnection):
    """Connection that stops sending a body when a response arrives, and reads the response."""

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
