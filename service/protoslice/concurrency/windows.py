"""Read windows: limits on the bytes in memory that clients have not received yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

LEAST: Final = 64 << 10
LARGEST: Final = 1 << 20
"""Bounds on the bytes of one read."""
_ROOM: Final = 64 << 20
_GROWTH: Final = 2
"""Multiple of the next read's size that a client must have taken: one that stalls early costs little."""


class Windows:
    """Memory for bytes that clients have not received yet, shared by all responses of one process.

    Each read gets an equal share of the free memory, so windows shrink as responses become more. A client's windows
    shrink to the minimum when the client holds as much memory as is left for all other clients. A read is always
    granted at least `LEAST` bytes, even beyond the limit.
    """

    def __init__(self, room: int = _ROOM) -> None:
        self.free = room
        self._share = max(1, room // LARGEST)
        self._held: Counter[str] = Counter()
        """Bytes that each client holds, by key."""

    def open(self, length: int, client: str) -> Window:
        """Return the window of a response of `length` bytes to `client`; windows of the client "" do not count."""
        return Window(self, length, client)

    def room(self, client: str) -> int:
        """Return the bytes that one read of `client` may take now."""
        free = self.free - self._held[client] if client else self.free
        return min(LARGEST, max(LEAST, free // self._share))

    def take(self, client: str, most: int) -> int:
        """Reserve room for one read of `client`: up to `most` bytes, fewer when memory is short."""
        size = min(most, self.room(client))
        self._count(client, size)
        return size

    def give(self, client: str, size: int) -> None:
        """Give back the room of one read."""
        self._count(client, -size)

    def _count(self, client: str, size: int) -> None:
        self.free -= size
        if client:
            self._held[client] += size
            if not self._held[client]:
                del self._held[client]


class Window:
    """Window of one response."""

    def __init__(self, windows: Windows, length: int, client: str) -> None:
        self._windows = windows
        self._is_short = length <= LARGEST
        self._client = client
        self._taken = 0

    @property
    def is_wide(self) -> bool:
        """True while there is room for whole streams and their read-ahead, because there are few readers."""
        return self._windows.room(self._client) >= LARGEST // 2

    @contextmanager
    def hold(self, *, near: bool) -> Iterator[int]:
        """Yield the size of the next read, which is held until the client has received the bytes.

        `near` says that reads of the source are cheap; a distant source always gets the full grant.
        """
        # Each read of a distant source costs a round trip.
        most = max(LEAST, self._taken // _GROWTH) if near and not self._is_short else LARGEST
        size = self._windows.take(self._client, most)
        try:
            yield size
        finally:
            self._windows.give(self._client, size)
        self._taken += size
