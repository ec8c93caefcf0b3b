"""Read windows, which limit the bytes in memory that clients have not received yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

LEAST: Final = 64 << 10
LARGEST: Final = 1 << 20
"""Smallest and largest number of bytes of one read."""
_ROOM: Final = 64 << 20
_GROWTH: Final = 2
"""Divisor: the size of a client's next read is the number of bytes that the client has received, divided by this.

A client that stalls early then costs little memory.
"""


class Windows:
    """Memory that all responses of a process share, for bytes that clients have not received yet.

    Each read gets the same fraction of the free memory, so reads become smaller as more memory is in use. If a client
    holds as much memory as is free, the client's reads shrink to the minimum. A read always gets at least `LEAST`
    bytes, even beyond the limit.
    """

    def __init__(self, room: int = _ROOM) -> None:
        self.free = room
        self._share = max(1, room // LARGEST)
        self._held: Counter[str] = Counter()
        """Number of bytes that each client holds."""

    def open(self, length: int, client: str) -> Window:
        """Return the window of a response of `length` bytes to `client`; the client "" has no separate limit."""
        return Window(self, length, client)

    def room(self, client: str) -> int:
        """Return the number of bytes that one read of `client` may take now."""
        free = self.free - self._held[client] if client else self.free
        return min(LARGEST, max(LEAST, free // self._share))

    def take(self, client: str, most: int) -> int:
        """Reserve memory for one read of `client`, and return its size: `most` bytes, or fewer if memory is short."""
        size = min(most, self.room(client))
        self._count(client, size)
        return size

    def give(self, client: str, size: int) -> None:
        """Release the memory of one read."""
        self._count(client, -size)

    def _count(self, client: str, size: int) -> None:
        self.free -= size
        if client:
            self._held[client] += size
            if not self._held[client]:
                del self._held[client]


class Window:
    """The read window of one response."""

    def __init__(self, windows: Windows, length: int, client: str) -> None:
        self._windows = windows
        self._is_short = length <= LARGEST
        self._client = client
        self._taken = 0

    @property
    def is_wide(self) -> bool:
        """True while there is memory for whole streams and their read-ahead, because there are few readers."""
        return self._windows.room(self._client) >= LARGEST // 2

    @contextmanager
    def hold(self, *, near: bool) -> Iterator[int]:
        """Yield the size of the next read, and hold that much memory until the context ends.

        The caller ends the context when the client has received the bytes. If `near` is True, reads of the source are
        cheap, and their size grows with the bytes that the client has received. Reads of a distant source, or for a
        short response, request the largest size.
        """
        # A distant source costs a round trip for each read, so its reads are large from the beginning.
        most = max(LEAST, self._taken // _GROWTH) if near and not self._is_short else LARGEST
        size = self._windows.take(self._client, most)
        try:
            yield size
        finally:
            self._windows.give(self._client, size)
        self._taken += size
