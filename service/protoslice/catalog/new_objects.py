"""Objects that one request writes: their rows, their bytes with checksums, and what happens to them at the end.

A process reserves the rows in blocks, so that an upload commits only once.
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
"""Objects that are reserved at a time for a space."""
USABLE_SECONDS: Final = 3600.0
"""Seconds for which reserved objects are taken; an upload has the rest of the day to write and publish them."""
_TRIES: Final = 4
"""Failed reservations after which one is given up."""


@dataclass(frozen=True, slots=True)
class _Block:
    """Objects that were reserved at one time and are not used yet."""

    at: float
    objects: list[ReservedObject]

    @property
    def is_usable(self) -> bool:
        return bool(self.objects) and monotonic() < self.at + USABLE_SECONDS


class Reservations:
    """Objects that this process may write, by space."""

    def __init__(self, database: Database) -> None:
        self._table = ObjectTable(database)
        self._free: dict[str, _Block] = {}
        self._filling: SingleFlight[str, None] = SingleFlight()
        self._background: set[asyncio.Task[None]] = set()
        self.unpublished_bytes = 0
        """Bytes of objects that were written and are neither published nor dropped."""

    async def take(self, space: str) -> ReservedObject:
        """Return an object for one request."""
        lost = 0
        while lost < _TRIES:
            block = self._free.get(space)
            if block is not None and block.is_usable:
                return block.objects.pop()
            try:
                await self._filling.get(space, lambda: self._fill(space))
            except UniqueViolation:  # another process has one of the ids
                lost += 1
        raise StorageUnavailable("The service is busy; try again")

    def forget(self) -> None:
        """Forget reserved objects that are not used; their rows become garbage in a day."""
        self._free.clear()

    def drop(self, space: str, objects: Collection[ReservedObject]) -> None:
        """Leave objects that were written but not published to the collector, in the background."""
        if objects:
            self._begin(self._table.drop(space, objects))

    async def close(self) -> None:
        """Delete the rows of reserved objects that are not used."""
        unused = [(space, each) for space, block in self._free.items() for each in block.objects]
        self._free.clear()
        if unused:
            self._begin(self._table.delete(unused))
        await asyncio.gather(*self._background, return_exceptions=True)

    async def _fill(self, space: str) -> None:
        """Reserve a block of objects, and discard those that are too old."""
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
    with suppress(ProtosliceError):  # then the rows are collected in a day
        await work


_SUMS_ROOM: Final = 1 << 20
"""Bytes of checksums that a request holds in memory, those of 16 GiB."""


class NewObjects:
    """Objects that one request writes; those that it does not publish become garbage with `end`."""

    def __init__(self, storage: Storage, reservations: Reservations, quotas: Quotas, space: str) -> None:
        self._storage = storage
        self._reservations = reservations
        self._quotas = quotas
        self._space = space
        self._reserved: dict[int, ReservedObject] = {}
        self._sizes: dict[int, int] = {}
        """Bytes of the objects of which writing has begun, with those of their checksums."""
        self._unpublished = 0
        self._sums: dict[str, bytes] = {}
        self._sums_room = _SUMS_ROOM

    @property
    def has_written(self) -> bool:
        """True when bytes of an object may be in the storage."""
        return bool(self._sizes)

    async def put(self, data: Buffer) -> ObjectKey:
        """Write a new object whole and return its key."""
        key = await self._key()
        await self._put(key, key, data)
        return key

    async def writer(self) -> ObjectWriter:
        """Begin a new object, whose bytes are counted as they arrive."""
        key = await self._key()
        self._sizes.setdefault(object_id(key.text), 0)
        return ObjectWriter(self, key, await self._storage.writer(key))

    def sums(self, key: str | None) -> bytes | None:
        """Return the checksums of an object that this request wrote, so that they are not read again.

        None if unknown.
        """
        return self._sums.get(key or "")

    def own(self, objects: Iterable[int], *, counted: bool = True) -> list[OwnObject]:
        """Return those of `objects` that this request has written, for the transaction that publishes them."""
        return [OwnObject(id, self._sizes.get(id, 0) if counted else None) for id in objects if id in self._reserved]

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """Run a transaction that publishes objects; if it finds them lost, discard all reservations.

        A database that was reset to an older state has lost all rows that this process reserved.
        """
        try:
            yield
        except ReservationLost:
            self._reservations.forget()
            raise

    def kept(self, own: Collection[OwnObject]) -> None:
        """Hand over published objects, which now have references and count for the space."""
        for each in own:
            self._reserved.pop(each.id, None)
            self._settle(self._sizes.pop(each.id, 0))

    def end(self) -> None:
        """Give up all objects that were not published."""
        self._reservations.drop(self._space, list(self._reserved.values()))
        self._settle(self._unpublished)
        self._reserved, self._sizes = {}, {}

    async def _key(self) -> ObjectKey:
        reserved = await self._reservations.take(self._space)
        self._reserved[reserved.id] = reserved
        return ObjectKey(reserved.key)

    async def _count(self, key: ObjectKey, size: int) -> None:
        """Count bytes of an object; raise `QuotaExceeded` if the bytes written so far exceed the quota."""
        id = object_id(key.text)
        await self._quotas.check(stored_bytes=self._unpublished + size)
        self._settle(-size)
        self._sizes[id] = self._sizes.get(id, 0) + size

    def _settle(self, size: int) -> None:
        """Stop counting bytes that were published or are garbage."""
        self._unpublished -= size
        self._reservations.unpublished_bytes -= size

    async def _put(self, owner: ObjectKey, key: ObjectKey, data: Buffer) -> None:
        await self._count(owner, memoryview(data).nbytes)
        await self._storage.put(key, data)

    async def _commit(self, key: ObjectKey, writer: Writer, sums: bytes) -> ObjectLocation:
        """Make the object of a writer durable, and store the checksums that its location does not hold."""
        size = writer.size
        if len(sums) <= LARGEST_INLINE_SUMS:
            return ObjectLocation(size, key=key.text, etag=await writer.commit(), sums=sums)
        # Side by side: nothing names either before both are durable.
        etag, _ = await both(writer.commit, lambda: self._put(key, sums_of(key), sums))
        if len(sums) <= self._sums_room:
            self._sums_room -= len(sums)
            self._sums[key.text] = sums
        return ObjectLocation(size, key=key.text, etag=etag)


class ObjectWriter:
    """Writer of a new object, with the checksums of its blocks."""

    def __init__(self, objects: NewObjects, key: ObjectKey, writer: Writer) -> None:
        self._objects = objects
        self._key = key
        self._writer = writer
        self.sums = _core.BlockSums()
        """Checksums of the blocks; the caller passes each batch that it writes."""

    @property
    def size(self) -> int:
        """Bytes written."""
        return self._writer.size

    async def write(self, batch: bytes | memoryview) -> None:
        """Append a batch; the caller passes the same batch to `sums`."""
        await self._objects._count(self._key, len(batch))
        await self._writer.write(batch)

    async def commit(self) -> ObjectLocation:
        """Finish the object and its checksums; both are durable on return."""
        return await self._objects._commit(self._key, self._writer, self.sums.finish())

    async def abort(self) -> None:
        """Discard the object."""
        await self._writer.abort()
