"""Pieces of files: the unit by which pushes and pulls compare files.

Cuts follow the content, so that an insertion moves the pieces behind it and does not change them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from protoslice import _core

PIECE_BLOCK: Final = 4 << 20
"""Size of the longest piece in bytes."""
LEAST: Final = 64 << 10
"""Extents shorter than this, in bytes, make no cuts."""

Span = tuple[int, int]


def cut(size: int, extents: Iterable[Span] = ()) -> Iterator[Span]:
    """Pieces of a file of `size` bytes with `extents`, as (start, end), in order and without gaps.

    Each extent, and each gap between two, is cut from its own start, so equal content in two files has equal pieces at
    any offset.
    """
    at = 0
    for start, end in sorted(extents):
        if start < at or end > size or end - start < LEAST:
            continue
        yield from _blocks(at, start)
        yield from _blocks(start, end)
        at = end
    yield from _blocks(at, size)


def extents_of(plan: _core.Plan) -> Iterator[Span]:
    """Extents of a plan's chunks in the root file, as (start, end)."""
    for number in range(len(plan)):
        yield from plan.chunk(number)[3].extents(0, LEAST)


def _blocks(start: int, end: int) -> Iterator[Span]:
    for at in range(start, end, PIECE_BLOCK):
        yield at, min(at + PIECE_BLOCK, end)
