"""Read windows: limits on bytes in memory that clients have not yet taken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["LARGEST", "LEAST", "Window", "Windows"]

LEAST: Final = 64 << 10
LARGEST: Final = 1 << 20
"""Bounds on the bytes of one read."""
_ROOM: Final = 64 << 20
_GROWTH: Final = 2
"""Multiple of the next read's size that a client must have taken: one that stalls early costs little."""


class Windows:
    """Memory for bytes that clients have not taken yet, shared by all responses of one process.

    Each read gets an equal share of the free memory, so windows shrink as responses become more. A read is always
    granted at least `LEAST` bytes, even beyond the limit.
    """

    def __init__(self, room: int = _ROOM) -> None:
        self.free = room
        self._share = max(1, room // LARGEST)

    def open(self, length: int) -> Window:
        """Window of a response of `length` bytes."""
        return Window(self, length)

    def grant(self) -> int:
        """Number of bytes that one read may take now."""
        return min(LARGEST, max(LEAST, self.free // self._share))


class Window:
    """Window of one response."""

    def __init__(self, windows: Windows, length: int) -> None:
        self._windows = windows
        self._is_short = length <= LARGEST
        self._taken = 0

    @contextmanager
    def hold(self, *, near: bool) -> Iterator[int]:
        """Size of the next read, held until the client has taken the bytes.

        `near` says that reads of the source are cheap; a distant source always gets the full grant.
        """
        size = self._windows.grant()
        # Each read of a distant source costs a round trip.
        if near and not self._is_short:
            size = min(size, max(LEAST, self._taken // _GROWTH))
        self._windows.free -= size
        try:
            yield size
        finally:
            self._windows.free += size
        self._taken += size
