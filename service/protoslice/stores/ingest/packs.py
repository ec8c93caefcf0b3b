"""Objects for the files of an ingest; small files share packs, since each object waits for the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from protoslice.concurrency.executor import Worker
from protoslice.stores.ingest.writers import Batches, SummedObject, WrittenSums
from protoslice.stores.manifest import LARGEST_HELD, ObjectLocation
from protoslice.stores.writing.new_objects import NewObjects

FULL_PACK = 256 << 20
"""Size at which a pack is committed and another one begins."""


class FilePlace:
    """Location of a file, set once its object is durable."""

    __slots__ = ("stored",)

    def __init__(self, stored: ObjectLocation | None = None) -> None:
        self.stored = stored


class Packs:
    """Objects of the files of one ingest."""

    def __init__(self, objects: NewObjects, worker: Worker) -> None:
        self._objects = objects
        self._worker = worker
        self._pack: SummedObject | None = None
        self._batches = Batches(self._work)
        self._places: list[tuple[FilePlace, int, int]] = []
        self._size = 0
        self.sums = WrittenSums()
        """Sums of the objects written so far."""

    async def object(self) -> SummedObject:
        """A new object for a file."""
        return await SummedObject.open(self._objects, written=self.sums)

    async def add(self, content: bytes) -> FilePlace:
        """Add a small file to the open pack; durable after `commit`."""
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
        if not self._places:
            return
        await self._batches.flush()
        pack = await (await self._opened()).commit()
        places, self._pack, self._places, self._size = self._places, None, [], 0
        await self._worker.run(lambda: _place(places, pack))

    def hold(self) -> None:
        """Leave the bytes of small files to the manifest, where they are few; `commit` writes what is left."""
        content = self._batches.take_all() if self._size <= LARGEST_HELD else None
        if not self._places or content is None:
            return
        for place, at, size in self._places:
            place.stored = ObjectLocation(size, held=content[at : at + size])
        self._places, self._size = [], 0

    async def abort(self) -> None:
        """Discard the open pack."""
        await self._batches.stop()
        pack, self._pack = self._pack, None
        if pack is not None:
            await pack.abort()

    async def _opened(self) -> SummedObject:
        """The open pack, which begins with the first bytes that are written of it."""
        if self._pack is None:
            self._pack = await self.object()
        return self._pack

    async def _work(self, batch: bytes | memoryview) -> None:
        pack = await self._opened()
        summing = asyncio.ensure_future(self._worker.run(lambda: pack.sums.update(batch)))
        try:
            await pack.write(batch)
        finally:
            await summing


def _place(places: Sequence[tuple[FilePlace, int, int]], pack: ObjectLocation) -> None:
    """Set the locations of the files in a pack, from their offsets and sizes."""
    for place, at, size in places:
        place.stored = pack if len(places) == 1 else ObjectLocation(size, parts=(pack,), at=at)
