"""Pieces of files that are compared: equal ones are told by their SHA-256."""

from __future__ import annotations

from array import array
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
    """The pieces that cover a file, in order: 48 bytes of memory each."""

    def __init__(self, pieces: Iterable[ComparedPiece]) -> None:
        self._starts, self._sizes, self._digests = array("Q"), array("Q"), bytearray()
        for piece in sorted(pieces, key=attrgetter("start")):
            self._starts.append(piece.start)
            self._sizes.append(piece.size)
            self._digests += bytes.fromhex(piece.sha256)

    def __iter__(self) -> Iterator[ComparedPiece]:
        return map(self._piece, range(len(self._starts)))

    def within(self, start: int, end: int) -> Iterator[ComparedPiece]:
        """Pieces that the bytes from `start` up to `end` lie in."""
        at = max(0, bisect_right(self._starts, start) - 1)
        while at < len(self._starts) and self._starts[at] < end:
            if self._starts[at] + self._sizes[at] > start:
                yield self._piece(at)
            at += 1

    def at(self, start: int) -> ComparedPiece | None:
        """The piece that begins at `start`, or None."""
        at = bisect_right(self._starts, start) - 1
        return self._piece(at) if at >= 0 and self._starts[at] == start else None

    def _piece(self, number: int) -> ComparedPiece:
        digest = self._digests[32 * number : 32 * number + 32]
        return ComparedPiece(self._starts[number], self._sizes[number], digest.hex())


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
