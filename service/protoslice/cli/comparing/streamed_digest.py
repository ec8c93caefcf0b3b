"""Digests of many parts of a file, made while it passes by once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

Pieces = Iterable[bytes | tuple[int, int, int]]
"""Pieces of a rope over the file, which is source 0."""


class StreamedDigest:
    """SHA-256 of a rope over a file, computed while the file passes."""

    def __init__(self, pieces: Pieces) -> None:
        self._left = list(pieces)[::-1]
        self._digest = hashlib.sha256()
        self.missed = False
        """True when some bytes lie in another source, or had passed before they were needed."""
        self.wants = self._next(0)
        """Offset in the file of the next bytes needed; None when complete or missed."""

    @property
    def sha256(self) -> str | None:
        """Hexadecimal digest; None before all bytes have passed, or when some were missed."""
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
        """Offset of the next bytes needed that did not pass with those before `start`; None as in `wants`."""
        while self._left:
            piece = self._left[-1]
            if not isinstance(piece, bytes):
                self.missed = self.missed or piece[0] != 0 or piece[1] < start
                return None if self.missed else piece[1]
            self._digest.update(piece)
            self._left.pop()
        return None


def watch(file: Iterable[bytes | memoryview], parts: Sequence[StreamedDigest]) -> Iterable[bytes | memoryview]:
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
