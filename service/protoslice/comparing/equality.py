"""Functions that find out whether bytes of two models are equal.

If the digests of pieces are known, the digests are compared. Otherwise, the bytes are read.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Final, TypeVar

from protoslice._core import Computed
from protoslice.concurrency import Job
from protoslice.facts import Piece
from protoslice.sources.ropes import Rope
from protoslice.sources.source import RangeSource
from protoslice.tensors.layout import check_budget

CHEAP: Final = 64 << 10
"""Number of bytes that are cheap to read, even from a service. Longer parts are compared by digests if possible."""

_READ_AT_ONCE: Final = 4 << 20
"""Maximum number of bytes of each side in one read.

Fewer reads are faster, because each read of a distant storage is slow.
"""

T = TypeVar("T")
Extent = tuple[RangeSource, int]
"""The beginning of an extent (a range of a source): the source, and an offset in it."""
Ranges = list[tuple[int, int]]
"""Byte ranges, each with offset and length."""
Unverified = Callable[[Extent, Extent, int], Ranges | None]
"""A function that compares two extents of one length by digests.

The function returns the ranges for which no digests can be compared, or None if the extents differ.
"""


class Equality:
    """A comparison of the bytes of two models. It reports its progress and remembers the results for long ranges."""

    def __init__(self, unverified: Unverified, advance: Callable[[int], object], *, local: bool, stored: int) -> None:
        """Create the comparison.

        `stored` is the number of bytes of both models, which bounds the number of bytes that the comparison may read.
        """
        self._stored = stored
        self._unverified = unverified
        self._advance = advance
        self.is_local = local
        """True if no bytes are fetched from a service. Then reads cost only time."""
        self.read = 0
        """Number of bytes of both sides that have been read."""
        self.confirmed = 0
        """Number of bytes of one side that were read and were equal. With digests, these reads would be unnecessary."""
        self._sliced = 0
        """Number of bytes compared in the current slice of work."""
        self._seen: dict[tuple[object, ...], bool] = {}
        self._equal: dict[tuple[RangeSource, RangeSource, int], tuple[int, int]] = {}
        """For two sources, a range of the first source whose bytes were read, and equal bytes of the second source.

        The key has both sources, and the difference between the offsets of equal bytes.
        """

    def equal(self, one: Rope, other: Rope) -> Job[bool]:
        """Return True if both ropes have the same bytes. Bytes whose digests are unknown are read."""
        key = _key(one, other)
        if key is None:
            return (yield from self._compare(one, other))
        if key not in self._seen:
            self._seen[key] = yield from self._compare(one, other)  # avoid reading long ropes twice
        return self._seen[key]

    def equal_if_cheap(self, one: Rope, other: Rope) -> Job[bool | None]:
        """Return True if both ropes have the same bytes, and False otherwise, if digests or a cheap read can decide.

        Return None if an expensive read would be necessary.
        """
        if one.size != other.size:
            return False
        if one.size <= CHEAP:
            return (yield from self.equal(one, other))
        left = self._left_open(one, other)
        return False if left is None else True if not left else None

    def _compare(self, one: Rope, other: Rope) -> Job[bool]:
        if one.size != other.size:
            return False
        left = self._left_open(one, other)
        if left is None:
            return False
        self._advance(one.size - sum(length for _, length in left))
        extents = _only_extent(one), _only_extent(other)
        for start, length in left:
            for at in range(start, start + length, _READ_AT_ONCE):
                many = min(_READ_AT_ONCE, start + length - at)
                self.read += 2 * many
                check_budget(self.read, self._stored, "compare tensors one by one")
                if one.read(at, many) != other.read(at, many):
                    return False
                self._advance(many)
                self.confirmed += many
                if extents[0] is not None and extents[1] is not None:
                    self._remember(extents[0], extents[1], at, many)
                self._sliced += many
                if self._sliced >= _READ_AT_ONCE:
                    self._sliced = 0
                    yield
        return True

    def _left_open(self, one: Rope, other: Rope) -> Ranges | None:
        """Compare as much as possible without reading; return the ranges that have to be read.

        Return None if the bytes differ.
        """
        left: Ranges = []
        for at, length, before, after in side_by_side(_steps(one), _steps(other), _behind):
            if isinstance(before, bytes) and isinstance(after, bytes):
                if before[:length] != after[:length]:
                    return None
            elif isinstance(before, bytes) or isinstance(after, bytes):
                left.append((at, length))
            elif not self._is_known(before, after, length):
                ranges = self._unverified(before, after, length)
                if ranges is None:
                    return None
                left += [(at + start, many) for start, many in ranges]
        return left

    def _remember(self, one: Extent, other: Extent, at: int, many: int) -> None:
        """Remember a range with equal bytes, so that tensors within the range need not be read again."""
        key, start = (one[0], other[0], one[1] - other[1]), one[1] + at
        low, high = self._equal.get(key, (start, start))
        if start == high:
            self._equal[key] = low, high + many

    def _is_known(self, one: Extent, other: Extent, length: int) -> bool:
        """Return True if both extents are identical, or are within a range that was read and is equal."""
        if one[0] is other[0] and one[1] == other[1]:
            return True
        low, high = self._equal.get((one[0], other[0], one[1] - other[1]), (0, 0))
        return low <= one[1] and one[1] + length <= high


def _only_extent(bytes_: Rope) -> Extent | None:
    """Return the beginning of the only extent of a rope.

    Return None if the rope has not exactly one part, if its bytes are in memory, or if its elements are computed.
    """
    pieces = list(_steps(bytes_)) if bytes_.core.piece_count == 1 else []
    only = pieces[0][0] if pieces else b""
    return None if isinstance(only, bytes) or _is_computed(only) else only


def _key(one: Rope, other: Rope) -> tuple[object, ...] | None:
    """Return the key under which a result is remembered, or None for a result that is not remembered.

    Results for short ropes, ropes of many extents and computed elements are not remembered. The key refers to the
    sources themselves. With `id(source)` in the key, a later source could be confused with a deleted source.
    """
    if one.size < CHEAP or one.core.piece_count + other.core.piece_count > 8:
        return None
    steps = [*_steps(one), *_steps(other)]
    return None if any(_is_computed(what) for what, _ in steps) else tuple(steps)


def _is_computed(what: bytes | Extent) -> bool:
    """Return True for computed elements. Their source belongs to a single tensor, so a result is never used again."""
    return not isinstance(what, bytes) and isinstance(what[0], Computed)


def _steps(bytes_: Rope) -> Iterator[tuple[bytes | Extent, int]]:
    for piece in bytes_.core.pieces():
        if isinstance(piece, bytes):
            yield piece, len(piece)
        else:
            yield (bytes_.sources[piece[0]], piece[1]), piece[2]


def _behind(what: bytes | Extent, length: int) -> bytes | Extent:
    return what[length:] if isinstance(what, bytes) else (what[0], what[1] + length)


def side_by_side(
    one: Iterable[tuple[T, int]], other: Iterable[tuple[T, int]], behind: Callable[[T, int], T]
) -> Iterator[tuple[int, int, T, T]]:
    """Yield the common segments of two sides, each with its offset, its length, and the extents of both sides.

    Each side is a sequence of extents with their lengths. A segment ends wherever an extent of either side ends.
    `behind` returns the rest of an extent after a number of bytes.
    """
    at, sides = 0, (iter(one), iter(other))
    now, twin = (next(side, None) for side in sides)
    while now is not None and twin is not None:
        length = min(now[1], twin[1])
        yield at, length, now[0], twin[0]
        at += length
        now, twin = (
            (behind(what, length), left - length) if left > length else next(side, None)
            for side, (what, left) in zip(sides, (now, twin), strict=True)
        )


class PieceList:
    """The pieces that cover one file, in order. Each piece takes 48 bytes of memory."""

    def __init__(self, pieces: Iterable[Piece]) -> None:
        self._file, self._starts, self._sizes, self._digests = "", array("Q"), array("Q"), bytearray()
        for piece in sorted(pieces, key=attrgetter("offset")):
            self._file = piece.file
            self._starts.append(piece.offset)
            self._sizes.append(piece.size)
            self._digests += bytes.fromhex(piece.sha256)

    def __iter__(self) -> Iterator[Piece]:
        return map(self._piece, range(len(self._starts)))

    def within(self, start: int, end: int) -> Iterator[Piece]:
        """Yield the pieces that overlap the bytes from `start` up to `end`."""
        at = max(0, bisect_right(self._starts, start) - 1)
        while at < len(self._starts) and self._starts[at] < end:
            if self._starts[at] + self._sizes[at] > start:
                yield self._piece(at)
            at += 1

    def at(self, start: int) -> Piece | None:
        """Return the piece that begins at offset `start`, or None if no piece begins there."""
        at = bisect_right(self._starts, start) - 1
        return self._piece(at) if at >= 0 and self._starts[at] == start else None

    def _piece(self, number: int) -> Piece:
        digest = self._digests[32 * number : 32 * number + 32]
        return Piece(self._file, self._starts[number], self._sizes[number], digest.hex())


Pieces = Callable[[RangeSource], PieceList | None]
"""A function that returns the pieces of a file, or None if they are unknown."""


def unverified_by(before: Pieces, after: Pieces) -> Unverified:
    """Return a function that compares extents of two models by the digests of their pieces."""

    def unverified(one: Extent, other: Extent, length: int) -> Ranges | None:
        (source, start), (twin_source, begin) = one, other
        cuts, others = before(source), after(twin_source)
        if cuts is None or others is None:
            return [(0, length)]
        left = []
        for piece in cuts.within(start, start + length):
            twin = others.at(piece.offset + begin - start)
            first, last = max(piece.offset, start), min(piece.end, start + length)
            if twin is not None and twin.size == piece.size:
                if twin.sha256 == piece.sha256:
                    continue
                if last - first == piece.size:
                    return None
            left.append((first - start, last - first))
        return left

    return unverified
