"""Representations: ropes over stored objects, which are streamed in batches."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, nullcontext
from dataclasses import dataclass
from functools import partial
from hashlib import sha256

from protoslice import _core
from protoslice.concurrency.executor import Worker
from protoslice.concurrency.pipeline import pipelined
from protoslice.concurrency.windows import LARGEST, Window
from protoslice.errors import LimitExceeded
from protoslice.serving.joined import Section, read_sections
from protoslice.serving.stored import SUM_BLOCK, Computed, Readable
from protoslice.tensors.layout import check_budget
from protoslice.tensors.omitted import Omitted

_PIECES = 1 << 15
_SPANS = 32
_COVERED = 2
"""The limits of a batch: pieces of the rope, spans of sources, and bytes of spans per byte of the batch.

Each span may read up to two additional blocks.
"""

_LONG = 2 << 20
"""The number of bytes from which an extent is read as a separate stream. Shorter extents do not justify a request."""
_AHEAD = 2
"""The number of reads of a remote storage that start before their turn."""


@dataclass(frozen=True, slots=True)
class Head:
    """The facts about a view without its bytes. The size and digest of a text are known only after the text is made."""

    etag: str
    filename: str
    media_type: str
    message_type: str | None = None
    size: int = 0
    sha256: bytes | None = None
    elements: None = None
    omitted: Omitted | None = None


@dataclass(frozen=True, slots=True)
class Representation:
    """A view of a store, ready to be served: its length, its validators, and its bytes by range."""

    rope: _core.Rope
    sources: Sequence[Readable]
    etag: str
    filename: str
    kind: str = "file"
    sha256: bytes | None = None
    message_type: str | None = None
    media_type: str = "application/octet-stream"
    elements: tuple[str, tuple[int, ...]] | None = None
    """For a tensor, its element type and shape; else None."""
    omitted: Omitted | None = None
    """The tensors that the view leaves out, or None."""
    versioned: bool = False
    """True when a later version of the program may return other bytes for the same request, with another entity tag."""
    descriptor_set: bytes | None = None
    """The descriptor set of `message_type`; None if the type is bundled or is the root's type."""

    @classmethod
    def of_bytes(cls, data: bytes, head: Head, digest: bytes | None = None) -> Representation:
        """Return a representation of bytes in memory; `digest` is their SHA-256 if the caller knows it."""
        return cls(
            _core.Rope([data]),
            (),
            head.etag,
            head.filename,
            sha256=digest or sha256(data).digest(),
            message_type=head.message_type,
            media_type=head.media_type,
            omitted=head.omitted,
        )

    @property
    def size(self) -> int:
        """The length in bytes."""
        return self.rope.size

    @property
    def head(self) -> Head:
        """The facts about the view, without its bytes."""
        return Head(
            self.etag, self.filename, self.media_type, self.message_type, self.size, self.sha256, None, self.omitted
        )

    def check_budget(self, length: int) -> None:
        """Raise `OverBudget` if serving `length` bytes takes more computation than one request may cause."""
        computed = [source for source in self.sources if isinstance(source, Computed)]
        if computed:
            plain = max(0, self.size - sum(source.size for source in computed))
            stored = plain + sum(source.stored for source in computed)
            check_budget(length, stored, "ask for a slice, for fewer tensors, or for a range of bytes")

    async def pieces(
        self, start: int, end: int, window: Window | None = None
    ) -> AsyncGenerator[bytes | memoryview, None]:
        """Yield the verified bytes from `start` to `end`.

        Each piece is as large as `window` allows; if `window` is None, it has 1 MiB.
        """
        end = min(end, self.size)
        near = all(source.is_near for source in self.sources[:1])  # all sources of a store are in one storage
        if not near and end - start > LARGEST and (window is None or window.is_wide):
            # The window reserves memory for the read-ahead first, so few of many simultaneous readers get streams.
            with window.hold(near=near) if window is not None else nullcontext():
                async with aclosing(pipelined(self._parts(start, end), ahead=_AHEAD)) as pieces:
                    async for piece in pieces:
                        with window.hold(near=near) if window is not None else nullcontext():
                            yield piece
            return
        while start < end:
            with window.hold(near=near) if window is not None else nullcontext(LARGEST) as size:
                batch = _batch(self.rope, self.sources, start, end, size)
                yield (await read_sections(self.rope, self.sources, [batch]))[0]
            start = batch.stop

    def _parts(self, start: int, end: int) -> Iterator[Callable[[], AsyncGenerator[bytes | memoryview, None]]]:
        """Yield the reads of a span, in order: a stream for each long extent, and batches for the rest."""
        while start < end:
            piece = self.rope.piece_at(start)
            if isinstance(piece, tuple) and min(piece[2], end - start) >= _LONG:
                source, offset, length = piece
                length = min(length, end - start)
                yield partial(self.sources[source].stream, offset, offset + length)
                start += length
            else:
                batch = _batch(self.rope, self.sources, start, end, LARGEST)
                yield partial(_one, self.rope, self.sources, batch)
                start = batch.stop

    def read_cached(self, start: int, end: int) -> bytes | memoryview | None:
        """Return the verified bytes from `start` to `end` if one piece has them and no read must wait; else None."""
        rope = self.rope.slice(start, end)
        if rope.piece_count != 1:
            return None
        (piece,) = rope.pieces()
        return piece if isinstance(piece, bytes) else self.sources[piece[0]].read_cached(piece[1], piece[2])

    async def read(self, limit: int) -> bytes:
        """Return all bytes; raise `LimitExceeded` when there are more than `limit`."""
        if self.size > limit:
            raise LimitExceeded(f"The message has {self.size} bytes, and at most {limit} are rendered: ask for a part")
        return b"".join([piece async for piece in self.pieces(0, self.size)])


def _batch(rope: _core.Rope, sources: Sequence[Readable], start: int, end: int, size: int) -> Section:
    """Return the next batch of a rope: it begins at `start` and has at most `size` bytes.

    If the batch would end inside a long extent, it ends at a block boundary instead, so that no block is read twice.
    """
    stop, spans = _bounded(rope, start, end, size)
    if stop < end:
        aligned = _aligned(rope, sources, start, stop)
        if aligned < stop:
            stop, spans = _bounded(rope, start, aligned, size)
    return Section(start, stop, spans)


def _bounded(rope: _core.Rope, start: int, stop: int, size: int) -> tuple[int, list[tuple[int, int, int]]]:
    return rope.batch(start, stop, size=size, pieces=_PIECES, spans=_SPANS, covered=_COVERED * size, gap=SUM_BLOCK)


def _aligned(rope: _core.Rope, sources: Sequence[Readable], start: int, stop: int) -> int:
    """Return the position at which the batch's last block begins, if the block continues after the batch.

    Return `stop` if the block ends with the batch, or if its extent does not begin before the block.
    """
    (last,) = rope.slice(stop - 1, stop).pieces()
    if isinstance(last, bytes):
        return stop
    source, offset, _ = last
    block, block_end = sources[source].covering((offset, offset + 1))
    begin = stop - (offset + 1 - block)
    if offset + 1 == block_end or begin <= start or rope.slice(begin - 1, stop).piece_count > 1:
        return stop
    return begin


async def _one(rope: _core.Rope, sources: Sequence[Readable], batch: Section) -> AsyncGenerator[bytes, None]:
    """Yield the batch as a single piece."""
    yield (await read_sections(rope, sources, [batch]))[0]


async def sha256_of(view: Representation, worker: Worker, start: int = 0, end: int | None = None) -> bytes:
    """Return the SHA-256 of the bytes of `view` from `start` to `end`, which defaults to the end of `view`."""
    sha = sha256()
    async with aclosing(view.pieces(start, view.size if end is None else end)) as pieces:
        async for piece in pieces:
            await worker.run_long(lambda piece=piece: sha.update(piece))  # type: ignore[misc]
    return sha.digest()
