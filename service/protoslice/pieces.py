"""Pieces of files: the unit by which pushes and pulls compare files.

Cuts depend on the content, so that an insertion moves the pieces after it and does not change them. A file is cut into
regions along the chunks of its proto, and each region is cut at places that depend on its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from protoslice import _core

LONGEST: Final = 4 << 20
"""Size of the longest piece in bytes."""
LEAST: Final = 64 << 10
"""Extents shorter than this, in bytes, make no cuts."""

Span = tuple[int, int]


class PieceCutter:
    """Cutter of the region from `start` up to `end` into pieces, by its bytes in order."""

    def __init__(self, start: int, end: int) -> None:
        self._at = start
        self._left = end - start
        self._window = bytearray()

    @property
    def is_due(self) -> bool:
        """True when the next piece can be cut."""
        return 0 < min(LONGEST, self._left) == len(self._window)

    def take(self, data: memoryview) -> memoryview:
        """Take bytes until a piece can be cut; return the rest of `data`."""
        wanted = min(LONGEST, self._left) - len(self._window)
        self._window += data[:wanted]
        return data[wanted:]

    def cut(self) -> tuple[int, bytes]:
        """Return the offset and bytes of the next piece."""
        offset, window = self._at, bytes(self._window)
        length = _core.first_piece(window)
        del self._window[:length]
        self._at, self._left = offset + length, self._left - length
        return offset, window[:length]


def cut(size: int, extents: Iterable[Span], read: Callable[[int, int], bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and bytes of each piece of a file of `size` bytes with `extents`, in order and without gaps.

    `read` returns the bytes between two offsets. Each byte is read once.
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
    """Yield the regions of a file of `size` bytes with `extents`, as (start, end), in order and without gaps.

    No region is empty. Each extent is a region, so equal extents in two files have equal pieces at any offset.
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
    """Yield the extents of a plan's chunks in the root file, as (start, end)."""
    for number in range(len(plan)):
        yield from plan.chunk(number)[3].extents(0, LEAST)
