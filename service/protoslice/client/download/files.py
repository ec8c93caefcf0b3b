"""The download of one file, which keeps a temporary name until its content has been verified."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Final, TypeVar

from protoslice.client.download.cache import Cache
from protoslice.client.download.partial import PartialFile
from protoslice.client.download.remote import PART, Remote
from protoslice.client.http.connection import RetryPolicy
from protoslice.client.http.digests import BackgroundHash
from protoslice.client.threads import Transfer, in_order
from protoslice.errors import Conflict, IntegrityError, LimitExceeded
from protoslice.facts import Piece
from protoslice.tensors.omitted import HEADER, Omitted

Progress = Callable[[int, int | None], None]
"""A function that receives the number of bytes so far, and the total number or None.

If the function raises an exception, the transfer ends.
"""
_AGAIN: Final = 2
_TAR: Final = "application/x-tar"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Downloaded:
    """The result of a download."""

    path: Path
    size: int
    fetched: int
    """Number of content bytes received from the service."""
    omitted: Omitted | None = None
    """Tensors or files that the view leaves out, or None if nothing is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """The download of one view to a file."""

    remote: Remote
    target: Path
    parallel: int
    retries: RetryPolicy
    progress: Progress | None = None
    cache: Cache | None = None
    pieces: Callable[[], Sequence[Piece]] | None = None
    """Function that returns the file's pieces and their digests, or None for a view without pieces."""

    def run(self) -> Downloaded:
        """Download and verify the file. Resume an earlier attempt at the same content."""
        facts = self.remote.facts
        with PartialFile(self.target, facts) as partial:
            try:
                digest = self._fill(partial, self._parts(partial.size))
                if facts.sha256 is not None and digest != facts.sha256.hex():
                    raise IntegrityError(f"{self.target.name} does not match the service's checksum: download it again")
                partial.finish()
            except (IntegrityError, Conflict):
                partial.drop()  # the correct parts cannot be distinguished from the damaged ones
                raise
        what = "file" if facts.headers.get("content-type") == _TAR else "tensor"
        omitted = Omitted.parse(facts.headers.get(HEADER), what=what)
        return Downloaded(self.target, facts.size, self.remote.received, omitted)

    def _fill(self, partial: PartialFile, parts: Generator[bytes, None, None]) -> str:
        """Append the parts to the file, and return the SHA-256 of the whole file."""
        size = self.remote.size
        with closing(parts), BackgroundHash() as hashing:  # closing ends the threads that fetch the parts
            hashing.update(partial.pieces())
            for part in parts:
                hashing.update((part,))
                partial.write(part)
                if self.progress is not None:
                    self.progress(partial.size, size)
            if partial.size != size:
                raise IntegrityError(f"Received {partial.size} bytes instead of {size}")
            return hashing.hexdigest()

    def _parts(self, start: int) -> Generator[bytes, None, None]:
        if self.cache is None or self.pieces is None or start == self.remote.size:
            return self.remote.parts(start, self.parallel)
        return in_order(self._transfers(self._table(self.pieces), start, self.cache), self.parallel)

    def _transfers(self, pieces: Sequence[Piece], start: int, cache: Cache) -> Iterator[Transfer]:
        """Yield transfers that together return the bytes from `start`.

        Each cached piece has a separate transfer. Adjacent pieces that are not cached share a transfer.
        """
        group: list[Piece] = []
        for piece in pieces:
            if piece.end <= start:
                continue
            kept = cache.has(piece.sha256, piece.size)
            if group and (kept or piece.end - group[0].offset > PART):
                yield self._transfer(group, start, cache)
                group = []
            group.append(piece)
            if kept:
                yield self._transfer(group, start, cache)
                group = []
        if group:
            yield self._transfer(group, start, cache)

    def _transfer(self, group: list[Piece], start: int, cache: Cache) -> Transfer:
        def read(_: object) -> Iterator[bytes]:
            kept = cache.get(group[0].sha256, group[0].size) if len(group) == 1 else None
            data = self.retries.run(lambda: self._fetch(group, cache)) if kept is None else kept
            yield data[max(0, start - group[0].offset) :]

        return read

    def _fetch(self, group: Sequence[Piece], cache: Cache) -> bytes:
        """Fetch adjacent pieces with one request, compare each piece with its digest, and cache the pieces."""
        first = group[0].offset
        data = self.remote.read_unverified(first, group[-1].end - first)
        for piece in group:
            part = memoryview(data)[piece.offset - first : piece.end - first]
            if hashlib.sha256(part).hexdigest() != piece.sha256:
                raise IntegrityError(
                    "A part of the file does not match its checksum: download the file again", piece.offset
                )
            cache.put(piece.sha256, part)
        return data

    def _table(self, pieces: Callable[[], Sequence[Piece]]) -> Sequence[Piece]:
        """Return the pieces of the file; raise `IntegrityError` if they do not cover the file without gaps."""
        table, at = pieces(), 0
        for piece in table:
            if piece.offset != at or not 0 < piece.size <= PART:
                raise IntegrityError("The parts listed by the service do not cover the file", at)
            at = piece.end
        if at != self.remote.size:
            raise IntegrityError("The parts listed by the service do not add up to the file", at)
        return table


def retry_if_changed(make: Callable[[], Remote], work: Callable[[Remote], T]) -> T:
    """Call `work` with a new `Remote` from `make`, and return the result.

    If the client finds damaged or changed content, repeat the calls of `make` and `work`, at most twice.
    """
    for _ in range(_AGAIN):
        try:
            return work(make())
        except (IntegrityError, Conflict) as error:
            if error.request_id is not None:  # the service reported this error, so a retry would not help
                raise
    return work(make())


def read_whole(remote: Remote, parallel: int) -> BytesIO:
    """Return all bytes of a view in memory, verified if the service knows a digest. The memory is allocated once."""
    facts = remote.facts
    buffer = _buffer(facts.size)
    for part in remote.parts(0, parallel):
        buffer.write(part)
    if facts.sha256 is not None and hashlib.sha256(buffer.getbuffer()).digest() != facts.sha256:
        raise IntegrityError("The received bytes do not match the service's checksum: download them again")
    return buffer


def _buffer(size: int) -> BytesIO:
    """Return a buffer of `size` bytes. Neither writes nor reads copy the whole buffer."""
    try:
        return BytesIO(bytes(size))
    except (MemoryError, OverflowError):
        raise LimitExceeded(f"The response of {size} bytes does not fit into memory: read it in parts") from None


def same_file(path: Path, size: int, sha256: str | None) -> bool:
    """Return True if `path` is a file with this size and SHA-256. Return False if `sha256` is None."""
    if sha256 is None or not path.is_file() or path.stat().st_size != size:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == sha256
