"""Memo of small reads of remote objects, saved with the store to avoid repeating their round trips.

A format finds a model's tensors by many small reads, the same ones every time. Objects never change, so the memo cannot
be stale: a read beyond the memo goes to the object.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from protoslice.concurrency.executor import Worker
from protoslice.stores.catalog.derived_facts import DerivedFacts
from protoslice.stores.objects.rhythm import Rhythm
from protoslice.stores.objects.stored import StoredFile

T = TypeVar("T")

_NAME: Final = "reads"
_SMALL_READ: Final = 256 << 10
"""Largest read that is noted: a larger one is worth its round trip."""
_ROOM: Final = 8 << 20
_HELD_READ: Final = 2 * _SMALL_READ
"""Largest read that is held for a while, in whole blocks."""
_RECENT_BYTES: Final = 8 << 20
"""Bytes of recent reads held whole, since the next read is often nearby, or was foreseen."""
_AHEAD_BYTES: Final = 4 << 20
"""Bytes of reads that are foreseen at a time."""
_ROW: Final = struct.Struct("<IQI")
"""Object number, offset and length; the bytes follow."""


class MemoizedReads:
    """Small reads of several objects, by object number and offset."""

    def __init__(self) -> None:
        self.is_new = False
        """True when reads were memoized since `decode`."""
        self._reads: dict[tuple[int, int], bytes] = {}
        self._room = _ROOM
        self._recent: deque[tuple[int, int, bytes]] = deque()
        self._recent_bytes = 0
        self._rhythms: dict[int, Rhythm] = {}

    def get(self, number: int, offset: int, length: int) -> bytes | None:
        """The memoized bytes of a read, or the beginning of a longer one's; None when there are none."""
        found = self._reads.get((number, offset), b"")
        return found[:length] if 0 < length <= len(found) else None

    def put(self, number: int, offset: int, data: bytes) -> None:
        """Note the bytes of a read, if small and while the memo has room."""
        longer = len(data) - len(self._reads.get((number, offset), b""))
        if len(data) <= _SMALL_READ and 0 < longer <= self._room:
            self._reads[number, offset] = data
            self._room -= longer
            self.is_new = True

    def get_recent(self, number: int, offset: int, length: int) -> bytes | None:
        """The bytes, when a recent read contains them; else None."""
        for known, start, data in self._recent:
            if known == number and start <= offset and offset + length <= start + len(data):
                return data[offset - start : offset - start + length]
        return None

    def put_recent(self, number: int, offset: int, data: bytes) -> None:
        """Hold the bytes of a read, if small, until others of `_RECENT_BYTES` have come."""
        if len(data) <= _HELD_READ:
            self._recent.appendleft((number, offset, data))
            self._recent_bytes += len(data)
            while self._recent_bytes > _RECENT_BYTES:
                self._recent_bytes -= len(self._recent.pop()[2])

    def note(self, number: int, offset: int) -> None:
        """Take a read that is not memoized into account; see `foreseen`."""
        self._rhythms.setdefault(number, Rhythm()).note(offset)

    def foreseen(self, number: int, length: int) -> list[int]:
        """Offsets of the reads that are likely to follow one of `length` bytes."""
        most = _AHEAD_BYTES // max(length, 1)
        return self._rhythms[number].foreseen(most) if length <= _HELD_READ else []

    def encode(self) -> bytes:
        """Serialized reads, for `decode`."""
        rows = (_ROW.pack(*place, len(data)) + data for place, data in sorted(self._reads.items()))
        return b"".join(rows)

    @classmethod
    def decode(cls, data: bytes) -> MemoizedReads:
        """Parse the output of `encode`."""
        memo, at = cls(), 0
        while at + _ROW.size <= len(data):
            number, offset, length = _ROW.unpack_from(data, at)
            at += _ROW.size + length
            memo.put(number, offset, data[at - length : at])
        memo.is_new = False
        return memo


async def memoizing_reads(
    work: Callable[[], T], objects: Sequence[StoredFile], derived: DerivedFacts, worker: Worker
) -> T:
    """Run `work` in a worker thread and memoize its small reads of remote objects across processes."""
    parts = [part for stored in objects for part in stored.parts]
    distant = [(number, part) for number, part in enumerate(parts) if not part.is_near]
    if not distant:
        return await worker.bulk(work)
    memo = MemoizedReads.decode(await derived.load(_NAME) or b"")
    for number, part in distant:
        part.memoize_reads(number, memo)
    try:
        done = await worker.bulk(work)
    finally:
        for number, part in distant:
            part.memoize_reads(number, None)
    if memo.is_new:
        await derived.save(_NAME, await worker.run(memo.encode))
    return done
