"""Evidence that stored bytes are equal: shared extents, digests of pieces, checksums of blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from protoslice.comparing.equality import Extent, PieceList, Ranges, Unverified, side_by_side, unverified_by
from protoslice.sources.source import RangeSource
from protoslice.stores.objects.joined import JoinedObject
from protoslice.stores.objects.stored import SUM_BLOCK, StoredObject

PieceLists = Mapping[int, PieceList]
"""Pieces of open files, by the `id` of the file."""
Pair = tuple[int, int, tuple[StoredObject, int], tuple[StoredObject, int]]
"""Offset and length of a range, and of either side an object and the offset in it."""
_MARK: Final = b"\x01"


class ByteEvidence:
    """Evidence on the bytes of two stores, which leaves some ranges unverified."""

    def __init__(self, pieces: PieceLists, *, checksums: bool) -> None:
        """`checksums`: blocks of equal checksums count as equal, which is likely and no proof."""

        def listed(source: RangeSource) -> PieceList | None:
            return pieces.get(id(source))

        self._by_pieces = unverified_by(listed, listed) if pieces else None
        self._by_checksums = self._assuming if checksums else None
        self._assumed: dict[StoredObject, bytearray] = {}

    @property
    def assumed(self) -> int:
        """Bytes of the blocks that counted as equal for their checksums alone."""
        return sum(min(SUM_BLOCK * sum(marks), stored.size) for stored, marks in self._assumed.items())

    def unverified(self, one: Extent, other: Extent, length: int) -> Ranges | None:
        """Ranges of two extents that must be read; None for extents that differ."""
        left = _by_extents(one, other, length)
        for narrowing in filter(None, (self._by_pieces, self._by_checksums)):
            if left:
                left = _narrowed(left, one, other, narrowing)
        return left

    def _assuming(self, one: Extent, other: Extent, length: int) -> Ranges:
        """Ranges outside of blocks of equal checksums; these are noted."""
        pairs = _pairs(one, other, length)
        left: Ranges = [(0, length)] if pairs is None else []
        for at, many, (stored, low), (twin, twin_low) in pairs or ():
            start, end = stored.alike(low, twin, twin_low, many)
            left += [(at, start - low), (at + end - low, low + many - end)]
            marks = self._assumed.setdefault(stored, bytearray(-(-stored.size // SUM_BLOCK)))
            blocks = slice(start // SUM_BLOCK, -(-end // SUM_BLOCK)) if start < end else slice(0, 0)
            marks[blocks] = _MARK * (blocks.stop - blocks.start)
        return [(at, many) for at, many in left if many]


def _by_extents(one: Extent, other: Extent, length: int) -> Ranges | None:
    """Ranges that are neither one stored extent nor proven to differ by the checksums of blocks."""
    pairs = _pairs(one, other, length)
    left: Ranges = [(0, length)] if pairs is None else []
    for at, many, (stored, low), (twin, twin_low) in pairs or ():
        same = stored.is_same(low, twin, twin_low, many)
        if same is False:
            return None
        if same is None:
            left.append((at, many))
    return left


def _narrowed(ranges: Ranges, one: Extent, other: Extent, unverified: Unverified) -> Ranges | None:
    """Ranges that `unverified` leaves of others; None for extents that differ."""
    left: Ranges = []
    for at, many in ranges:
        found = unverified((one[0], one[1] + at), (other[0], other[1] + at), many)
        if found is None:
            return None
        left += [(at + start, length) for start, length in found]
    return left


def _pairs(one: Extent, other: Extent, length: int) -> Iterator[Pair] | None:
    """Ranges that are one object on either side, in order; None for sources that are not stored."""
    (before, start), (after, begin) = one, other
    if not isinstance(before, StoredObject | JoinedObject) or not isinstance(after, StoredObject | JoinedObject):
        return None
    ours, theirs = before.extents(start, start + length), after.extents(begin, begin + length)
    return side_by_side(_steps(ours), _steps(theirs), lambda place, by: (place[0], place[1] + by))


def _steps(extents: Iterable[tuple[StoredObject, int, int]]) -> Iterator[tuple[tuple[StoredObject, int], int]]:
    return (((stored, low), high - low) for stored, low, high in extents)
