"""Bytes on their way into storage: gathered to batches, and written with their block sums."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from protoslice import _core
from protoslice.errors import ProtosliceError
from protoslice.storage import ObjectKey, Storage, Writer
from protoslice.stores.layout.fresh import commit_summed
from protoslice.stores.manifest import ObjectLocation

__all__ = ["Batches", "SummedObject"]

BATCH = 1 << 20
"""Pieces are gathered to this size: a hop to a thread for each would cost more than the work."""


class Batches:
    """Gathers pieces. While a batch is being worked on, the next one is gathered, and no more than that."""

    def __init__(self, work: Callable[[bytes], Awaitable[None]]) -> None:
        self._work = work
        self._gathered: list[bytes] = []
        self._size = 0
        self._begun = False
        self._working: asyncio.Future[None] | None = None

    async def add(self, piece: bytes) -> None:
        """Take the next piece; waits while the batch before the last is still being worked on."""
        self._gathered.append(piece)
        self._size += len(piece)
        if self._size >= BATCH:
            await self._hand_on()

    def take_all(self) -> bytes | None:
        """All that was added, which is not worked on then; none where some of it has been handed on already."""
        if self._begun:
            return None
        gathered, self._gathered, self._size = b"".join(self._gathered), [], 0
        return gathered

    async def flush(self) -> None:
        """All that was added has been worked on when this returns."""
        await self._hand_on()
        await self._idle()

    async def stop(self) -> None:
        """Drop what was gathered, and wait for the work under way, whatever comes of it."""
        self._gathered, self._size = [], 0
        with suppress(ProtosliceError):
            await self._idle()

    async def _hand_on(self) -> None:
        await self._idle()
        if self._gathered:
            batch = self._gathered[0] if len(self._gathered) == 1 else b"".join(self._gathered)
            self._gathered, self._size = [], 0
            self._begun = True
            self._working = asyncio.ensure_future(self._work(batch))

    async def _idle(self) -> None:
        if self._working is not None:
            working, self._working = self._working, None
            await working


class SummedObject:
    """An object in the making, and the sums of its blocks."""

    def __init__(
        self, storage: Storage, key: ObjectKey, writer: Writer, ready: Callable[[], Awaitable[None]] | None
    ) -> None:
        self.key = key
        self._ready = ready
        self._storage = storage
        self._writer = writer
        self._sums = _core.BlockSums()

    @classmethod
    async def open(
        cls, storage: Storage, key: ObjectKey, *, ready: Callable[[], Awaitable[None]] | None = None
    ) -> SummedObject:
        """A new object to be written at `key`; it is published once `ready` has returned."""
        return cls(storage, key, await storage.writer(key), ready)

    @property
    def size(self) -> int:
        """How much has been written."""
        return self._writer.size

    async def write(self, batch: bytes) -> None:
        """Append a batch, which `sum` is given too."""
        await self._writer.write(batch)

    def sum(self, batch: bytes) -> None:
        """Take the sums of a batch; blocks."""
        self._sums.update(batch)

    async def commit(self) -> ObjectLocation:
        """Where the object lies. It and its sums are durable when this returns."""
        size = self.size
        if self._ready is not None:
            await self._ready()
        etag = await commit_summed(self._storage, self.key, self._writer, self._sums.finish())
        return ObjectLocation(size, key=str(self.key), etag=etag)

    async def abort(self) -> None:
        """Leave nothing behind."""
        await self._writer.abort()
