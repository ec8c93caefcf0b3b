"""Bytes that the kernel takes of an answer although the client has not taken those before."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Final

AT_FIRST: Final = 128 << 10
"""Most unsent bytes for a client that may never read; the kernel by itself takes 2.5 MB on a loopback."""
# With less, the loop would be woken more often than pieces are read.
PROVEN: Final = 1 << 20
"""Most unsent bytes for a client that has read."""


def limit_unsent(transport: asyncio.BaseTransport, size: int) -> None:
    """Have the kernel hold at most about `size` bytes of a TCP connection that it has not sent.

    Bytes under way do not count, so that a client far away is sent as much as ever.
    """
    connection: socket.socket | None = transport.get_extra_info("socket")
    if connection is not None and connection.family != socket.AF_UNIX:
        with suppress(OSError):  # the client has left
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, size)
