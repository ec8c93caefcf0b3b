"""The files of an ingest: they are written, scanned and hashed in batches as they arrive. Slow work delays clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from protoslice.catalog.manifest import LARGEST_HELD, ObjectExtent, ObjectLocation
from protoslice.catalog.new_objects import NewObjects, ObjectWriter
from protoslice.concurrency.executor import Worker
from protoslice.detection import Detection
from protoslice.errors import ChecksumMismatch, InvalidInput, LimitExceeded, ProtosliceError
from protoslice.facts import File
from protoslice.ingest.inspection import InspectedFile, Inspection, Scan
from protoslice.ingest.sharing import Layout, Sharing
from protoslice.serving.finding import FileRef

BATCH = 1 << 20
"""The number of bytes per batch. A change of threads for each piece would cost more than the work on the piece."""
FULL_PACK = 256 << 20
"""The size in bytes at which a pack is committed and a new pack begins."""
OTHER_DIGEST: Final = "The digest does not match the received bytes: nothing was stored"
"""The error message for a wrong digest; it does not reveal whether a file with this digest is stored."""
_CLOSED: Final = "The file is closed"
FindFile = Callable[[], Awaitable[FileRef | None]]
"""A function that finds a reliable file in the storage, or returns None."""


class Batches:
    """A collector that joins pieces into batches; it collects at most one batch while another is processed."""

    def __init__(self, work: Callable[[bytes | memoryview], Awaitable[None]]) -> None:
        self._work = work
        self._gathered: list[bytes | memoryview] = []
        self._size = 0
        self._begun = False
        self._working: asyncio.Future[None] | None = None

    async def add(self, piece: bytes | memoryview) -> None:
        """Add a piece; if it completes a batch, wait until the previous batch has been processed."""
        self._gathered.append(piece)
        self._size += len(piece)
        if self._size >= BATCH:
            await self._hand_on()

    def take_all(self) -> bytes | None:
        """Remove and return all pieces; return None if a batch was already passed to processing."""
        if self._begun:
            return None
        gathered, self._gathered, self._size = b"".join(self._gathered), [], 0
        return gathered

    @property
    def held(self) -> bytes | None:
        """All pieces, or None once a batch was passed to processing."""
        return None if self._begun else b"".join(self._gathered)

    async def flush(self) -> None:
        """Process all pieces and wait until they are done."""
        await self._hand_on()
        await self._idle()

    async def stop(self) -> None:
        """Discard the collected pieces and wait for the batch in progress, ignoring its errors."""
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


class PendingLocation:
    """The location of a file, which is set once the file's object is durable."""

    __slots__ = ("stored",)

    def __init__(self, stored: ObjectLocation | None = None) -> None:
        self.stored = stored


@dataclass(slots=True)
class IngestedFile:
    """A file that has arrived but does not belong to a store yet."""

    info: File
    place: PendingLocation
    detection: Detection
    scan: Scan | None
    is_shared: bool = False
    """True if the file's bytes are in objects of another store."""

    @property
    def stored(self) -> ObjectLocation:
        """The location of the file, whose bytes are durable."""
        assert self.place.stored is not None, "the packs are committed before anybody looks into files"
        return self.place.stored


class PackWriter:
    """A writer of packs, which are objects that small files share, because making an object durable takes time."""

    def __init__(self, objects: NewObjects, worker: Worker) -> None:
        self._objects = objects
        self._worker = worker
        self._pack: ObjectWriter | None = None
        self._batches = Batches(self._work)
        self._places: list[tuple[PendingLocation, int, int]] = []
        self._size = 0

    async def add(self, content: bytes) -> PendingLocation:
        """Add a small file to the open pack; the file is durable after `commit`."""
        place = PendingLocation()
        self._places.append((place, self._size, len(content)))
        self._size += len(content)
        if content:
            await self._batches.add(content)
        if self._size >= FULL_PACK:
            await self.commit()
        return place

    def held(self, place: PendingLocation) -> bytes | None:
        """Return the content of a small file, or None once any byte of its pack was written."""
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

    def keep_inline(self) -> None:
        """Put the bytes into the manifest if the small files are few; otherwise `commit` writes them."""
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

    async def _opened(self) -> ObjectWriter:
        """Return the open pack; create it when the first bytes are written."""
        if self._pack is None:
            self._pack = await self._objects.writer()
        return self._pack

    async def _work(self, batch: bytes | memoryview) -> None:
        pack = await self._opened()
        summing = asyncio.ensure_future(self._worker.run(lambda: pack.sums.update(batch)))
        try:
            await pack.write(batch)
        finally:
            await summing


class FileWriter:
    """A writer of one file of an ingest. It collects a batch while the previous batch is processed.

    A file smaller than a batch goes into a pack. Any other file becomes an object.
    """

    def __init__(
        self,
        path: str,
        objects: NewObjects,
        packs: PackWriter,
        sharing: Sharing,
        *,
        worker: Worker,
        inspection: Inspection,
        limit: int,
        find_existing: FindFile | None = None,
    ) -> None:
        """Set up the writer; after the first batch, `find_existing` looks for a file with the expected digest."""
        self.ingested: IngestedFile | None = None
        """The file after `close`; None before."""
        self._path = path
        self._objects = objects
        self._packs = packs
        self._sharing = sharing
        self._worker = worker
        self._inspection = inspection
        self._limit = limit
        self._find_existing = find_existing
        self._existing: FileRef | None = None
        self._writer: ObjectWriter | None = None
        self._batches = Batches(self._write)
        self._shared = Batches(self._inspect)
        self._layout = Layout()
        self._size = 0

    async def write(self, piece: bytes | memoryview) -> None:
        """Append `piece`, if necessary after an earlier batch; raise `LimitExceeded` if the file is too large."""
        if self.ingested is not None:
            raise InvalidInput(_CLOSED)
        self._grow(len(piece))
        self._layout.write(len(piece))
        await self._batches.add(piece)

    async def exists_already(self) -> bool:
        """Return True when the storage is known to have a file with the expected digest."""
        find, self._find_existing = self._find_existing, None
        if find is not None:
            self._existing = await find()
        return self._existing is not None

    async def share(
        self, extent: ObjectExtent, worth: frozenset[str], pieces: AsyncIterable[bytes | memoryview]
    ) -> None:
        """Append an extent of another store's object; `pieces` are the extent's bytes, which are inspected.

        The bytes are written instead if the object is not in `worth`, or if the extent is too small to be shared.
        """
        if not self._sharing.takes(extent, worth, goes_on=self._layout.ends_before(extent)):
            async for piece in pieces:
                await self.write(piece)
            return
        self._grow(extent.size)
        await self._batches.flush()  # all bytes must be inspected in order
        async for piece in pieces:
            await self._shared.add(piece)
        await self._shared.flush()
        self._layout.share(extent)

    async def close(self) -> File:
        """Finish the file; it is durable afterwards unless it is in a pack.

        Raise `ChecksumMismatch` if the file does not have the expected digest.
        """
        if self.ingested is not None:
            raise InvalidInput(_CLOSED)
        small = None if self._layout.is_shared else self._batches.take_all()
        if small is not None:
            place = await self._packs.add(small)
            inspected = await self._worker.run(lambda: self._inspect_all(small))
        else:
            await self._batches.flush()
            inspected = await self._worker.run(self._inspection.finish)
            own = None if self._writer is None else await self._writer.commit()
            place = PendingLocation(self._layout.location(own))
        info, found = File(self._path, self._size, inspected.sha256.hex()), self._existing
        if found is not None:
            if (found.sha256, found.size) != (info.sha256, info.size):
                raise ChecksumMismatch(OTHER_DIGEST)
            place = PendingLocation(found.location)
        self.ingested = IngestedFile(info, place, inspected.detection, inspected.scan, is_shared=found is not None)
        return info

    async def abort(self) -> None:
        """Discard the file."""
        await self._batches.stop()
        await self._shared.stop()
        if self._writer is not None:
            await self._writer.abort()

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > self._limit:
            said = f"The upload is too large: {self._path!r} exceeds the {self._limit} bytes left for it"
            raise LimitExceeded(said)

    def _inspect_all(self, content: bytes) -> InspectedFile:
        self._inspection.take(content)
        return self._inspection.finish()

    async def _inspect(self, batch: bytes | memoryview) -> None:
        await self._worker.run(lambda: self._inspection.take(batch))

    async def _write(self, batch: bytes | memoryview) -> None:
        if await self.exists_already():
            await self._inspect(batch)
            return
        writer = self._writer = self._writer or await self._objects.writer()
        digesting = asyncio.ensure_future(self._worker.run(lambda: self._inspection.take(batch, writer.sums)))
        try:
            await writer.write(batch)
        finally:
            await digesting


def _place(places: Sequence[tuple[PendingLocation, int, int]], pack: ObjectLocation) -> None:
    """Set the locations of the files in a pack from their offsets and sizes."""
    for place, at, size in places:
        place.stored = pack if len(places) == 1 else ObjectLocation(size, parts=(pack,), at=at)
