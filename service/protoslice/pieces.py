"""The pieces of files, by which pushes and pulls compare files.

The places of the cuts depend on the content. Therefore, an insertion into a file moves the pieces after the insertion,
but does not change them. First, a file is cut into regions at the borders of its proto's chunks. Then each region is
cut into pieces at places that depend on its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from protoslice import _core

LONGEST: Final = 4 << 20
"""Maximum size of a piece in bytes."""
LEAST: Final = 64 << 10
"""Minimum size in bytes of an extent that becomes a region."""

Span = tuple[int, int]


class PieceCutter:
    """A cutter that divides the region from `start` up to `end` into pieces.

    The caller passes the bytes of the region in order.
    """

    def __init__(self, start: int, end: int) -> None:
        self._at = start
        self._left = end - start
        self._window = bytearray()

    @property
    def is_due(self) -> bool:
        """True if enough bytes have arrived to cut the next piece."""
        return 0 < min(LONGEST, self._left) == len(self._window)

    def take(self, data: memoryview) -> memoryview:
        """Take bytes from `data` until a piece can be cut, and return the rest of `data`."""
        wanted = min(LONGEST, self._left) - len(self._window)
        self._window += data[:wanted]
        return data[wanted:]

    def cut(self) -> tuple[int, bytes]:
        """Cut the next piece, and return its offset and bytes."""
        offset, window = self._at, bytes(self._window)
        length = _core.first_piece(window)
        del self._window[:length]
        self._at, self._left = offset + length, self._left - length
        return offset, window[:length]


def cut(size: int, extents: Iterable[Span], read: Callable[[int, int], bytes]) -> Iterator[tuple[int, bytes]]:
    """Cut a file of `size` bytes into pieces, and yield the offset and bytes of each piece, in order and without gaps.

    `extents` are the chunks of the file, as pairs of start and end. `read` returns the bytes between two offsets. Each
    byte is read once.
    """
    for start, end in regions(size, extents):
        cutter = PieceCutter(start, end)
        for at in range(start, end, LONGEST):
            left = memoryview(read(at, min(at + LONGEST, end)))
            while left:
                left = cutter.take(left)
                while cutter.is_due:
                    yield cutter.cut()


def regions(size: int, extents: Iterable[Span] = ()) -> Iterator[Span]:
    """Yield the regions of a file of `size` bytes as pairs of start and end, in order and without gaps.

    No region is empty. Each extent of at least 64 KiB that overlaps no earlier extent is a region. Therefore, equal
    chunks in two files have equal pieces, even at different offsets.
    """
    at = 0
    for start, end in sorted(extents):
        if start < at or end > size or end - start < LEAST:
            continue
        yield from ((low, high) for low, high in ((at, start), (start, end)) if low < high)
        at = end
    if at < size:
        yield at, size


def extents_of(plan: _core.Plan) -> Iterator[Span]:
    """Yield the extents of a plan's chunks in the root file, as pairs of start and end."""
    for number in range(len(plan)):
        yield from plan.chunk(number)[3].extents(0, LEAST)
