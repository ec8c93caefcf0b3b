"""Small reads of a store's objects, kept so that they need not be made again: over a network each takes a round trip.

Where the tensors of a model lie is found by many of them, the same ones every time. They are bytes of what never
changes: whoever reads something else, or more, is not misled but reads on from where the bytes are.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from protoslice.concurrency.executor import Worker
from protoslice.stores.catalog.artifact_cache import ArtifactCache
from protoslice.stores.reading.objects import StoredFile

__all__ = ["MemoizedReads", "recalling"]

T = TypeVar("T")

_NAME: Final = "reads"
_SMALL_READ: Final = 256 << 10
"""A read of more is worth its round trip."""
_ROOM: Final = 8 << 20
_LATELY: Final = 16
"""Reads that are held whole for a while: what is wanted next often lies beside what was wanted last."""
_ROW: Final = struct.Struct("<IQI")
"""The number of the object, where the read begins, and how long it is. The bytes follow."""


class MemoizedReads:
    """The small reads of several objects, by the number of the object and where they begin."""

    def __init__(self) -> None:
        self.is_new = False
        """Whether something was noted that `encode` did not give yet."""
        self._reads: dict[tuple[int, int], bytes] = {}
        self._room = _ROOM
        self._lately: deque[tuple[int, int, bytes]] = deque(maxlen=_LATELY)

    def get(self, number: int, offset: int, length: int) -> bytes | None:
        """What such a read gave, or the beginning of a longer one."""
        found = self._reads.get((number, offset), b"")
        return found[:length] if 0 < length <= len(found) else None

    def put(self, number: int, offset: int, data: bytes) -> None:
        """Note what a read gave, if it is small, and as long as there is room."""
        longer = len(data) - len(self._reads.get((number, offset), b""))
        if len(data) <= _SMALL_READ and 0 < longer <= self._room:
            self._reads[number, offset] = data
            self._room -= longer
            self.is_new = True

    def around(self, number: int, offset: int, length: int) -> bytes | None:
        """The bytes, if they lie in what was read lately."""
        for known, start, data in self._lately:
            if known == number and start <= offset and offset + length <= start + len(data):
                return data[offset - start : offset - start + length]
        return None

    def came(self, number: int, offset: int, data: bytes) -> None:
        """Hold what was read for a while, if it is small."""
        if len(data) <= _SMALL_READ:
            self._lately.appendleft((number, offset, data))

    def encode(self) -> bytes:
        """What `decode` reads."""
        rows = (_ROW.pack(*place, len(data)) + data for place, data in sorted(self._reads.items()))
        return b"".join(rows)

    @classmethod
    def decode(cls, data: bytes) -> MemoizedReads:
        """What `encode` gave."""
        noted, at = cls(), 0
        while at + _ROW.size <= len(data):
            number, offset, length = _ROW.unpack_from(data, at)
            at += _ROW.size + length
            noted.put(number, offset, data[at - length : at])
        noted.is_new = False
        return noted


async def recalling(work: Callable[[], T], objects: Sequence[StoredFile], derived: ArtifactCache, worker: Worker) -> T:
    """What `work` gives, done in a thread. Small reads that it makes of distant objects are kept for the next time."""
    parts = [part for stored in objects for part in stored.parts]
    distant = [(number, part) for number, part in enumerate(parts) if not part.is_near]
    if not distant:
        return await worker.bulk(work)
    noted = MemoizedReads.decode(await derived.load(_NAME) or b"")
    for number, part in distant:
        part.note_reads(number, noted)
    try:
        done = await worker.bulk(work)
    finally:
        for number, part in distant:
            part.note_reads(number, None)
    if noted.is_new:
        await derived.save(_NAME, await worker.run(noted.encode))
    return done
