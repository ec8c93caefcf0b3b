"""A cache for objects of a remote storage; concurrent callers share one fetch, and hits and misses are counted.

A key always names the same content, so no cached block can be out of date. External objects are not cached: they have
no checksums, and their owner may replace them.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from protoslice.concurrency.executor import Executor
from protoslice.concurrency.results import LruCache, SingleFlight
from protoslice.defaults import CACHE_BYTES, CACHE_MEMORY_BYTES
from protoslice.serving.disk_cache import AGAIN_SECONDS, SEGMENT, DiskBlocks
from protoslice.storage import Span

_BLOCK: Final = 64 << 10
_MOST: Final = 1 << 20
"""Largest number of entries in each part of the memory cache."""
_RECORD: Final = -1
"""The offset in the key of a record. The key of a block has the offset of the block instead."""
_ENTRY: Final = 400
"""The approximate overhead of an entry in bytes, in addition to its data."""


class MemoryBlocks:
    """Verified blocks of objects in memory; any thread may call the methods.

    This is a segmented LRU cache. Blocks that were read only once share a fifth of the memory, so a scan evicts neither
    records nor blocks that are read repeatedly.
    """

    def __init__(self, room: int) -> None:
        self._lock = threading.Lock()
        self.scan_room = room // 10
        """Largest number of bytes kept of one stream: half of the memory for blocks that were read once."""
        self._once: LruCache[tuple[str, int], tuple[bytes, float]] = LruCache(most=_MOST, room=room // 5)
        self._again: LruCache[tuple[str, int], bytes] = LruCache(most=_MOST, room=room - room // 5)

    def read_now(self, name: str, start: int, end: int) -> bytes | None:
        """Return whole blocks from `start` to `end`, or None when any of them is missing."""
        blocks = []
        with self._lock:
            for at in range(start, end, _BLOCK):
                block = self._block((name, at))
                if block is None:
                    return None
                blocks.append(block)
        return blocks[0] if len(blocks) == 1 else b"".join(blocks)

    def write(self, name: str, start: int, data: memoryview) -> None:
        """Keep whole blocks, the first of which begins at `start`."""
        for at in range(0, len(data), _BLOCK):
            key, block = (name, start + at), bytes(data[at : at + _BLOCK])
            with self._lock:
                if self._again.get(key) is None and self._once.get(key) is None:
                    self._once.put(key, (block, time.monotonic()), len(block) + _ENTRY)

    def read_record(self, name: str) -> bytes | None:
        """Return the record called `name`, or None when it is missing."""
        with self._lock:
            return self._again.get((name, _RECORD))

    def write_record(self, name: str, data: bytes) -> None:
        """Keep a record under `name`."""
        with self._lock:
            self._again.put((name, _RECORD), data, len(data) + _ENTRY)

    def _block(self, key: tuple[str, int]) -> bytes | None:
        again = self._again.get(key)
        once = self._once.get(key) if again is None else None
        if once is None:
            return again
        block, since = once
        if time.monotonic() - since >= AGAIN_SECONDS:
            self._once.drop(key)
            self._again.put(key, block, len(block) + _ENTRY)
        return block


Fetch = Callable[[Sequence[Span]], Coroutine[Any, Any, Sequence[bytes]]]
"""A function that reads spans of an object from its storage and verifies them."""

_READERS: Final = 4
_UNWRITTEN: Final = 32 << 20
"""Largest number of bytes that wait for the disk.

If the disk is slower than the storage, only part of the data is cached.
"""
_PAUSE_SECONDS: Final = 60
"""The number of seconds without writes after the disk has failed."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheOptions:
    """The directory of a cache and its size in bytes; without a directory, the cache uses `memory_bytes` of memory."""

    directory: Path | None = None
    bytes: int = CACHE_BYTES
    memory_bytes: int = CACHE_MEMORY_BYTES


@dataclass(slots=True)
class Counts:
    """The reads of blocks and records that a cache answered (hits), and the reads that went to the storage (misses)."""

    hits: int = 0
    hit_bytes: int = 0
    misses: int = 0
    missed_bytes: int = 0
    failures: int = 0
    """The number of writes that the disk refused."""


class BlockCache:
    """A cache for the objects of one storage; `close` also waits for running writes."""

    def __init__(self, options: CacheOptions) -> None:
        self.counts = Counts()
        self._counting = threading.Lock()
        self._memory = MemoryBlocks(options.memory_bytes)
        self._disk = _opened(options)
        # These threads are separate, because all threads of the stores may be waiting for reads of the cache.
        self._readers = Executor(_READERS, "cache-read")
        self._writer = Executor(1, "cache-write")
        self._flights: SingleFlight[tuple[str, tuple[Span, ...]], Sequence[bytes]] = SingleFlight()
        self._records: SingleFlight[str, bytes] = SingleFlight()
        self._writing: set[asyncio.Task[None]] = set()
        self._unwritten = 0
        self._paused_until = float("-inf")

    @property
    def evicted(self) -> int:
        """The number of files that this process has removed to make room."""
        return self._disk.evicted if self._disk is not None else 0

    async def close(self) -> None:
        """Finish running fetches and writes, then close the directory."""
        await self._flights.idle()
        await self._records.idle()
        await self.written()
        await self._readers.close()
        await self._writer.close()
        if self._disk is not None:
            self._disk.close()

    async def written(self) -> None:
        """Wait until no write is running."""
        while self._writing:
            await asyncio.gather(*self._writing)

    async def record(self, name: str, read: Callable[[], Awaitable[bytes]]) -> bytes:
        """Return the record called `name` from the cache, or call `read`, which must return the verified record."""
        return await self._records.get(name, lambda: self._record(name, read))

    async def _record(self, name: str, read: Callable[[], Awaitable[bytes]]) -> bytes:
        disk = self._disk
        if disk is None:
            found = self._memory.read_record(name)
        else:
            found = await self._readers.run(lambda: _quietly(lambda: disk.read_record(name)))
        if found is not None:
            self._hit(len(found))
            return found
        data = await read()
        self._missed(len(data))
        if disk is None:
            self._memory.write_record(name, data)
        else:
            self._write(len(data), lambda: disk.write_record(name, data))
        return data

    def read_now(self, name: str, start: int, end: int, sums: bytes) -> bytes | None:
        """Return whole verified blocks if no read has to wait for the disk; else None. Any thread may call this."""
        disk = self._disk
        if disk is None:
            data = self._memory.read_now(name, start, end)
        else:
            data = _joined(disk.read_now(name, low, high, sums) for low, high in _segments(start, end))
        if data is not None:
            self._hit(len(data))
        return data

    async def look(self, name: str, start: int, end: int, sums: bytes) -> bytes | None:
        """Return whole verified blocks from memory or disk, or None when any of them is missing."""
        data = self.read_now(name, start, end, sums)
        if data is None and self._disk is not None:
            data = await self._readers.run(lambda: self._read(name, (start, end), sums))
        return data

    async def fetch(self, name: str, spans: Sequence[Span], sums: bytes, fetch: Fetch) -> list[bytes]:
        """Return whole verified blocks of each span, from the cache or from `fetch`."""
        found = [self.read_now(name, start, end, sums) for start, end in spans]
        missing = tuple(span for data, span in zip(found, spans, strict=True) if data is None)
        if not missing:
            return [data for data in found if data is not None]
        # Reading the disk is part of the shared fetch. Otherwise a caller that read the disk just before another
        # caller's fetch ended would fetch the blocks again.
        filled = iter(await self._flights.get((name, missing), lambda: self._filled(name, missing, sums, fetch)))
        return [next(filled) if data is None else data for data in found]

    async def _filled(self, name: str, spans: Sequence[Span], sums: bytes, fetch: Fetch) -> list[bytes]:
        """Return whole verified blocks of each span, from the disk or from `fetch`."""
        found: list[bytes | None] = [None] * len(spans)
        if self._disk is not None:
            found = await self._readers.run(lambda: [self._read(name, span, sums) for span in spans])
        missing = [span for data, span in zip(found, spans, strict=True) if data is None]
        fetched = iter(await fetch(missing) if missing else ())
        return [
            self._fetched(name, span, next(fetched)) if data is None else data
            for data, span in zip(found, spans, strict=True)
        ]

    def _read(self, name: str, span: Span, sums: bytes) -> bytes | None:
        disk = self._disk
        assert disk is not None
        data = _quietly(lambda: _joined(disk.read(name, low, high, sums) for low, high in _segments(*span)))
        if data is not None:
            self._hit(len(data))
        return data

    def _fetched(self, name: str, span: Span, data: bytes) -> bytes:
        """Add `data` to the cache and return it."""
        self.keep(name, span[0], memoryview(data))
        return data

    def keep(self, name: str, start: int, data: memoryview, passed: int = 0) -> None:
        """Add whole blocks that the caller has read from the storage and verified.

        `passed` is the number of earlier bytes of the same stream. Memory keeps only the beginning
        of a stream.
        """
        self._missed(len(data))
        disk = self._disk
        if disk is None:
            # More blocks would evict the beginning, and then the next reader would have to stream everything again.
            if not passed or passed + len(data) <= self._memory.scan_room:
                self._memory.write(name, start, data)
            return
        for low, high in _segments(start, start + len(data)):
            piece = data[low - start : high - start]
            self._write(len(piece), partial(disk.write, name, low, piece))

    def _write(self, size: int, call: Callable[[], None]) -> None:
        """Start a write to the disk, unless too many writes are waiting or a write has failed recently."""
        if self._unwritten + size > _UNWRITTEN or time.monotonic() < self._paused_until:
            return
        self._unwritten += size
        task = asyncio.create_task(self._written(size, call))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _written(self, size: int, call: Callable[[], None]) -> None:
        try:
            await self._writer.run(call)
        except OSError as error:
            self.counts.failures += 1
            if self._paused_until == float("-inf"):
                _log.warning("cannot write to the cache, continuing without: %s", _reason(error))
            self._paused_until = time.monotonic() + _PAUSE_SECONDS
        finally:
            self._unwritten -= size

    def _hit(self, size: int) -> None:
        with self._counting:
            self.counts.hits += 1
            self.counts.hit_bytes += size

    def _missed(self, size: int) -> None:
        with self._counting:
            self.counts.misses += 1
            self.counts.missed_bytes += size


def _opened(options: CacheOptions) -> DiskBlocks | None:
    """Open the directory of the cache; log a warning and return None when it cannot be used."""
    if options.directory is None:
        return None
    try:
        return DiskBlocks(options.directory, options.bytes)
    except OSError as error:
        _log.warning("cannot use PROTOSLICE_CACHE_DIRECTORY, caching in memory: %s", _reason(error))
        return None


def _reason(error: OSError) -> str:
    return os.strerror(error.errno or errno.EIO) if error.errno is not None else str(error)


def _segments(start: int, end: int) -> Iterator[Span]:
    """Split a span at the segment boundaries and yield the parts."""
    while start < end:
        stop = min(end, start - start % SEGMENT + SEGMENT)
        yield start, stop
        start = stop


def _joined(parts: Iterator[bytes | None]) -> bytes | None:
    """Return all parts joined, or None if any part is missing."""
    found = []
    for part in parts:
        if part is None:
            return None
        found.append(part)
    return found[0] if len(found) == 1 else b"".join(found)


def _quietly(read: Callable[[], bytes | None]) -> bytes | None:
    """Return the result of `read`; return None on a disk error, because the storage has the same bytes."""
    try:
        return read()
    except OSError:
        return None
