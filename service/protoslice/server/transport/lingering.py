"""Connections that are to be closed while their client still sends.

The kernel answers bytes that nobody reads with a reset, and a client that writes before it reads then loses the answer.
So the service says that it has said all, and reads on for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

LINGER_BYTES: Final = 32 << 20
"""Bytes behind an answer that are read and dropped before the connection is reset."""
LINGER_SECONDS: Final = 5.0
DROPPED_BYTES: Final = 64 << 10
"""The longest body that an early answer leaves to be read and dropped on a connection that is kept."""


class Linger:
    """Connection that sends nothing more: closed when its client leaves, or after `LINGER_SECONDS`."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._bytes = 0
        self._timer = loop.call_later(LINGER_SECONDS, transport.abort)
        with suppress(OSError, RuntimeError, NotImplementedError):  # the client has hung up already
            transport.write_eof()

    def drop(self, count: int) -> None:
        """Count bytes that are not looked at; reset a connection that brings too many."""
        self._bytes += count
        if self._bytes > LINGER_BYTES:
            self._transport.abort()

    def end(self) -> None:
        """Stop the timer."""
        self._timer.cancel()


class LingeringTransport:
    """The transport of a request whose body still comes, with a `close` of its own."""

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self._transport = transport
        self.close = close

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
