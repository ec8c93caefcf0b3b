"""Blocks and records on the local disk.

A segment of 4 MiB of an object is a sparse file: each block lies at its own offset in the object, and is there exactly
if it passes its checksum. So nothing else says which blocks are there, and a crash, a full disk or damage leave blocks
that are not there. A record is a file with its own SHA-256.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from typing import Final

from protoslice import _core
from protoslice.concurrency.lru import LruCache
from protoslice.errors import IntegrityError
from protoslice.stores.cache.folder import AGAIN_SECONDS, CacheFolder
from protoslice.stores.envelope import seal, unseal

SEGMENT: Final = 4 << 20
_BLOCK: Final = 64 << 10
_OPEN: Final = 512
"""Segments that a process holds open, so that a read in the page cache is one call of the system."""


class _Segment:
    """Open segment; the descriptor is closed with the last reference, as another thread may read it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.touch_at = 0.0
        """Time by the monotonic clock from which on another use is to be noted."""

    def __del__(self) -> None:
        os.close(self.descriptor)


class DiskBlocks:
    """Blocks of objects in the files of a folder; any thread may read, one at a time may write."""

    def __init__(self, folder: CacheFolder) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._opened: LruCache[str, _Segment] = LruCache(most=_OPEN, room=_OPEN)

    @property
    def evicted(self) -> int:
        """Files that this process has removed for want of room."""
        return self._folder.evicted

    def close(self) -> None:
        """Close the folder."""
        self._folder.close()

    def read_now(self, name: str, start: int, end: int, sums: bytes) -> bytes | None:
        """Blocks within one segment, verified, when an open file has them in the page cache; else None."""
        with self._lock:
            segment = self._opened.get(_file(name, start))
        return None if segment is None else self._good(segment, start, end, sums)

    def read(self, name: str, start: int, end: int, sums: bytes) -> bytes | None:
        """Blocks within one segment, verified, or None when one of them is not there. Blocks."""
        file = _file(name, start)
        descriptor = self._folder.open(file)
        if descriptor is None:
            return None
        segment = _Segment(descriptor)
        data = os.pread(descriptor, end - start, start)
        if len(data) < end - start or _core.first_bad_block(data, start // _BLOCK, sums) is not None:
            return None
        self._touch(segment)
        with self._lock:
            self._opened.put(file, segment, 1)
        return data

    def write(self, name: str, start: int, data: memoryview) -> None:
        """Keep blocks of one segment, verified by the caller, while there is room. Blocks; `OSError`."""
        step = max(_BLOCK, self._folder.part - self._folder.part % _BLOCK)
        for at in range(0, len(data), step):
            piece = data[at : at + step]
            if not self._folder.reserve(len(piece) + -len(piece) % 4096):
                return
            # Opened anew for each piece: a segment that was evicted meanwhile must not grow where no name leads to it.
            self._put(_file(name, start), start + at, piece)

    def read_record(self, name: str) -> bytes | None:
        """The record called `name`, or None when it is not there or damaged. Blocks."""
        descriptor = self._folder.open(_record(name))
        if descriptor is None:
            return None
        with open(descriptor, "rb") as file:
            try:
                data = unseal(file.read(), name)
            except IntegrityError:
                return None
            self._folder.touch(descriptor)
            return data

    def write_record(self, name: str, data: bytes) -> None:
        """Keep a record; one too large for a reservation is not kept. Blocks; `OSError`."""
        sealed = seal(data)
        if len(sealed) <= self._folder.part and self._folder.reserve(len(sealed) + -len(sealed) % 4096):
            self._put(_record(name), 0, memoryview(sealed))

    def _put(self, file: str, start: int, data: memoryview) -> None:
        descriptor = self._folder.open(file, write=True)
        assert descriptor is not None
        try:
            while data:
                count = os.pwrite(descriptor, data, start)
                data, start = data[count:], start + count
        finally:
            os.close(descriptor)

    def _good(self, segment: _Segment, start: int, end: int, sums: bytes) -> bytes | None:
        try:
            data = _core.read_cached(segment.descriptor, start, end, sums)
        except IntegrityError:
            return None
        if data is not None:
            self._touch(segment)
        return data

    def _touch(self, segment: _Segment) -> None:
        now = time.monotonic()
        if now >= segment.touch_at:
            segment.touch_at = now + AGAIN_SECONDS
            self._folder.touch(segment.descriptor)


def _file(name: str, start: int) -> str:
    return f"b{_digest(name)}-{start // SEGMENT:x}"


def _record(name: str) -> str:
    return f"r{_digest(name)}"


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:32]
