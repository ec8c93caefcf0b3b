"""Writers: arriving pieces are gathered into batches and written with block sums."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from protoslice import _core
from protoslice.errors import ProtosliceError
from protoslice.storage import ObjectKey, Writer
from protoslice.stores.manifest import ObjectLocation
from protoslice.stores.writing.new_objects import NewObjects

BATCH = 1 << 20
"""Batch size: a thread hop per piece would cost more than the work."""


SUMS_ROOM = 1 << 20
"""Bytes of sums that an upload holds in memory, those of 16 GiB."""


class Batches:
    """Gathers pieces into batches; at most one batch is gathered while another is processed."""

    def __init__(self, work: Callable[[bytes | memoryview], Awaitable[None]]) -> None:
        self._work = work
        self._gathered: list[bytes | memoryview] = []
        self._size = 0
        self._begun = False
        self._working: asyncio.Future[None] | None = None

    async def add(self, piece: bytes | memoryview) -> None:
        """Add a piece; waits while a full batch cannot be handed on yet."""
        self._gathered.append(piece)
        self._size += len(piece)
        if self._size >= BATCH:
            await self._hand_on()

    def take_all(self) -> bytes | None:
        """All pieces, withdrawn from processing; None when a batch has been handed on already."""
        if self._begun:
            return None
        gathered, self._gathered, self._size = b"".join(self._gathered), [], 0
        return gathered

    @property
    def held(self) -> bytes | None:
        """All pieces, as long as none has been handed on; then None."""
        return None if self._begun else b"".join(self._gathered)

    async def flush(self) -> None:
        """Hand on all pieces and wait until they are processed."""
        await self._hand_on()
        await self._idle()

    async def stop(self) -> None:
        """Discard gathered pieces and wait for the batch being processed, ignoring its errors."""
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


class WrittenSums:
    """Sums of objects that an upload has written, by key, so that they are not read again."""

    def __init__(self) -> None:
        self._by_key: dict[str, bytes] = {}
        self._room = SUMS_ROOM

    def add(self, key: str, sums: bytes) -> None:
        """Note the sums of an object, while there is room."""
        if len(sums) <= self._room:
            self._room -= len(sums)
            self._by_key[key] = sums

    def get(self, key: str | None) -> bytes | None:
        """The sums of an object; None when they were not noted."""
        return self._by_key.get(key or "")


class SummedObject:
    """Object being written, with the sums of its blocks."""

    def __init__(
        self,
        objects: NewObjects,
        key: ObjectKey,
        writer: Writer,
        written: WrittenSums | None,
    ) -> None:
        self._key = key
        self._written = written
        self._objects = objects
        self._writer = writer
        self.sums = _core.BlockSums()
        """Sums of the blocks; the caller passes each batch that it writes."""

    @classmethod
    async def open(cls, objects: NewObjects, *, written: WrittenSums | None = None) -> SummedObject:
        """Begin a new object, whose sums are noted in `written`."""
        key = await objects.key()
        return cls(objects, key, await objects.writer(key), written)

    @property
    def size(self) -> int:
        """Bytes written."""
        return self._writer.size

    async def write(self, batch: bytes | memoryview) -> None:
        """Append a batch; the caller passes the same batch to `sums`."""
        await self._writer.write(batch)

    async def commit(self) -> ObjectLocation:
        """Finish the object and its sums; both are durable on return."""
        sums = self.sums.finish()
        stored = await self._objects.commit(self._key, self._writer, sums)
        if self._written is not None and stored.sums is None:
            self._written.add(self._key.text, sums)
        return stored

    async def abort(self) -> None:
        """Discard the object."""
        await self._writer.abort()
