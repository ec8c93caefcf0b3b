"""Views as streams: a rope over stored objects, read batch by batch."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass

from protoslice import _core
from protoslice.errors import LimitExceeded
from protoslice.storage import Span
from protoslice.stores.computed import Readable
from protoslice.stores.objects import BLOCK

__all__ = ["Representation"]

PIECE = 1 << 20
"""About as much as is read and sent at a time."""

Extent = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Representation:
    """One representation of something in a store: its length, its validators, and its bytes by range."""

    rope: _core.Rope
    sources: Sequence[Readable]
    etag: str
    filename: str
    kind: str = "file"
    sha256: bytes | None = None
    message_type: str | None = None
    media_type: str = "application/octet-stream"
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """What else an answer says of it."""

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return self.rope.size

    async def pieces(self, start: int, end: int) -> AsyncGenerator[bytes | memoryview, None]:
        """The bytes from `start` up to `end`, verified, in pieces of about a mebibyte."""
        for batch in _batches(self.rope, self.sources, start, end):
            yield await _read(batch, self.sources)

    def at_hand(self, start: int, end: int) -> bytes | memoryview | None:
        """The bytes from `start` up to `end`, verified, if they lie together and can be had without waiting."""
        pieces = self.rope.slice(start, end).pieces()
        if len(pieces) != 1:
            return None
        (piece,) = pieces
        return piece if isinstance(piece, bytes) else self.sources[piece[0]].at_hand(piece[1], piece[2])

    async def read(self, limit: int) -> bytes:
        """All its bytes; `LimitExceeded` when there are more than `limit`."""
        if self.size > limit:
            raise LimitExceeded(f"this has {self.size} bytes, and at most {limit} are rendered: ask for a part of it")
        return b"".join([piece async for piece in self.pieces(0, self.size)])


def _batches(rope: _core.Rope, sources: Sequence[Readable], start: int, end: int) -> Iterator[list[bytes | Extent]]:
    """The pieces of the rope in batches, which end where a block of the source does: so none is read twice."""
    end = min(end, rope.size)
    while start < end:
        stop = min(start + PIECE, end)
        pieces = rope.slice(start, stop).pieces()
        last = pieces[-1]
        if stop < end and not isinstance(last, bytes):
            source, offset, length = last
            block, block_end = sources[source].covering((offset + length - 1, offset + length))
            excess = offset + length - block
            if offset + length < block_end and excess < length:
                pieces[-1] = (source, offset, length - excess)
                stop -= excess
        yield pieces
        start = stop


async def _read(batch: list[bytes | Extent], sources: Sequence[Readable]) -> bytes | memoryview:
    """The bytes of a batch: near extents of a source are read together."""
    wanted: dict[int, list[Span]] = {}
    for piece in batch:
        if not isinstance(piece, bytes):
            source, offset, length = piece
            _widen(wanted.setdefault(source, []), sources[source].covering((offset, offset + length)))
    found = {source: await sources[source].fetch(spans) for source, spans in wanted.items()}
    parts = [piece if isinstance(piece, bytes) else _cut(piece, wanted[piece[0]], found[piece[0]]) for piece in batch]
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _widen(spans: list[Span], span: Span) -> None:
    """Add `span`, joined with the one before where they touch or nearly do."""
    if spans and spans[-1][0] <= span[0] <= spans[-1][1] + BLOCK:
        spans[-1] = (spans[-1][0], max(spans[-1][1], span[1]))
    else:
        spans.append(span)


def _cut(extent: Extent, spans: Sequence[Span], found: Sequence[bytes]) -> memoryview:
    _, offset, length = extent
    for (start, end), data in zip(spans, found, strict=True):
        if start <= offset and offset + length <= end:
            return memoryview(data)[offset - start : offset - start + length]
    raise AssertionError("an extent lies outside of what was read for it")  # pragma: no cover
