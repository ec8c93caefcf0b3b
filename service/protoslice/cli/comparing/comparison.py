"""Equality of bytes of two models: told by digests of pieces, else by reading."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from protoslice.cli.terminal.progress import Progress
from protoslice.formats.bytes import Bytes
from protoslice.sources.ropes import PIECE, Rope
from protoslice.sources.source import RangeSource

CHEAP: Final = 64 << 10
"""Bytes that are cheap to read, even from a service; longer parts are compared by digests if possible."""

Extent = tuple[RangeSource, int]
"""First byte of an extent: a source, and the offset in it."""


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


class Comparison:
    """Comparison of bytes of two models; long results are remembered, compared bytes count as progress."""

    def __init__(self, before: Pieces, after: Pieces, progress: Progress, *, local: bool) -> None:
        self._pieces = before, after
        self._progress = progress
        self._local = local  # True when reading costs time only, nothing is fetched
        self._seen: dict[tuple[object, ...], bool] = {}

    def same(self, one: Bytes, other: Bytes) -> bool:
        """True if both are the same bytes; bytes that no digest tells about are read."""
        key = _key(one, other)
        if key is None:
            return self._same(one, other)
        if key not in self._seen:
            self._seen[key] = self._same(one, other)  # long bytes are read only once
        return self._seen[key]

    def known_same(self, one: Bytes, other: Bytes) -> bool | None:
        """True or False when digests or a cheap read decide; None when only a costly read would."""
        if one.size != other.size:
            return False
        if one.size <= CHEAP:
            return self.same(one, other)
        left = self._left_open(one, other)
        return False if left is None else True if not left else None

    def alike(self, one: Bytes, other: Bytes) -> bool:
        """True if both are known to be equal; reads everything only where reading costs nothing but time."""
        return self.same(one, other) if self._local else bool(self.known_same(one, other))

    def _same(self, one: Bytes, other: Bytes) -> bool:
        if one.size != other.size:
            return False
        left = self._left_open(one, other)
        if left is None:
            return False
        before, after = (Rope(each.rope, each.sources) for each in (one, other))
        self._progress.advance(one.size - sum(length for _, length in left))
        for start, length in left:
            for at in range(start, start + length, PIECE):
                many = min(PIECE, start + length - at)
                if before.read(at, many) != after.read(at, many):
                    return False
                self._progress.advance(many)
        return True

    def _left_open(self, one: Bytes, other: Bytes) -> list[tuple[int, int]] | None:
        """Stretches, as offset and length, to be read before anything is known; None if both differ."""
        left: list[tuple[int, int]] = []
        for at, length, before, after in _side_by_side(one, other):
            if isinstance(before, bytes) and isinstance(after, bytes):
                if before != after:
                    return None
            elif isinstance(before, bytes) or isinstance(after, bytes):
                left.append((at, length))
            else:
                stretches = self._unknown(before, after, length)
                if stretches is None:
                    return None
                left += [(at + start, many) for start, many in stretches]
        return left

    def _unknown(self, before: Extent, after: Extent, length: int) -> list[tuple[int, int]] | None:
        """Ranges, as offset and length, that the pieces of both files do not decide; None if pieces differ."""
        (source, start), (other, begin) = before, after
        if source is other and start == begin:
            return []
        cuts, others = self._pieces[0](source), self._pieces[1](other)
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


def _key(one: Bytes, other: Bytes) -> tuple[object, ...] | None:
    """Key under which a result is remembered; None for bytes that are short or in many extents."""
    if one.size < CHEAP or one.rope.piece_count + other.rope.piece_count > 8:
        return None
    return tuple(
        piece if isinstance(piece, bytes) else (id(each.sources[piece[0]]), *piece[1:])
        for each in (one, other)
        for piece in each.rope.pieces()
    )


def _side_by_side(one: Bytes, other: Bytes) -> Iterator[tuple[int, int, bytes | Extent, bytes | Extent]]:
    """Both ropes, cut at the borders of either: offset, length, and each side's literal or first byte."""
    at, steps = 0, [_steps(one), _steps(other)]
    now = [next(each, None) for each in steps]
    while now[0] is not None and now[1] is not None:
        length = min(now[0][1], now[1][1])
        yield at, length, _first(now[0], length), _first(now[1], length)
        at += length
        now = [
            _rest(each, length) if each is not None and each[1] > length else next(more, None)
            for each, more in zip(now, steps, strict=True)
        ]


Step = tuple[bytes | Extent, int]
"""Literal bytes or the first byte of an extent, and the length."""


def _steps(bytes_: Bytes) -> Iterator[Step]:
    for piece in bytes_.rope.pieces():
        if isinstance(piece, bytes):
            yield piece, len(piece)
        else:
            yield (bytes_.sources[piece[0]], piece[1]), piece[2]


def _first(step: Step, length: int) -> bytes | Extent:
    return step[0][:length] if isinstance(step[0], bytes) else step[0]


def _rest(step: Step, length: int) -> Step:
    what, size = step
    if isinstance(what, bytes):
        return what[length:], size - length
    return (what[0], what[1] + length), size - length
