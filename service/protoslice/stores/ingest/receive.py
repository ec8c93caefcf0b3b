"""Receiver of one file: storage, scanner and digests take it batch by batch, with back-pressure."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from protoslice import schema
from protoslice.concurrency.executor import Worker
from protoslice.errors import LimitExceeded
from protoslice.facts import File
from protoslice.stores.ingest.inspection import InspectedFile, Inspection, Scan, Types
from protoslice.stores.ingest.packs import FilePlace, Packs
from protoslice.stores.ingest.writers import Batches, SummedObject
from protoslice.stores.manifest import ObjectLocation

__all__ = ["FileSink", "Received", "Scan", "Types"]


@dataclass(slots=True)
class Received:
    """File that has arrived and belongs to no store yet."""

    info: File
    place: FilePlace
    detection: schema.Detection
    scan: Scan | None
    is_shared: bool = False
    """True for a file that lies in objects of another store."""

    @property
    def stored(self) -> ObjectLocation:
        """Location of the file, which is durable."""
        assert self.place.stored is not None, "the packs are committed before anybody looks into files"
        return self.place.stored


class FileSink:
    """Sink of file `number`: gathers a batch while the one before is written, scanned and digested.

    A file smaller than a batch goes into a pack, any other becomes an object of its own.
    """

    def __init__(
        self, number: int, path: str, packs: Packs, *, worker: Worker, inspection: Inspection, limit: int
    ) -> None:
        self._number = number
        self._path = path
        self._packs = packs
        self._worker = worker
        self._inspection = inspection
        self._limit = limit
        self._arriving: SummedObject | None = None
        self._batches = Batches(self._work)
        self._size = 0

    async def write(self, piece: bytes) -> None:
        """Append `piece`, waiting while an earlier batch is being processed; `LimitExceeded` beyond the limit."""
        self._size += len(piece)
        if self._size > self._limit:
            said = (
                f"the upload is larger than is taken: {self._path!r} goes on beyond the {self._limit} bytes left for it"
            )
            raise LimitExceeded(said)
        await self._batches.add(piece)

    async def finish(self) -> Received:
        """Finish the file, which is durable on return unless it is in a pack."""
        small = self._batches.take_all()
        if small is not None:
            place = await self._packs.add(self._number, small)
            inspected = await self._worker.run(lambda: self._inspect(small))
        else:
            await self._batches.flush()
            inspected = await self._worker.run(self._inspection.finish)
            assert self._arriving is not None
            place = FilePlace(await self._arriving.commit())
        info = File(self._path, self._size, inspected.sha256.hex())
        return Received(info, place, inspected.detection, inspected.scan)

    async def abort(self) -> None:
        """Discard the file."""
        await self._batches.stop()
        if self._arriving is not None:
            await self._arriving.abort()

    def _inspect(self, content: bytes) -> InspectedFile:
        self._inspection.take(content)
        return self._inspection.finish()

    async def _work(self, batch: bytes) -> None:
        arriving = self._arriving = self._arriving or await self._packs.object(self._number)
        digesting = asyncio.ensure_future(self._worker.run(lambda: self._digest(arriving, batch)))
        try:
            await arriving.write(batch)
        finally:
            await digesting

    def _digest(self, arriving: SummedObject, batch: bytes) -> None:
        self._inspection.take(batch)
        arriving.sum(batch)
