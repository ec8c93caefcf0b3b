"""Downloads: in parallel, taken up again, under a temporary name until they are whole and right."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from protoslice.client.download.cache import Cache
from protoslice.client.download.ordered_transfers import Transfer, in_order
from protoslice.client.download.partial import PartialFile
from protoslice.client.download.remote import PART, Remote
from protoslice.client.http.connection import Patience
from protoslice.client.http.digests import Hashing
from protoslice.errors import Conflict, IntegrityError
from protoslice.facts import Piece

__all__ = ["Download", "Downloaded", "Progress", "afresh", "read_whole", "same_file"]

Progress = Callable[[int, int | None], None]
"""Told how many bytes are done, of how many where that is known. What it raises ends the transfer."""
_ROUNDS: Final = 2

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Downloaded:
    """What a download came to."""

    path: Path
    size: int
    fetched: int
    """Bytes of content that came over the wire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """How one representation becomes a file."""

    remote: Remote
    target: Path
    parallel: int
    patience: Patience
    progress: Progress | None = None
    cache: Cache | None = None
    pieces: Callable[[], Sequence[Piece]] | None = None
    """Tells the digests of its pieces, where they can be had."""

    def run(self) -> Downloaded:
        """The file, whole and right. What had arrived of the same content is not fetched again."""
        facts = self.remote.facts
        with PartialFile(self.target, facts) as partial:
            try:
                digest = self._fill(partial, self._parts(partial.size))
                for _ in range(_ROUNDS):
                    if facts.sha256 is None or digest == facts.sha256.hex():
                        partial.finish()
                        return Downloaded(self.target, facts.size, self.remote.received)
                    digest = self._mend(partial)
                raise IntegrityError(f"{self.target.name} does not come as the service says it is")
            except (IntegrityError, Conflict):
                partial.drop()  # nobody can tell what of it is right
                raise

    def _fill(self, partial: PartialFile, parts: Generator[bytes, None, None]) -> str:
        """Append the parts; the digest of all there is then."""
        size = self.remote.size
        with closing(parts), Hashing() as hashing:  # closed, the parts end the threads that fetch them
            hashing.update(partial.pieces())
            for part in parts:
                hashing.update((part,))
                partial.write(part)
                if self.progress is not None:
                    self.progress(partial.size, size)
            if partial.size != size:
                raise IntegrityError(f"{partial.size} bytes came where there should be {size}")
            return hashing.hexdigest()

    def _parts(self, start: int) -> Generator[bytes, None, None]:
        if self.cache is None or self.pieces is None or start == self.remote.size:
            return self.remote.parts(start, self.parallel)
        return in_order(self._transfers(self._table(self.pieces), start, self.cache), self.parallel)

    def _transfers(self, pieces: Sequence[Piece], start: int, cache: Cache) -> Iterator[Transfer]:
        """Reads of the pieces behind `start`: kept ones one by one, neighbours that must be fetched together."""
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
            data = self.patience.insist(lambda: self._fetch(group, cache)) if kept is None else kept
            yield data[max(0, start - group[0].offset) :]

        return read

    def _fetch(self, group: Sequence[Piece], cache: Cache | None) -> bytes:
        """Neighbouring pieces, in one answer, each compared with its digest."""
        first = group[0].offset
        data = self.remote.read_unverified(first, group[-1].end - first)
        for piece in group:
            part = memoryview(data)[piece.offset - first : piece.end - first]
            if hashlib.sha256(part).hexdigest() != piece.sha256:
                raise IntegrityError("a piece does not have the digest that it should have", piece.offset)
            if cache is not None:
                cache.put(piece.sha256, part)
        return data

    def _mend(self, partial: PartialFile) -> str:
        """Fetch again what came wrong, or everything where nobody can tell; the digest of all there is then."""
        if self.pieces is None:
            partial.restart()
            return self._fill(partial, self.remote.parts(0, self.parallel))
        for piece in self._table(self.pieces):
            if hashlib.sha256(partial.read(piece.offset, piece.size)).hexdigest() != piece.sha256:
                partial.write_at(piece.offset, self.patience.insist(lambda piece=piece: self._fetch([piece], None)))  # type: ignore[misc]
        return self._fill(partial, self._parts(partial.size))

    def _table(self, pieces: Callable[[], Sequence[Piece]]) -> Sequence[Piece]:
        """The pieces, which must cover the whole."""
        table, at = pieces(), 0
        for piece in table:
            if piece.offset != at or not 0 < piece.size <= PART:
                raise IntegrityError("the service lists pieces that do not make up the file", at)
            at = piece.end
        if at != self.remote.size:
            raise IntegrityError("the service lists pieces that do not make up the file", at)
        return table


def afresh(make: Callable[[], Remote], work: Callable[[Remote], T]) -> T:
    """What `work` makes of a representation; begun anew when what was first said of it proves wrong."""
    for _ in range(_ROUNDS):
        try:
            return work(make())
        except (IntegrityError, Conflict) as error:
            if error.request_id is not None:  # the service itself said so
                raise
    return work(make())


def read_whole(remote: Remote, parallel: int) -> bytes:
    """All bytes of a representation, verified."""
    sha256 = remote.facts.sha256
    for _ in range(1 + _ROUNDS):
        data = b"".join(remote.parts(0, parallel))
        if sha256 is None or hashlib.sha256(data).digest() == sha256:
            return data
    raise IntegrityError("what comes does not have the digest that the service gives")


def same_file(path: Path, size: int, sha256: str | None) -> bool:
    """Whether the file that is there is the one wanted."""
    if sha256 is None or not path.is_file() or path.stat().st_size != size:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == sha256
