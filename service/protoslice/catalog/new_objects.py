"""The objects that one request writes: their rows, their bytes and checksums, and their publication or disposal.

A process reserves rows for many objects in advance, so that an upload needs only one transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

from protoslice import _core
from protoslice.catalog.manifest import LARGEST_INLINE_SUMS, ObjectLocation, sums_of
from protoslice.catalog.objects import ObjectTable, OwnObject, ReservationLost, ReservedObject, new_objects, object_id
from protoslice.catalog.spaces import Quotas
from protoslice.concurrency.gather import both
from protoslice.concurrency.results import SingleFlight
from protoslice.database import Database
from protoslice.database.transactions import UniqueViolation
from protoslice.errors import ProtosliceError, StorageUnavailable
from protoslice.storage import Buffer, ObjectKey, Storage, Writer

BLOCK: Final = 64
"""Number of objects that are reserved at a time for a space."""
USABLE_SECONDS: Final = 3600.0
"""Seconds for which a reserved object may be taken; the upload then has the rest of the day to write and publish it."""
_TRIES: Final = 4
"""Number of failed reservations after which a request fails."""


@dataclass(frozen=True, slots=True)
class _Block:
    """Unused objects that were reserved at the same time."""

    at: float
    objects: list[ReservedObject]

    @property
    def is_usable(self) -> bool:
        return bool(self.objects) and monotonic() < self.at + USABLE_SECONDS


class Reservations:
    """The reserved objects that this process may write, by space."""

    def __init__(self, database: Database) -> None:
        self._table = ObjectTable(database)
        self._free: dict[str, _Block] = {}
        self._filling: SingleFlight[str, None] = SingleFlight()
        self._background: set[asyncio.Task[None]] = set()
        self.unpublished_bytes = 0
        """Bytes of objects that were written and are neither published nor dropped yet."""

    async def take(self, space: str) -> ReservedObject:
        """Return a reserved object for one request; raise `StorageUnavailable` if reservations keep failing."""
        lost = 0
        while lost < _TRIES:
            block = self._free.get(space)
            if block is not None and block.is_usable:
                return block.objects.pop()
            try:
                await self._filling.get(space, lambda: self._fill(space))
            except UniqueViolation:  # another process has reserved one of the ids
                lost += 1
        raise StorageUnavailable("The service is busy; try again")

    def forget(self) -> None:
        """Forget unused reserved objects; the collector deletes their rows after a day."""
        self._free.clear()

    def drop(self, space: str, objects: Collection[ReservedObject]) -> None:
        """Leave written but unpublished objects to the collector; this runs in the background."""
        if objects:
            self._begin(self._table.drop(space, objects))

    async def close(self) -> None:
        """Delete the rows of unused reserved objects, and wait for all background work."""
        unused = [(space, each) for space, block in self._free.items() for each in block.objects]
        self._free.clear()
        if unused:
            self._begin(self._table.delete(unused))
        await asyncio.gather(*self._background, return_exceptions=True)

    async def _fill(self, space: str) -> None:
        """Reserve a new block of objects, and discard the unused objects of the previous block."""
        at, objects = monotonic(), new_objects(BLOCK)
        await self._table.reserve(space, objects)
        old = self._free.get(space)
        self._free[space] = _Block(at, objects)
        if old is not None and old.objects:
            self._begin(self._table.delete([(space, each) for each in old.objects]))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(_suppressed(work))
        self._background.add(task)
        task.add_done_callback(self._background.discard)


async def _suppressed(work: Coroutine[Any, Any, None]) -> None:
    with suppress(ProtosliceError):  # after a failure, the collector deletes the rows a day later
        await work


_SUMS_ROOM: Final = 1 << 20
"""Largest number of bytes of checksums that a request keeps in memory; they cover 16 GiB of data."""


class NewObjects:
    """The objects that one request writes; `end` leaves the unpublished ones to the collector."""

    def __init__(self, storage: Storage, reservations: Reservations, quotas: Quotas, space: str) -> None:
        self._storage = storage
        self._reservations = reservations
        self._quotas = quotas
        self._space = space
        self._reserved: dict[int, ReservedObject] = {}
        self._sizes: dict[int, int] = {}
        """Bytes written to each object, including its checksums, by object id."""
        self._unpublished = 0
        self._sums: dict[str, bytes] = {}
        self._sums_room = _SUMS_ROOM

    @property
    def has_written(self) -> bool:
        """True if the storage may contain bytes of an object of this request."""
        return bool(self._sizes)

    async def put(self, data: Buffer) -> ObjectKey:
        """Write a whole new object and return its key."""
        key = await self._key()
        await self._put(key, key, data)
        return key

    async def writer(self) -> ObjectWriter:
        """Return a writer for a new object, whose bytes count towards the quota as they arrive."""
        key = await self._key()
        self._sizes.setdefault(object_id(key.text), 0)
        return ObjectWriter(self, key, await self._storage.writer(key))

    def sums(self, key: str | None) -> bytes | None:
        """Return the checksums of an object that this request wrote, which then need not be read from the storage.

        Return None if they are unknown.
        """
        return self._sums.get(key or "")

    def own(self, objects: Iterable[int], *, counted: bool = True) -> list[OwnObject]:
        """Return the `objects` that this request has written, for the transaction that publishes them."""
        return [OwnObject(id, self._sizes.get(id, 0) if counted else None) for id in objects if id in self._reserved]

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """Wrap a publication of objects; if their rows are lost, discard all reservations and re-raise the error.

        The rows are lost if the database was reset to an older state, which lacks all rows that this process reserved.
        """
        try:
            yield
        except ReservationLost:
            self._reservations.forget()
            raise

    def kept(self, own: Collection[OwnObject]) -> None:
        """Stop tracking objects that were published; they now have references and count in the space's usage."""
        for each in own:
            self._reserved.pop(each.id, None)
            self._settle(self._sizes.pop(each.id, 0))

    def end(self) -> None:
        """Leave all objects that were not published to the collector."""
        self._reservations.drop(self._space, list(self._reserved.values()))
        self._settle(self._unpublished)
        self._reserved, self._sizes = {}, {}

    async def _key(self) -> ObjectKey:
        reserved = await self._reservations.take(self._space)
        self._reserved[reserved.id] = reserved
        return ObjectKey(reserved.key)

    async def _count(self, key: ObjectKey, size: int) -> None:
        """Count `size` more bytes of an object; raise `QuotaExceeded` if this request then exceeds the quota."""
        id = object_id(key.text)
        await self._quotas.check(stored_bytes=self._unpublished + size)
        self._settle(-size)
        self._sizes[id] = self._sizes.get(id, 0) + size

    def _settle(self, size: int) -> None:
        """Stop counting bytes that were published or dropped."""
        self._unpublished -= size
        self._reservations.unpublished_bytes -= size

    async def _put(self, owner: ObjectKey, key: ObjectKey, data: Buffer) -> None:
        await self._count(owner, memoryview(data).nbytes)
        await self._storage.put(key, data)

    async def _commit(self, key: ObjectKey, writer: Writer, sums: bytes) -> ObjectLocation:
        """Make a writer's object durable, and store its checksums separately if they are too large for the location."""
        size = writer.size
        if len(sums) <= LARGEST_INLINE_SUMS:
            return ObjectLocation(size, key=key.text, etag=await writer.commit(), sums=sums)
        # Both writes may run at once: nothing refers to either object until both are durable.
        etag, _ = await both(writer.commit, lambda: self._put(key, sums_of(key), sums))
        if len(sums) <= self._sums_room:
            self._sums_room -= len(sums)
            self._sums[key.text] = sums
        return ObjectLocation(size, key=key.text, etag=etag)


class ObjectWriter:
    """A writer of a new object that also collects the checksums of the object's blocks."""

    def __init__(self, objects: NewObjects, key: ObjectKey, writer: Writer) -> None:
        self._objects = objects
        self._key = key
        self._writer = writer
        self.sums = _core.BlockSums()
        """Checksums of the blocks; the caller must pass each written batch to this object too."""

    @property
    def size(self) -> int:
        """The number of bytes written."""
        return self._writer.size

    async def write(self, batch: bytes | memoryview) -> None:
        """Append a batch; the caller must also pass the batch to `sums`."""
        await self._objects._count(self._key, len(batch))
        await self._writer.write(batch)

    async def commit(self) -> ObjectLocation:
        """Finish the object and its checksums, and return when all of these bytes are durable."""
        return await self._objects._commit(self._key, self._writer, self.sums.finish())

    async def abort(self) -> None:
        """Discard the object's bytes."""
        await self._writer.abort()
