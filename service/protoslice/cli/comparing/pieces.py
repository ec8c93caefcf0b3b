"""Pieces of files that are compared: equal ones are told by their SHA-256."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter

from protoslice.comparing.equality import Extent, Stretches, Undecided
from protoslice.sources.source import RangeSource


@dataclass(frozen=True, slots=True)
class ComparedPiece:
    """Some bytes of a file, and their sha-256."""

    start: int
    size: int
    sha256: str


class PieceList:
    """The pieces that cover a file, in order."""

    def __init__(self, pieces: Iterable[ComparedPiece]) -> None:
        self._pieces = sorted(pieces, key=attrgetter("start"))
        self._starts = [piece.start for piece in self._pieces]
        self._by_start = {piece.start: piece for piece in self._pieces}

    def __iter__(self) -> Iterator[ComparedPiece]:
        return iter(self._pieces)

    def within(self, start: int, end: int) -> Iterator[ComparedPiece]:
        """Pieces that the bytes from `start` up to `end` lie in."""
        at = max(0, bisect_right(self._starts, start) - 1)
        while at < len(self._pieces) and self._pieces[at].start < end:
            if self._pieces[at].start + self._pieces[at].size > start:
                yield self._pieces[at]
            at += 1

    def at(self, start: int) -> ComparedPiece | None:
        """The piece that begins at `start`, or None."""
        return self._by_start.get(start)


Pieces = Callable[[RangeSource], PieceList | None]
"""Looks up the pieces of a file; None for a file whose pieces are not known."""


def undecided_by(before: Pieces, after: Pieces) -> Undecided:
    """The comparison of extents of two sides by their pieces."""

    def undecided(one: Extent, other: Extent, length: int) -> Stretches | None:
        (source, start), (twin_source, begin) = one, other
        cuts, others = before(source), after(twin_source)
        if cuts is None or others is None:
            return [(0, length)]
        left = []
        for piece in cuts.within(start, start + length):
            twin = others.at(piece.start + begin - start)
            first, last = max(piece.start, start), min(piece.start + piece.size, start + length)
            if twin is not None and twin.size == piece.size:
                if twin.sha256 == piece.sha256:
                    continue
                if last - first == piece.size:
                    return None
            left.append((first - start, last - first))
        return left

    return undecided
