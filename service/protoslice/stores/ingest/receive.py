"""Receiver of one file: storage, scanner and digests take it batch by batch, with back-pressure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from protoslice.concurrency.executor import Worker
from protoslice.detection import Detection
from protoslice.errors import ChecksumMismatch, LimitExceeded
from protoslice.facts import File
from protoslice.stores.finding import FileRef
from protoslice.stores.ingest.inspection import InspectedFile, Inspection, Scan
from protoslice.stores.ingest.packs import FilePlace, Packs
from protoslice.stores.ingest.sharing import Layout
from protoslice.stores.ingest.writers import Batches, SummedObject
from protoslice.stores.manifest import ObjectExtent, ObjectLocation

OTHER_DIGEST: Final = "The digest does not match the received bytes: nothing was stored"
"""The message is the same whether a file with this digest is stored or not."""
FindFile = Callable[[], Awaitable[FileRef | None]]
"""Finds a file in the storage; None when there is none to rely on."""


@dataclass(slots=True)
class Received:
    """File that has arrived and belongs to no store yet."""

    info: File
    place: FilePlace
    detection: Detection
    scan: Scan | None
    is_shared: bool = False
    """True for a file that lies in objects of another store."""

    @property
    def stored(self) -> ObjectLocation:
        """Location of the file, which is durable."""
        assert self.place.stored is not None, "the packs are committed before anybody looks into files"
        return self.place.stored


class FileSink:
    """Sink of a file: gathers a batch while the one before is written, scanned and digested.

    A file smaller than a batch goes into a pack, any other becomes an object of its own.
    """

    def __init__(
        self,
        path: str,
        packs: Packs,
        *,
        worker: Worker,
        inspection: Inspection,
        limit: int,
        find: FindFile | None = None,
    ) -> None:
        """`find` gives a file of the storage that this one is told to be, once a batch of it has come."""
        self._path = path
        self._packs = packs
        self._worker = worker
        self._inspection = inspection
        self._limit = limit
        self._find = find
        self._there: FileRef | None = None
        self._arriving: SummedObject | None = None
        self._batches = Batches(self._work)
        self._shared = Batches(self._look_at)
        self._layout = Layout()
        self._size = 0

    async def write(self, piece: bytes | memoryview) -> None:
        """Append `piece`, waiting while an earlier batch is being processed; `LimitExceeded` beyond the limit."""
        self._grow(len(piece))
        self._layout.write(len(piece))
        await self._batches.add(piece)

    async def is_there(self) -> bool:
        """True when the storage is known to have the file that this one is told to be."""
        find, self._find = self._find, None
        if find is not None:
            self._there = await find()
        return self._there is not None

    def ends_before(self, extent: ObjectExtent) -> bool:
        """See `Layout.ends_before`."""
        return self._layout.ends_before(extent)

    async def share(self, extent: ObjectExtent, pieces: AsyncIterable[bytes | memoryview]) -> None:
        """Append an extent of another store's object, whose bytes in `pieces` are inspected and not written."""
        self._grow(extent.size)
        await self._batches.flush()  # bytes are inspected in their order
        async for piece in pieces:
            await self._shared.add(piece)
        await self._shared.flush()
        self._layout.share(extent)

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > self._limit:
            said = f"The upload is too large: {self._path!r} exceeds the {self._limit} bytes left for it"
            raise LimitExceeded(said)

    async def finish(self) -> Received:
        """Finish the file, which is durable on return unless it is in a pack.

        `ChecksumMismatch` for a file that is not the one it was told to be.
        """
        small = None if self._layout.is_shared else self._batches.take_all()
        if small is not None:
            place = await self._packs.add(small)
            inspected = await self._worker.run(lambda: self._inspect(small))
        else:
            await self._batches.flush()
            inspected = await self._worker.run(self._inspection.finish)
            own = None if self._arriving is None else await self._arriving.commit()
            place = FilePlace(self._layout.location(own))
        info = File(self._path, self._size, inspected.sha256.hex())
        if self._there is None:
            return Received(info, place, inspected.detection, inspected.scan)
        if (self._there.sha256, self._there.size) != (info.sha256, info.size):
            raise ChecksumMismatch(OTHER_DIGEST)
        return Received(info, FilePlace(self._there.location), inspected.detection, inspected.scan, is_shared=True)

    async def abort(self) -> None:
        """Discard the file."""
        await self._batches.stop()
        await self._shared.stop()
        if self._arriving is not None:
            await self._arriving.abort()

    def _inspect(self, content: bytes) -> InspectedFile:
        self._inspection.take(content)
        return self._inspection.finish()

    async def _look_at(self, batch: bytes | memoryview) -> None:
        await self._worker.run(lambda: self._inspection.take(batch))

    async def _work(self, batch: bytes | memoryview) -> None:
        if await self.is_there():
            await self._look_at(batch)
            return
        arriving = self._arriving = self._arriving or await self._packs.object()
        digesting = asyncio.ensure_future(self._worker.run(lambda: self._digest(arriving, batch)))
        try:
            await arriving.write(batch)
        finally:
            await digesting

    def _digest(self, arriving: SummedObject, batch: bytes | memoryview) -> None:
        self._inspection.take(batch, arriving.sums)
