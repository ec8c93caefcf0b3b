"""Places of a file's pieces in a local file into or out of which bytes were moved.

Only the digest of local bytes tells if they are a piece: so places are guessed, and their bytes digested.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from protoslice.comparing.equality import PieceList
from protoslice.facts import Piece
from protoslice.sources.source import RangeSource

FETCHED_BLOCK: Final = 16 << 10
"""Bytes fetched at a time from a piece."""
WINDOW: Final = 8 << 20
"""Bytes searched on each side of the expected beginning of a piece."""
MISSES: Final = 4
"""Consecutive pieces that may be searched for in vain; later ones are not searched for."""

Fetch: TypeAlias = Callable[[Piece, int], bytes]
"""Fetches a block of a piece, by its number."""
LocalPlace: TypeAlias = tuple[RangeSource, int]
"""First byte of a piece: a source, and the offset in it."""


@dataclass(frozen=True, slots=True)
class Local:
    """A file at hand, and the pieces that it has by itself."""

    file: RangeSource
    cuts: PieceList

    def has(self, piece: Piece, start: int) -> bool:
        """True if the piece lies at `start`."""
        if not 0 <= start <= self.file.size - piece.size:
            return False
        own = self.cuts.at(start)
        if own is not None and own.size == piece.size:
            return own.sha256 == piece.sha256
        return hashlib.sha256(self.file.read(start, piece.size)).hexdigest() == piece.sha256

    def near(self, wanted: bytes, start: int) -> Iterator[int]:
        """Places of `wanted` near `start`, two at most."""
        begin, end = max(0, start - WINDOW), min(self.file.size, start + WINDOW)
        data = self.file.read(begin, max(0, end - begin))
        at = -1
        for _ in range(2):
            if (at := data.find(wanted, at + 1)) < 0:
                return
            yield begin + at

    def same(self, data: bytes, start: int) -> bool:
        """True if `data` stands at `start`."""
        return 0 <= start <= self.file.size - len(data) and self.file.read(start, len(data)) == data


def places_in(local: Local, pieces: Sequence[Piece], fetch: Fetch) -> Iterator[tuple[Piece, LocalPlace]]:
    """Places of the `pieces`, which cover a file in order, in the `local` file, as far as they are there.

    A piece that changed inside is spliced: local bytes on both sides of the change, and fetched ones between.
    """
    behind = local.file.size - sum(piece.size for piece in pieces)
    starts = [*_starts(local, pieces, fetch, behind), _Start(behind, False)]
    for piece, start, then in zip(pieces, starts, starts[1:], strict=False):
        if start.whole:
            yield piece, (local.file, piece.offset + start.shift)
        elif start.shift != then.shift and (spliced := _spliced(local, piece, (start.shift, then.shift), fetch)):
            yield piece, (spliced, 0)


@dataclass(frozen=True, slots=True)
class _Start:
    """Shift in bytes of a piece's beginning, and True if the whole piece is shifted by it."""

    shift: int
    whole: bool


def _starts(local: Local, pieces: Iterable[Piece], fetch: Fetch, behind: int) -> Iterator[_Start]:
    """Yields the shift of each piece: like the piece before, like the file's end, or found by first block."""
    shift = misses = 0
    for piece in pieces:
        whole = _first(local, piece, (piece.offset + each for each in dict.fromkeys((shift, behind))))
        begin = whole
        if whole is None and misses < MISSES and piece.size > FETCHED_BLOCK:
            seen = [*local.near(fetch(piece, 0), piece.offset + shift)]
            whole = _first(local, piece, seen)
            begin = next(iter(seen), None) if whole is None else whole
            misses += 1
        if begin is not None:
            shift, misses = begin - piece.offset, 0
        yield _Start(shift, whole is not None)


def _first(local: Local, piece: Piece, places: Iterable[int]) -> int | None:
    return next((place for place in places if local.has(piece, place)), None)


def _spliced(local: Local, piece: Piece, shifts: tuple[int, int], fetch: Fetch) -> RangeSource | None:
    """Source of a piece whose ends lie in the local file, shifted differently; None if they do not."""
    before, after = (piece.offset + shift for shift in shifts)
    blocks = range(-(-piece.size // FETCHED_BLOCK))

    def stands(block: int, begin: int) -> bool:
        return local.same(fetch(piece, block), begin + block * FETCHED_BLOCK)

    # With one change in the piece, the blocks that stand shifted as its beginning come first, then the changed ones,
    # then those that stand shifted as its end: so halving finds each border, and fetches few blocks. After more
    # changes a border found may be wrong, which the digest of the whole tells.
    first = bisect_left(blocks, True, key=lambda block: not stands(block, before))
    last = bisect_left(blocks, True, lo=first, key=lambda block: stands(block, after))
    if (last - first) * FETCHED_BLOCK > piece.size // 4:
        return None
    middle = b"".join(fetch(piece, block) for block in blocks[first:last])
    spliced = _Spliced(piece.size, local.file, before, (first * FETCHED_BLOCK, middle), after)
    return spliced if hashlib.sha256(spliced.read(0, piece.size)).hexdigest() == piece.sha256 else None


@dataclass(frozen=True, slots=True)
class _Spliced:
    """Bytes that lie in a file but for some in their middle, behind which they lie elsewhere in it."""

    size: int
    file: RangeSource
    before: int
    middle: tuple[int, bytes]
    after: int

    def read(self, offset: int, length: int, /) -> bytes:
        start, data = self.middle
        end, stop = start + len(data), offset + length
        head = self.file.read(self.before + offset, max(0, min(stop, start) - offset)) if offset < start else b""
        tail = self.file.read(self.after + max(offset, end), stop - max(offset, end)) if stop > end else b""
        return head + data[max(0, offset - start) : max(0, stop - start)] + tail
