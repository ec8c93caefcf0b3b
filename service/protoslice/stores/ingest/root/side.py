"""Side object of a store: decoded bytes of its root, written and read from a worker thread."""

from __future__ import annotations

from protoslice.concurrency.executor import Worker
from protoslice.errors import InvalidInput, LimitExceeded
from protoslice.sources.files import BytesSource
from protoslice.sources.source import RangeSource
from protoslice.storage import Storage
from protoslice.stores.manifest import ObjectLocation
from protoslice.stores.objects.stored import StoredObject, open_object
from protoslice.stores.writing.new_objects import NewObjects, ObjectWriter


class StoredSide:
    """Side object of at most `room` bytes. `write` and `source` block: call them in worker threads only."""

    def __init__(
        self,
        storage: Storage,
        objects: NewObjects,
        worker: Worker,
        *,
        room: int,
        verify: bool,
    ) -> None:
        self.room = room
        self.stored: ObjectLocation | None = None
        """Location of the object after `source`; None when nothing was written."""
        self._storage = storage
        self._objects = objects
        self._worker = worker
        self._verify = verify
        self._writer: ObjectWriter | None = None
        self._opened: StoredObject | None = None
        self._closed = False

    def write(self, data: bytes, /) -> None:
        """Append `data`; `LimitExceeded` beyond `room`."""
        size = (0 if self._writer is None else self._writer.size) + len(data)
        if size > self.room:
            raise LimitExceeded(f"The decoded file has {size} bytes or more, but the upload has room for {self.room}")
        self._worker.wait_for(self._write(data))

    def source(self) -> RangeSource:
        """Publish the object and open it for reading."""
        return self._worker.wait_for(self._open())

    async def close(self) -> None:
        """Close the opened object, or discard an unpublished one."""
        self._closed = True  # a worker thread may outlive its cancelled caller
        if self._opened is not None:
            self._opened.close()
        elif self._writer is not None:
            await self._writer.abort()

    async def _write(self, data: bytes) -> None:
        if self._closed:
            raise InvalidInput("the upload was cancelled")
        if self._writer is None:
            self._writer = await self._objects.writer()
        self._writer.sums.update(data)
        await self._writer.write(data)

    async def _open(self) -> RangeSource:
        if self._writer is None or not self._writer.size:
            return BytesSource(b"")
        self.stored = await self._writer.commit()
        opened = await open_object(self._storage, self.stored, self._worker, verify=self._verify)
        if self._closed:
            opened.close()
        self._opened = opened
        return opened
