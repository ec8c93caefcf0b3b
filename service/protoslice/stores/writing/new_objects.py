"""Objects of one request: keys for them, room in the quota while they are written, and their end."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

from protoslice.catalog.objects import OwnObject, ReservationLost, ReservedObject, object_id
from protoslice.concurrency.gather import run_concurrently
from protoslice.storage import Buffer, ObjectKey, Storage, Writer
from protoslice.storage.wrappers.interceptor import WrappedWriter
from protoslice.stores.manifest import LARGEST_INLINE_SUMS, ObjectLocation, sums_of
from protoslice.stores.quotas import SpaceRoom
from protoslice.stores.writing.reservations import Reservations


class NewObjects:
    """Objects that one request writes; those that it does not publish become garbage with `end`."""

    def __init__(self, storage: Storage, reservations: Reservations, room: SpaceRoom, space: str) -> None:
        self._storage = storage
        self._reservations = reservations
        self._room = room
        self._space = space
        self._is_lost = False
        self._reserved: dict[int, ReservedObject] = {}
        self._sizes: dict[int, int] = {}
        """Bytes of the objects of which writing has begun, with those of their checksums."""

    @property
    def has_written(self) -> bool:
        """True when bytes of an object may be in the storage."""
        return bool(self._sizes)

    async def key(self) -> ObjectKey:
        """Return the key of a new object."""
        reserved = await self._reservations.take(self._space)
        self._reserved[reserved.id] = reserved
        return ObjectKey(reserved.key)

    async def put(self, data: Buffer) -> ObjectKey:
        """Write a new object whole and return its key."""
        key = await self.key()
        await self._put(key, key, data)
        return key

    async def writer(self, key: ObjectKey) -> Writer:
        """Return a writer for a new object, whose bytes are counted while they come."""
        self._sizes.setdefault(object_id(key.text), 0)
        return _CountedWriter(self, key, await self._storage.writer(key))

    async def commit(self, key: ObjectKey, writer: Writer, sums: bytes) -> ObjectLocation:
        """Make the object of a writer durable, and store the checksums that its location does not hold."""
        size = writer.size
        if len(sums) <= LARGEST_INLINE_SUMS:
            return ObjectLocation(size, key=key.text, etag=await writer.commit(), sums=sums)
        # Side by side: nothing names either before both are durable.
        etag, _ = await run_concurrently(writer.commit, lambda: self._put(key, sums_of(key), sums))
        return ObjectLocation(size, key=key.text, etag=etag)

    def own(self, objects: Iterable[int], *, counted: bool = True) -> list[OwnObject]:
        """Return those of `objects` that this request has written, for the transaction that publishes them."""
        return [
            OwnObject(id, self._sizes.get(id, 0) if counted else None, self._reserved[id].writer)
            for id in objects
            if id in self._reserved
        ]

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """Context of a transaction that publishes objects; what was reserved with lost ones is forgotten.

        A database that was set back has lost all rows that this process reserved.
        """
        try:
            yield
        except ReservationLost:
            self._is_lost = True
            self._reservations.forget()
            raise

    def kept(self, own: Collection[OwnObject]) -> None:
        """Leave objects to those who refer to them: they were published, and count for the space."""
        for each in own:
            self._reserved.pop(each.id, None)
            self._room.give(self._sizes.pop(each.id, 0))

    def end(self) -> None:
        """Give up all that was not published."""
        written = [each for id, each in self._reserved.items() if id in self._sizes]
        unused = [each for id, each in self._reserved.items() if id not in self._sizes]
        self._room.give(sum(self._sizes.values()))
        self._reserved, self._sizes = {}, {}
        if not self._is_lost:
            self._reservations.give_back(self._space, unused)
        self._reservations.drop(self._space, written)

    async def count(self, key: ObjectKey, size: int) -> None:
        """Count bytes of an object; raise `QuotaExceeded` if they do not fit."""
        id = object_id(key.text)
        await self._room.take(size)
        self._sizes[id] = self._sizes.get(id, 0) + size

    async def _put(self, owner: ObjectKey, key: ObjectKey, data: Buffer) -> None:
        await self.count(owner, memoryview(data).nbytes)
        await self._storage.put(key, data)


class _CountedWriter(WrappedWriter):
    def __init__(self, objects: NewObjects, key: ObjectKey, inner: Writer) -> None:
        super().__init__(inner)
        self._objects = objects
        self._key = key

    async def write(self, piece: Buffer) -> None:
        await self._objects.count(self._key, memoryview(piece).nbytes)
        await super().write(piece)
