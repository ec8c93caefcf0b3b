"""Digests of many parts of a file, made while it passes by once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

__all__ = ["Passing", "watch"]

Pieces = Iterable[bytes | tuple[int, int, int]]
"""Of a rope over the file, which is its source 0."""


class Passing:
    """A rope whose bytes are seen to pass."""

    def __init__(self, pieces: Pieces) -> None:
        self._left = list(pieces)[::-1]
        self._digest = hashlib.sha256()
        self.missed = False
        """Whether bytes of it lie in another source, or were wanted when they had passed."""
        self.wants = self._next(0)
        """Where its next bytes stand in the file; none when it has them all."""

    @property
    def sha256(self) -> str | None:
        """The digest, when all has been seen."""
        return None if self.missed or self._left else self._digest.hexdigest()

    def take(self, start: int, data: memoryview) -> None:
        """See the bytes of the file from `start` on pass."""
        end = start + len(data)
        while self.wants is not None and start <= self.wants < end:
            piece = self._left.pop()
            assert isinstance(piece, tuple)
            source, at, length = piece
            many = min(length, end - at)
            self._digest.update(data[at - start : at - start + many])
            if many < length:
                self._left.append((source, at + many, length - many))
            self.wants = self._next(start)

    def _next(self, start: int) -> int | None:
        """Where the next bytes stand that have not passed with those before `start`."""
        while self._left:
            piece = self._left[-1]
            if not isinstance(piece, bytes):
                self.missed = self.missed or piece[0] != 0 or piece[1] < start
                return None if self.missed else piece[1]
            self._digest.update(piece)
            self._left.pop()
        return None


def watch(file: Iterable[bytes | memoryview], parts: Sequence[Passing]) -> Iterable[bytes | memoryview]:
    """The pieces of `file` as they come, of which the `parts` take theirs."""
    waiting = [(part.wants, number) for number, part in enumerate(parts) if part.wants is not None]
    heapify(waiting)
    at = 0
    for piece in file:
        while waiting and waiting[0][0] < at + len(piece):
            number = heappop(waiting)[1]
            parts[number].take(at, memoryview(piece))
            if (wanted := parts[number].wants) is not None:
                heappush(waiting, (wanted, number))
        yield piece
        at += len(piece)
