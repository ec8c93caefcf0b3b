"""Small reads of remote objects: saved with the store, so that later processes need no round trips, and predicted.

A format finds a model's tensors by many small reads, the same ones every time. Objects never change, so saved reads
cannot be stale; other reads go to the object.
"""

from __future__ import annotations

import struct
import threading
from collections import deque
from itertools import pairwise
from typing import Final

_SMALL_READ: Final = 256 << 10
"""Largest read that is noted: a larger one is worth its round trip."""
_ROOM: Final = 8 << 20
_HELD_READ: Final = 2 * _SMALL_READ
"""Largest read that is held for a while, in whole blocks."""
_RECENT_BYTES: Final = 8 << 20
"""Bytes of recent reads held whole, since the next read is often nearby, or was predicted."""
_AHEAD_BYTES: Final = 4 << 20
"""Bytes of reads that are predicted at a time."""
_ROW: Final = struct.Struct("<IQI")
"""Object number, offset and length; the bytes follow."""
_JUMP: Final = 64 << 10
"""Bytes from one read to the next from which on the next is a jump."""
_CLOSE: Final = 512
"""Bytes by which equal steps differ at most: names of parts have different lengths."""
_PERIOD: Final = 8
_MOST: Final = 64
"""Reads that are predicted at a time, at most."""


class SavedReads:
    """Small reads of several objects, by object number and offset; any number of threads may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.is_new = False
        """True when reads were saved since `decode`."""
        self._reads: dict[tuple[int, int], bytes] = {}
        self._room = _ROOM
        self._recent: deque[tuple[int, int, bytes]] = deque()
        self._recent_bytes = 0
        self._predictors: dict[int, StridePredictor] = {}

    def get(self, number: int, offset: int, length: int) -> bytes | None:
        """Return the saved bytes of a read, even if they begin a longer saved read; None when there are none."""
        found = self._reads.get((number, offset), b"")
        return found[:length] if 0 < length <= len(found) else None

    def put(self, number: int, offset: int, data: bytes) -> None:
        """Save the bytes of a read, if small and while there is room."""
        with self._lock:
            longer = len(data) - len(self._reads.get((number, offset), b""))
            if len(data) <= _SMALL_READ and 0 < longer <= self._room:
                self._reads[number, offset] = data
                self._room -= longer
                self.is_new = True

    def get_recent(self, number: int, offset: int, length: int) -> bytes | None:
        """Return the bytes, when a recent read contains them; else None."""
        with self._lock:
            recent = list(self._recent)
        for known, start, data in recent:
            if known == number and start <= offset and offset + length <= start + len(data):
                return data[offset - start : offset - start + length]
        return None

    def put_recent(self, number: int, offset: int, data: bytes) -> None:
        """Keep the bytes of a read, if small, until `_RECENT_BYTES` further bytes have arrived."""
        if len(data) > _HELD_READ:
            return
        with self._lock:
            self._recent.appendleft((number, offset, data))
            self._recent_bytes += len(data)
            while self._recent_bytes > _RECENT_BYTES:
                self._recent_bytes -= len(self._recent.pop()[2])

    def note(self, number: int, offset: int) -> None:
        """Learn from a read that is not saved; see `predicted`."""
        with self._lock:
            self._predictors.setdefault(number, StridePredictor()).note(offset)

    def predicted(self, number: int, length: int) -> list[int]:
        """Return the offsets of the reads that are likely to follow one of `length` bytes."""
        most = _AHEAD_BYTES // max(length, 1)
        with self._lock:
            return self._predictors[number].predicted(most) if length <= _HELD_READ else []

    def encode(self) -> bytes:
        """Return the serialized reads, for `decode`; only later reads count as new."""
        with self._lock:
            reads, self.is_new = list(self._reads.items()), False
        return b"".join(_ROW.pack(*place, len(data)) + data for place, data in sorted(reads))

    @classmethod
    def decode(cls, data: bytes) -> SavedReads:
        """Parse the output of `encode`."""
        saved, at = cls(), 0
        while at + _ROW.size <= len(data):
            number, offset, length = _ROW.unpack_from(data, at)
            at += _ROW.size + length
            saved.put(number, offset, data[at - length : at])
        saved.is_new = False
        return saved


class StridePredictor:
    """Distances between the reads of one object; repeated distances predict the next reads.

    Up to eight distances may repeat in turn. Nearly all parts of a model have the sizes of earlier ones, so reads of a
    distant storage can be made concurrently.
    """

    def __init__(self) -> None:
        self._jumps: deque[int] = deque(maxlen=2 * _PERIOD + 1)
        self._last = 0
        self._count = 1

    def note(self, offset: int) -> None:
        """Learn from a read at `offset`."""
        if not self._jumps or abs(offset - self._last) >= _JUMP:
            self._jumps.append(offset)
        self._last = offset

    def predicted(self, most: int) -> list[int]:
        """Return the offsets of the reads after the last one, at most `most`; none without a repeated distance.

        Each call predicts twice as many offsets as the call before.
        """
        steps = [after - before for before, after in pairwise(self._jumps)]
        period = next((n for n in range(1, len(steps) // 2 + 1) if _alike(steps[-n:], steps[-2 * n : -n])), 0)
        if not period:
            self._count = 1
            return []
        self._count = min(2 * self._count, _MOST)
        found, at = [], self._jumps[-1]
        for number in range(min(self._count, most)):
            at += steps[number % period - period]
            found.append(at)
        return found


def _alike(some: list[int], others: list[int]) -> bool:
    return all(abs(one - other) <= _CLOSE for one, other in zip(some, others, strict=True))
