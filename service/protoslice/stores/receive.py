"""Receiving one file: to storage, through the scanner and through the digests, piece by piece, with back-pressure."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from protoslice import schema
from protoslice.errors import LimitExceeded
from protoslice.storage import Storage
from protoslice.stores import keys
from protoslice.stores.arriving import Batches, SummedObject
from protoslice.stores.examine import Examination, Scan, Types
from protoslice.stores.model import FileInfo, Stored
from protoslice.stores.runner import Worker

__all__ = ["FileSink", "Received", "Scan", "Types"]


@dataclass(slots=True)
class Received:
    """A file that has arrived and is durable, but belongs to no store yet."""

    info: FileInfo
    stored: Stored
    detection: schema.Detection
    scan: Scan | None


class FileSink:
    """Takes one file. While a batch is written, scanned and digested, the next one is gathered."""

    def __init__(self, path: str, arriving: SummedObject, worker: Worker, examination: Examination, limit: int) -> None:
        self._path = path
        self._arriving = arriving
        self._worker = worker
        self._examination = examination
        self._limit = limit
        self._batches = Batches(self._work)
        self._size = 0

    @classmethod
    async def open(
        cls,
        storage: Storage,
        attempt: str,
        number: int,
        path: str,
        *,
        worker: Worker,
        wanted: str | None,
        types: Types,
        limit: int,
    ) -> FileSink:
        """A sink for file `number` of an attempt, of at most `limit` bytes; as a message of type `wanted`, if given."""
        arriving = await SummedObject.open(storage, keys.object_key(attempt, f"file-{number}"))
        return cls(path, arriving, worker, Examination(path, wanted, types), limit)

    async def write(self, piece: bytes) -> None:
        """Take the next piece; waits while the one before the last is still being worked on."""
        self._size += len(piece)
        if self._size > self._limit:
            raise LimitExceeded(f"the upload is larger than {self._limit} bytes, the most that is taken")
        await self._batches.add(piece)

    async def finish(self) -> Received:
        """End of the file: all of it is durable when this returns."""
        await self._batches.flush()
        examined = await self._worker.run(self._examination.finish)
        stored = await self._arriving.commit()
        info = FileInfo(self._path, self._size, examined.sha256.hex())
        return Received(info, stored, examined.detection, examined.scan)

    async def abort(self) -> None:
        """Leave nothing behind."""
        await self._batches.stop()
        await self._arriving.abort()

    async def _work(self, batch: bytes) -> None:
        digesting = asyncio.ensure_future(self._worker.run(lambda: self._digest(batch)))
        try:
            await self._arriving.write(batch)
        finally:
            await digesting

    def _digest(self, batch: bytes) -> None:
        self._examination.take(batch)
        self._arriving.sum(batch)
