"""Memo of small reads of remote objects, saved with the store to avoid repeating their round trips.

A format finds a model's tensors by many small reads, the same ones every time. Objects never change, so the memo cannot
be stale: a read beyond the memo goes to the object.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from protoslice.concurrency.executor import Worker
from protoslice.stores.derived_facts import DerivedFacts
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
    """Small reads of several objects, by object number and offset; any number of threads may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
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
        with self._lock:
            longer = len(data) - len(self._reads.get((number, offset), b""))
            if len(data) <= _SMALL_READ and 0 < longer <= self._room:
                self._reads[number, offset] = data
                self._room -= longer
                self.is_new = True

    def get_recent(self, number: int, offset: int, length: int) -> bytes | None:
        """The bytes, when a recent read contains them; else None."""
        with self._lock:
            recent = list(self._recent)
        for known, start, data in recent:
            if known == number and start <= offset and offset + length <= start + len(data):
                return data[offset - start : offset - start + length]
        return None

    def put_recent(self, number: int, offset: int, data: bytes) -> None:
        """Hold the bytes of a read, if small, until others of `_RECENT_BYTES` have come."""
        if len(data) > _HELD_READ:
            return
        with self._lock:
            self._recent.appendleft((number, offset, data))
            self._recent_bytes += len(data)
            while self._recent_bytes > _RECENT_BYTES:
                self._recent_bytes -= len(self._recent.pop()[2])

    def note(self, number: int, offset: int) -> None:
        """Take a read that is not memoized into account; see `foreseen`."""
        with self._lock:
            self._rhythms.setdefault(number, Rhythm()).note(offset)

    def foreseen(self, number: int, length: int) -> list[int]:
        """Offsets of the reads that are likely to follow one of `length` bytes."""
        most = _AHEAD_BYTES // max(length, 1)
        with self._lock:
            return self._rhythms[number].foreseen(most) if length <= _HELD_READ else []

    def encode(self) -> bytes:
        """Serialized reads, for `decode`; later ones are new."""
        with self._lock:
            reads, self.is_new = list(self._reads.items()), False
        return b"".join(_ROW.pack(*place, len(data)) + data for place, data in sorted(reads))

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


class ReadsOfStore:
    """Small reads of the remote objects of one store, of which a memo is kept across processes."""

    def __init__(self, objects: Sequence[StoredFile], derived: DerivedFacts, worker: Worker) -> None:
        parts = [part for stored in objects for part in stored.parts]
        self._distant = [(number, part) for number, part in enumerate(parts) if not part.is_near]
        self._derived = derived
        self._worker = worker
        self._memo: MemoizedReads | None = None
        self._users = 0
        self._loading = asyncio.Lock()
        self._saving = asyncio.Lock()

    @property
    def are_distant(self) -> bool:
        """Whether any object is remote."""
        return bool(self._distant)

    async def memoizing(self, work: Callable[[], T]) -> T:
        """Run `work` in a worker thread with the memo, which all that run at once share, and save what is new."""
        if not self._distant:
            return await self._worker.bulk(work)
        memo = await self._begin()
        try:
            done = await self._worker.bulk(work)
            async with self._saving:
                if memo.is_new:
                    await self._derived.save(_NAME, await self._worker.run(memo.encode))
            return done
        finally:
            self._users -= 1
            if not self._users:
                self._use(None)

    async def _begin(self) -> MemoizedReads:
        async with self._loading:
            if self._memo is None:
                self._use(MemoizedReads.decode(await self._derived.load(_NAME) or b""))
            self._users += 1
            assert self._memo is not None
            return self._memo

    def _use(self, memo: MemoizedReads | None) -> None:
        self._memo = memo
        for number, part in self._distant:
            part.memoize_reads(number, memo)
