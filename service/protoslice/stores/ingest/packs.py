"""Objects for the files of an ingest; small files share packs, since each object waits for the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from protoslice.concurrency.executor import Worker
from protoslice.storage import Storage
from protoslice.stores.catalog.claims import Lease
from protoslice.stores.ingest.writers import Batches, SummedObject, WrittenSums
from protoslice.stores.layout import keys
from protoslice.stores.manifest import LARGEST_HELD, ObjectLocation

FULL_PACK = 256 << 20
"""Size at which a pack is committed, so that new objects keep showing that the upload is alive."""


class FilePlace:
    """Location of a file, set once its object is durable."""

    __slots__ = ("stored",)

    def __init__(self, stored: ObjectLocation | None = None) -> None:
        self.stored = stored


class Packs:
    """Objects of one attempt. A pack is named by the number of its first file."""

    def __init__(self, storage: Storage, worker: Worker, attempt: str, lease: Lease) -> None:
        self._storage = storage
        self._lease = lease
        self._worker = worker
        self._attempt = attempt
        self._first: int | None = None
        self._pack: SummedObject | None = None
        self._batches = Batches(self._work)
        self._places: list[tuple[FilePlace, int, int]] = []
        self._size = 0
        self.sums = WrittenSums()
        """Sums of the objects written so far."""

    async def object(self, number: int) -> SummedObject:
        """A new object for file `number`."""
        self._lease.begin()
        key = keys.object_key(self._attempt, f"file-{number}")
        return await SummedObject.open(self._storage, key, ready=self._lease.staked, written=self.sums)

    async def add(self, number: int, content: bytes) -> FilePlace:
        """Add a small file to the open pack; durable after `commit`."""
        if self._first is None:
            self._first = number
        place = FilePlace()
        self._places.append((place, self._size, len(content)))
        self._size += len(content)
        if content:
            await self._batches.add(content)
        if self._size >= FULL_PACK:
            await self.commit()
        return place

    def held(self, place: FilePlace) -> bytes | None:
        """The content of a small file, as long as no byte of its pack is written; then None."""
        content = self._batches.held
        found = next(((at, at + size) for one, at, size in self._places if one is place), None)
        return None if content is None or found is None else content[slice(*found)]

    async def commit(self) -> None:
        """Make all small files durable and set their locations."""
        if self._first is None:
            return
        await self._batches.flush()
        pack = await (await self._opened()).commit()
        places, self._first, self._pack, self._places, self._size = self._places, None, None, [], 0
        await self._worker.run(lambda: _place(places, pack))

    def hold(self) -> None:
        """Leave the bytes of small files to the manifest, where they are few; `commit` writes what is left."""
        content = self._batches.take_all() if self._size <= LARGEST_HELD else None
        if self._first is None or content is None:
            return
        for place, at, size in self._places:
            place.stored = ObjectLocation(size, held=content[at : at + size])
        self._first, self._places, self._size = None, [], 0

    async def abort(self) -> None:
        """Discard the open pack."""
        await self._batches.stop()
        pack, self._pack = self._pack, None
        if pack is not None:
            await pack.abort()

    async def _opened(self) -> SummedObject:
        """The open pack, which begins with the first bytes that are written of it."""
        if self._pack is None:
            assert self._first is not None, "a pack has files"
            self._pack = await self.object(self._first)
        return self._pack

    async def _work(self, batch: bytes) -> None:
        pack = await self._opened()
        summing = asyncio.ensure_future(self._worker.run(lambda: pack.sum(batch)))
        try:
            await pack.write(batch)
        finally:
            await summing


def _place(places: Sequence[tuple[FilePlace, int, int]], pack: ObjectLocation) -> None:
    """Set the locations of the files in a pack, from their offsets and sizes."""
    for place, at, size in places:
        place.stored = pack if len(places) == 1 else ObjectLocation(size, parts=(pack,), at=at)
