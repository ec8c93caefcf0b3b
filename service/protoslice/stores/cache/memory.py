"""Blocks and records in the memory of a process, where there is no directory for them."""

from __future__ import annotations

import threading
import time
from typing import Final

from protoslice.concurrency.lru import LruCache
from protoslice.stores.cache.disk import AGAIN_SECONDS

_BLOCK: Final = 64 << 10
_MOST: Final = 1 << 20
"""Entries, beside the bytes."""
_ENTRY: Final = 400
"""Bytes of an entry beside its data, about: some records have fewer."""


class MemoryBlocks:
    """Blocks of objects, verified before they came; any thread may call.

    A segmented LRU: blocks read once share a fifth of the room, so that a scan evicts no others; records have a
    quarter of their own.
    """

    def __init__(self, room: int) -> None:
        self._lock = threading.Lock()
        self.scan_room = room // 10
        """Bytes kept of one stream: half of the room of blocks read once."""
        self._once: LruCache[tuple[str, int], tuple[bytes, float]] = LruCache(most=_MOST, room=room // 5)
        self._again: LruCache[tuple[str, int], bytes] = LruCache(most=_MOST, room=room - room // 5 - room // 4)
        self._records: LruCache[str, bytes] = LruCache(most=_MOST, room=room // 4)

    def read_now(self, name: str, start: int, end: int) -> bytes | None:
        """The bytes from `start` to `end`, whole blocks, or None when one of them is not there."""
        blocks = []
        with self._lock:
            for at in range(start, end, _BLOCK):
                block = self._block((name, at))
                if block is None:
                    return None
                blocks.append(block)
        return blocks[0] if len(blocks) == 1 else b"".join(blocks)

    def write(self, name: str, start: int, data: memoryview) -> None:
        """Keep blocks."""
        for at in range(0, len(data), _BLOCK):
            key, block = (name, start + at), bytes(data[at : at + _BLOCK])
            with self._lock:
                if self._again.get(key) is None and self._once.get(key) is None:
                    self._once.put(key, (block, time.monotonic()), len(block))

    def read_record(self, name: str) -> bytes | None:
        """The record called `name`, or None when it is not there."""
        with self._lock:
            return self._records.get(name)

    def write_record(self, name: str, data: bytes) -> None:
        """Keep a record."""
        with self._lock:
            self._records.put(name, data, len(data) + _ENTRY)

    def _block(self, key: tuple[str, int]) -> bytes | None:
        again = self._again.get(key)
        once = self._once.get(key) if again is None else None
        if once is None:
            return again
        block, since = once
        if time.monotonic() - since >= AGAIN_SECONDS:
            self._once.drop(key)
            self._again.put(key, block, len(block))
        return block
