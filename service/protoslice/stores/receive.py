"""Receiving one file: to storage, through the scanner and through the digests, piece by piece, with back-pressure."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from protoslice import _core, schema
from protoslice.errors import LimitExceeded, ProtosliceError
from protoslice.storage import ObjectKey, Storage, Writer
from protoslice.stores import keys
from protoslice.stores.model import UNKNOWN, FileInfo, Stored
from protoslice.stores.runner import Worker

__all__ = ["FileSink", "Received", "Scan", "Types"]

BATCH = 1 << 20
"""Pieces are gathered to this size: a hop to a thread for each would cost more than the work."""
SCANNED = ("proto", "unknown")


@dataclass(frozen=True, slots=True)
class Types:
    """Where message types are looked up: uploaded descriptor sets, then the bundled one."""

    uploaded: tuple[schema.MessageTypes, ...] = ()

    def flat(self, name: str) -> _core.Schema:
        """What the engine needs to read messages of this type; `Unsupported` when nobody knows it."""
        return self.declaring(name).flat(name)

    def declaring(self, name: str) -> schema.MessageTypes:
        """The set that declares this type."""
        return schema.find(name, self.uploaded)


@dataclass(slots=True)
class Scan:
    """What scanning a file as a proto came to."""

    type: str | None
    index: bytes | None = None
    error: ProtosliceError | None = None


@dataclass(slots=True)
class Received:
    """A file that has arrived and is durable, but belongs to no store yet."""

    info: FileInfo
    stored: Stored
    detection: schema.Detection
    scan: Scan | None


class FileSink:
    """Takes one file. While a batch is written, scanned and digested, the next one is gathered."""

    def __init__(
        self, path: str, writer: Writer, key: ObjectKey, worker: Worker, wanted: str | None, types: Types, limit: int
    ) -> None:
        self._path = path
        self._writer = writer
        self._key = key
        self._worker = worker
        self._wanted = wanted
        self._types = types
        self._limit = limit
        self._sha = hashlib.sha256()
        self._sums = _core.BlockSums()
        self._scanner: _core.Scanner | None = None
        self._scan: Scan | None = None
        self._detection: schema.Detection | None = None
        self._gathered: list[bytes] = []
        self._gathered_size = 0
        self._size = 0
        self._working: asyncio.Task[None] | None = None

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
        key = keys.object_key(attempt, f"file-{number}")
        return cls(path, await storage.writer(key), key, worker, wanted, types, limit)

    async def write(self, piece: bytes) -> None:
        """Take the next piece; waits while the one before the last is still being worked on."""
        self._size += len(piece)
        if self._size > self._limit:
            raise LimitExceeded(f"the upload is larger than {self._limit} bytes, the most that is taken")
        self._gathered.append(piece)
        self._gathered_size += len(piece)
        if self._gathered_size >= BATCH:
            await self._hand_on()

    async def finish(self, storage: Storage) -> Received:
        """End of the file: all of it is durable when this returns."""
        await self._hand_on()
        await self._idle()
        if self._detection is None:
            self._look_at(b"")
        assert self._detection is not None
        await self._worker.run(self._end_scan)
        etag = await self._writer.commit()
        await storage.put_if_absent(keys.sums_of(self._key), self._sums.finish())
        info = FileInfo(self._path, self._size, self._sha.hexdigest())
        return Received(info, Stored(self._size, key=str(self._key), etag=etag), self._detection, self._scan)

    async def abort(self) -> None:
        """Leave nothing behind."""
        if self._working is not None:
            with suppress(ProtosliceError):
                await self._working
            self._working = None
        await self._writer.abort()

    async def _hand_on(self) -> None:
        await self._idle()
        if self._gathered:
            batch = self._gathered[0] if len(self._gathered) == 1 else b"".join(self._gathered)
            self._gathered, self._gathered_size = [], 0
            self._working = asyncio.create_task(self._work(batch))

    async def _idle(self) -> None:
        if self._working is not None:
            working, self._working = self._working, None
            await working

    async def _work(self, batch: bytes) -> None:
        if self._detection is None:
            self._look_at(batch)
        digesting = asyncio.ensure_future(self._worker.run(lambda: self._digest(batch)))
        try:
            await self._writer.write(batch)
        finally:
            await digesting

    def _look_at(self, head: bytes) -> None:
        """Tell from the first batch what the file is, and begin to scan it if it may be a proto."""
        self._detection = schema.detect(head, self._path.rpartition("/")[2], None)
        if self._detection.kind not in SCANNED and not (self._wanted and self._detection.kind in {"refused", "text"}):
            return
        name = None if self._wanted == UNKNOWN else self._wanted or self._detection.type_name
        self._scan = Scan(name)
        try:
            flat = self._types.flat(name) if name else None
        except ProtosliceError as error:
            self._scan.error = error
            return
        self._scanner = _core.Scanner(flat, name)

    def _digest(self, batch: bytes) -> None:
        self._sha.update(batch)
        self._sums.update(batch)
        self._scanning(lambda scanner: scanner.feed(batch))

    def _end_scan(self) -> None:
        def end(scanner: _core.Scanner) -> None:
            assert self._scan is not None
            self._scan.index = scanner.finish(self._size)

        self._scanning(end)

    def _scanning(self, step: Callable[[_core.Scanner], None]) -> None:
        """Take a step of the scan. What fails may be a file that is not the root: whoever picks the root will tell."""
        if self._scanner is None or self._scan is None:
            return
        try:
            step(self._scanner)
        except ProtosliceError as error:
            self._scan.error, self._scanner = error, None
