"""The plans of a push: which byte ranges of a file are sent, and which ranges the service copies from its stores.

A recipe contains the plans of all files and the bytes to send. The recipe is sent while the files are read. A recipe
that has to survive a broken connection is uploaded as a file instead.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path

from protoslice.client.download.files import Progress
from protoslice.client.http.digests import BackgroundHash
from protoslice.client.upload.bodies import FileStamp, UploadFile
from protoslice.defaults import MAX_CHUNK, MIN_CHUNK
from protoslice.errors import ProtosliceError
from protoslice.library.opening import open_proto
from protoslice.pieces import cut, extents_of
from protoslice.recipes import Copy, RecipeWriter


@dataclass(frozen=True, slots=True)
class LocalBytes:
    """A byte range of the local file, which the push sends."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class FilePlan:
    """The plan for one file."""

    item: UploadFile
    steps: Sequence[LocalBytes | Copy] | None = None
    """The byte ranges of the file, in order, or None for a file of unknown size, which is sent piece by piece."""
    sha256: str | None = None
    """Digest of the file, if the search for known pieces has already computed it, or None otherwise."""

    @classmethod
    def whole(cls, item: UploadFile) -> FilePlan:
        """Return a plan that sends the whole file."""
        if item.size is None:
            return cls(item)
        return cls(item, [LocalBytes(0, item.size)] if item.size else [])

    @property
    def copied(self) -> int:
        """Number of content bytes that the service copies."""
        return sum(step.length for step in self.steps or () if isinstance(step, Copy))

    @property
    def sent(self) -> int | None:
        """Number of content bytes that are sent, or None for a file of unknown size."""
        if self.steps is None:
            return None
        return sum(step.length for step in self.steps if isinstance(step, LocalBytes))


@dataclass(frozen=True, slots=True)
class PieceHashes:
    """A file and the digests of its pieces."""

    item: UploadFile
    pieces: Sequence[tuple[int, int, str]]
    """Offset, length and SHA-256 of each piece."""
    sha256: str | None
    """Digest of the whole file, or None if only the beginning of the file was hashed."""

    def plan(self, places: Mapping[str, Copy]) -> FilePlan:
        """Return a plan that copies the pieces in `places` and sends all other pieces.

        `places` maps digests of pieces to the places in stores that the service can copy from. Adjacent ranges are
        joined.
        """
        if self.sha256 is not None and self.sha256 in places:
            return FilePlan(self.item, [places[self.sha256]], self.sha256)
        steps: list[LocalBytes | Copy] = []
        for offset, length, sha256 in self.pieces:
            step = places.get(sha256) or LocalBytes(offset, length)
            joined = _join(steps[-1], step) if steps else None
            if joined is None:
                steps.append(step)
            else:
                steps[-1] = joined
        return FilePlan(self.item, steps, self.sha256)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitOptions:
    """The options with which the service will split the root into chunks, as far as the client knows them."""

    type: str | None = None
    min_chunk: int = MIN_CHUNK
    max_chunk: int = MAX_CHUNK
    keep: bool = True
    """True if a chunked proto keeps its own chunks."""
    rules: tuple[str, ...] = ()


def hash_pieces(item: UploadFile, options: SplitOptions, *, up_to: int | None = None) -> PieceHashes:
    """Cut a local file into the same pieces as the service would, and hash each piece.

    With `up_to`, only the pieces that cover the first `up_to` bytes are hashed.
    """
    assert item.local is not None
    assert item.size is not None
    pieces = list[tuple[int, int, str]]()
    is_whole = up_to is None or up_to >= item.size

    def digested(offset: int, data: bytes) -> Iterator[bytes]:
        pieces.append((offset, len(data), hashlib.sha256(data).hexdigest()))
        if is_whole:
            yield data

    read = lambda start, end: b"".join(item.read(start, end - start))  # noqa: E731
    with BackgroundHash() as hashing:  # in a thread: to find the cuts takes as long as to hash the pieces
        for offset, data in cut(item.size, _extents(item.local, options), read):
            hashing.update(digested(offset, data))
            if up_to is not None and offset + len(data) >= up_to:
                break
        sha256 = hashing.hexdigest()
    return PieceHashes(item, pieces, sha256 if is_whole else None)


def recipe_of(plans: Sequence[FilePlan], progress: Progress | None) -> Iterator[bytes]:
    """Yield the recipe of a push in pieces, and read and hash the files at the same time."""
    writer, sent = RecipeWriter(), 0
    sizes = [plan.sent for plan in plans]
    total = None if None in sizes else sum(size or 0 for size in sizes)
    for plan in plans:
        yield writer.file(plan.item.path)
        with BackgroundHash() as hashing:
            size = 0
            for piece, is_content in _content(plan, writer):
                if is_content:
                    if plan.sha256 is None:
                        hashing.update((piece,))
                    size, sent = size + len(piece), sent + len(piece)
                yield piece
                if is_content and progress is not None:
                    progress(sent, total)
            whole = plan.item.size if plan.sha256 is not None else size
            yield writer.end(whole or 0, plan.sha256 or hashing.hexdigest())
    yield writer.done()


def recipe_item(plans: Sequence[FilePlan]) -> UploadFile:
    """Return the recipe of a push as a file that can be read from any offset, repeatedly.

    Another process creates the same recipe, and can therefore resume the upload. Files whose digest is unknown are
    hashed first.
    """
    writer, parts = RecipeWriter(), list[bytes | tuple[UploadFile, LocalBytes]]()
    for plan in plans:
        parts.append(writer.file(plan.item.path))
        for step in plan.steps or ():
            parts += [writer.copy(step)] if isinstance(step, Copy) else [writer.literal(step.length), (plan.item, step)]
        parts.append(writer.end(plan.item.size or 0, plan.sha256 or _digest(plan.item)))
    last = writer.done()
    parts.append(last)
    starts = [0, *accumulate(len(part) if isinstance(part, bytes) else part[1].length for part in parts)]
    # The last line of a recipe is a digest of all other lines. The other lines contain the
    # digests of the files, so the last line identifies the content.
    stamp = FileStamp(starts[-1], int.from_bytes(hashlib.sha256(last).digest()[:8]), 0)
    return UploadFile("", starts[-1], partial(_read_parts, parts, starts), stamp=stamp)


def _read_parts(
    parts: Sequence[bytes | tuple[UploadFile, LocalBytes]], starts: Sequence[int], offset: int, length: int | None
) -> Iterator[bytes]:
    end = starts[-1] if length is None else offset + length
    for number in range(bisect_right(starts, offset) - 1, len(parts)):
        at = starts[number]
        if at >= end:
            return
        low, high = max(0, offset - at), min(end, starts[number + 1]) - at
        part = parts[number]
        if isinstance(part, bytes):
            yield part[low:high]
        elif low < high:
            item, literal = part
            yield from item.read(literal.offset + low, high - low)


def _digest(item: UploadFile) -> str:
    sha = hashlib.sha256()
    for piece in item.read(0, None):
        sha.update(piece)
    return sha.hexdigest()


def content_length(plans: Sequence[FilePlan]) -> int | None:
    """Return the length of the recipe in bytes, or None if a file's size is unknown."""
    # The length of a line does not depend on the digest in it.
    writer, length, digest = RecipeWriter(), 0, "0" * 64
    for plan in plans:
        if plan.steps is None or plan.item.size is None:
            return None
        lines = [writer.copy(step) if isinstance(step, Copy) else writer.literal(step.length) for step in plan.steps]
        length += len(writer.file(plan.item.path)) + sum(map(len, lines)) + (plan.sent or 0)
        length += len(writer.end(plan.item.size, digest))
    return length + len(writer.done())


def _content(plan: FilePlan, writer: RecipeWriter) -> Iterator[tuple[bytes, bool]]:
    """Yield the parts of a recipe between the first and the last line of a file.

    Each part comes with True if it is content of the file, and with False if it is a line of the recipe.
    """
    if plan.steps is None:
        for piece in plan.item.read(0, None):
            yield writer.literal(len(piece)), False
            yield piece, True
        return
    for step in plan.steps:
        if isinstance(step, Copy):
            yield writer.copy(step), False
            continue
        yield writer.literal(step.length), False
        all_of_it = step.length == plan.item.size
        for piece in plan.item.read(step.offset, None if all_of_it else step.length):
            yield piece, True


def _join(before: LocalBytes | Copy, step: LocalBytes | Copy) -> LocalBytes | Copy | None:
    """Join two steps and return the joined step, or return None if `step` does not continue where `before` ends."""
    if isinstance(before, LocalBytes) and isinstance(step, LocalBytes):
        return LocalBytes(before.offset, before.length + step.length)
    if isinstance(before, Copy) and isinstance(step, Copy):
        follows = (before.store, before.file, before.offset + before.length) == (step.store, step.file, step.offset)
        return Copy(before.store, before.file, before.offset, before.length + step.length) if follows else None
    return None


def _extents(path: Path, options: SplitOptions) -> list[tuple[int, int]]:
    """Return the extents of a file's chunks; return an empty list for a file that is not a proto."""
    try:
        with open_proto(path, options.type) as proto:
            kept = proto.own_chunks if options.keep and not options.rules else None
            split = kept or proto.split(min_chunk=options.min_chunk, max_chunk=options.max_chunk, rules=options.rules)
            return list(extents_of(split.plan))
    except ProtosliceError:
        return []
