"""Windows: how many bytes of an answer are read before its client has taken those read before."""

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
"""A client has taken so many times the bytes that are read for it next: what stalls early has cost little."""


class Windows:
    """The memory for bytes that clients have not taken yet, shared by all answers of one process.

    Every read gets an equal part of the memory that is free, so the windows of all answers shrink with their number.
    Memory never runs out: `LEAST` bytes are granted beyond it.
    """

    def __init__(self, room: int = _ROOM) -> None:
        self.free = room
        self._share = max(1, room // LARGEST)

    def open(self, length: int) -> Window:
        """The window of an answer of `length` bytes."""
        return Window(self, length)

    def grant(self) -> int:
        """The bytes that one read may have now."""
        return min(LARGEST, max(LEAST, self.free // self._share))


class Window:
    """The bytes in memory for one answer."""

    def __init__(self, windows: Windows, length: int) -> None:
        self._windows = windows
        self._is_short = length <= LARGEST
        self._taken = 0

    @contextmanager
    def hold(self, *, near: bool) -> Iterator[int]:
        """The size of the next read, whose bytes count as held until the client has taken them.

        A distant source is never asked for little: each read of it takes a round trip.
        """
        size = self._windows.grant()
        if near and not self._is_short:
            size = min(size, max(LEAST, self._taken // _GROWTH))
        self._windows.free -= size
        try:
            yield size
        finally:
            self._windows.free += size
        self._taken += size
