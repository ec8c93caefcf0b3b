"""Where files are cut to be compared: along what lies in them, so that an insertion moves what follows unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from protoslice import _core

__all__ = ["PIECE_BLOCK", "cut", "extents_of"]

PIECE_BLOCK: Final = 4 << 20
"""The longest piece."""
LEAST: Final = 64 << 10
"""Extents shorter than this are no places to cut at."""

Span = tuple[int, int]


def cut(size: int, extents: Iterable[Span] = ()) -> Iterator[Span]:
    """The pieces, as start and end, of a file of `size` bytes in which `extents` lie: they cover it in order.

    Each extent, and each gap between two, is cut anew from its own start: what lies the same in two files has the same
    pieces there, wherever it stands.
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
    """Where the chunks of a plan lie in the root file, as start and end."""
    for number in range(len(plan)):
        yield from plan.chunk(number)[3].extents(0, LEAST)


def _blocks(start: int, end: int) -> Iterator[Span]:
    for at in range(start, end, PIECE_BLOCK):
        yield at, min(at + PIECE_BLOCK, end)
