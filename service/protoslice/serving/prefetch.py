"""Small reads of remote objects, which are saved with the store and predicted.

To find a model's tensors, a format makes many small reads, and they are the same every time. Saved reads spare later
processes these round trips. Objects never change, so saved reads cannot be out of date. All other reads go to the
object.
"""

from __future__ import annotations

import struct
import threading
from collections import deque
from itertools import pairwise
from typing import Final

_SMALL_READ: Final = 256 << 10
"""The size in bytes of the largest read that is saved. A larger read may take a round trip each time."""
_ROOM: Final = 8 << 20
_HELD_READ: Final = 2 * _SMALL_READ
"""The size in bytes of the largest read, in whole blocks, that is kept among the recent reads."""
_RECENT_BYTES: Final = 8 << 20
"""Largest number of bytes of recent reads; they are kept because the next read is often nearby or was predicted."""
_AHEAD_BYTES: Final = 4 << 20
"""Largest number of bytes of the reads that one prediction covers."""
_ROW: Final = struct.Struct("<IQI")
"""The object's number, the offset, and the length of the bytes that follow."""
_JUMP: Final = 64 << 10
"""The distance between two reads from which the second read counts as a jump."""
_CLOSE: Final = 512
"""The largest difference between steps that count as equal. Steps differ a little, like the lengths of parts' names."""
_PERIOD: Final = 8
_MOST: Final = 64
"""Largest number of reads that one prediction covers."""


class SavedReads:
    """The small reads of several objects, by object number and offset; several threads may use them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.is_new = False
        """True when reads were added after `decode`."""
        self._reads: dict[tuple[int, int], bytes] = {}
        self._room = _ROOM
        self._recent: deque[tuple[int, int, bytes]] = deque()
        self._recent_bytes = 0
        self._predictors: dict[int, StridePredictor] = {}

    def get(self, number: int, offset: int, length: int) -> bytes | None:
        """Return the saved bytes of a read, or the start of a longer saved read; return None when no read is saved."""
        found = self._reads.get((number, offset), b"")
        return found[:length] if 0 < length <= len(found) else None

    def put(self, number: int, offset: int, data: bytes) -> None:
        """Save the bytes of a read if they are few and the room suffices."""
        with self._lock:
            longer = len(data) - len(self._reads.get((number, offset), b""))
            if len(data) <= _SMALL_READ and 0 < longer <= self._room:
                self._reads[number, offset] = data
                self._room -= longer
                self.is_new = True

    def get_recent(self, number: int, offset: int, length: int) -> bytes | None:
        """Return the bytes if a recent read contains them; else None."""
        with self._lock:
            recent = list(self._recent)
        for known, start, data in recent:
            if known == number and start <= offset and offset + length <= start + len(data):
                return data[offset - start : offset - start + length]
        return None

    def put_recent(self, number: int, offset: int, data: bytes) -> None:
        """Keep the bytes of a small read, until about `_RECENT_BYTES` newer bytes have arrived."""
        if len(data) > _HELD_READ:
            return
        with self._lock:
            self._recent.appendleft((number, offset, data))
            self._recent_bytes += len(data)
            while self._recent_bytes > _RECENT_BYTES:
                self._recent_bytes -= len(self._recent.pop()[2])

    def note(self, number: int, offset: int) -> None:
        """Learn from a read that was not saved; `predicted` uses this."""
        with self._lock:
            self._predictors.setdefault(number, StridePredictor()).note(offset)

    def predicted(self, number: int, length: int) -> list[int]:
        """Return the offsets of reads that are likely to follow a read of `length` bytes."""
        most = _AHEAD_BYTES // max(length, 1)
        with self._lock:
            return self._predictors[number].predicted(most) if length <= _HELD_READ else []

    def encode(self) -> bytes:
        """Return the serialized reads for `decode`; afterwards, only later reads count as new."""
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
    """The distances between the reads of one object; repeated distances predict the next reads.

    A pattern of up to eight distances is recognized when it repeats. Most parts of a model have the same sizes as
    earlier parts. So the reads can be predicted, and reads of a remote storage can run concurrently.
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
        """Return up to `most` offsets of the reads that should follow; return none if no pattern of distances repeats.

        Each call predicts up to twice as many offsets as the previous call.
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
