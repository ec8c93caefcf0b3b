"""Connections that hear an answer while they still send, where urllib3's listen once all is sent."""

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

__all__ = ["POOLS"]

_INTERIM: Final = re.compile(rb"HTTP/1\.[01] 1[0-9]{2}")
"""An answer such as 100 Continue: the real one follows."""


class _Connection(HTTPConnection):
    """Gives up the rest of a body when an answer has come, and reads that."""

    _broken_off = False

    def connect(self) -> None:
        """Open the connection."""
        self._broken_off = False
        super().connect()

    def send(self, data: Any) -> None:
        """Send `data`; a `BrokenPipeError`, after which urllib3 reads the answer, when nobody wants more of it."""
        if self.sock is None:
            self.connect()
        with self._as_broken_pipe():
            if isinstance(data, bytes) and not isinstance(self.sock, ssl.SSLSocket):
                _send(self.sock, memoryview(data))
            else:
                # What can be read of TLS may be no answer but a ticket of a session, which cannot be looked at.
                super().send(data)

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]
        """The answer. Its connection serves no other request when the body of this one was not sent whole."""
        answer = super().getresponse()
        if self._broken_off and self.sock is not None:
            # Its file keeps the socket open until the answer is read; the pool finds a connection that is closed.
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
    """The same over TLS, where a refusal is heard once the service closes the connection."""


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


POOLS: Final = {"http": _Pool, "https": _TlsPool}
"""The classes of pools by scheme, for urllib3's managers."""


def _send(sock: socket, left: memoryview) -> None:
    """Send all that is `left`; a `BrokenPipeError` when an answer comes first."""
    with DefaultSelector() as selector:
        selector.register(sock, EVENT_READ | EVENT_WRITE)
        while left:
            ready = selector.select(sock.gettimeout())
            if not ready:
                raise TimeoutError("timed out")
            events = ready[0][1]
            if events & EVENT_READ:
                if not _INTERIM.match(sock.recv(12, MSG_PEEK)):
                    raise BrokenPipeError("answered before all was sent")
                selector.modify(sock, EVENT_WRITE)
            if events & EVENT_WRITE:
                left = left[sock.send(left) :]
