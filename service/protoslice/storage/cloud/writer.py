"""Writer of a bucket's objects: one request for a small object, a multipart upload beyond."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager, suppress
from typing import Final, Protocol

from protoslice.errors import InvalidInput, LimitExceeded
from protoslice.storage.interface import Buffer, Writer
from protoslice.storage.keys import ObjectKey

MAX_PARTS: Final = 10_000


class _Dropped(Exception):
    """Raised into a multipart upload so that obstore aborts the upload."""


class Target(Protocol):
    """Storage as a `CloudWriter` needs it."""

    part_bytes: int

    async def put(self, key: ObjectKey, data: Buffer) -> str:
        """See `Storage.put`."""

    async def put_parts(self, key: ObjectKey, parts: AsyncGenerator[Buffer, None]) -> str:
        """Upload parts as one object and return its entity tag; an error of `parts` aborts and passes on."""


class CloudWriter(Writer):
    """Writer that holds one part in memory besides those under way.

    The upload is a task that takes parts from a queue. The task is never cancelled: only an error out of the parts
    makes obstore abort the upload, and a cancelled upload would leave invisible, billed parts in the storage.
    """

    def __init__(self, target: Target, key: ObjectKey) -> None:
        self._target = target
        self._key = key
        self._rest = bytearray()
        self._size = 0
        self._ended = False
        self._dropped = False
        self._queue: asyncio.Queue[Buffer] = asyncio.Queue(1)
        self._upload: asyncio.Task[str] | None = None

    @property
    def size(self) -> int:
        return self._size

    async def write(self, piece: Buffer) -> None:
        part = self._target.part_bytes
        with self._step():
            left = memoryview(piece).cast("B")
            self._size += left.nbytes
            if self._size > part * MAX_PARTS:
                raise LimitExceeded(
                    f"the object is too large: this storage allows {MAX_PARTS} parts of {part} bytes; raise "
                    "part_bytes of CloudStorage"
                )
            while left:
                if len(self._rest) == part:  # more follows: an object of one part is put in one request
                    await self._send(self._take())
                room = part - len(self._rest)
                self._rest += left[:room]
                left = left[room:]

    async def commit(self) -> str:
        with self._step():
            if self._upload is None:
                etag = await self._target.put(self._key, bytes(self._rest))
            else:
                etag = await self._finish()
        self._ended = True
        return etag

    async def abort(self) -> None:
        self._ended = True
        self._rest.clear()
        if self._upload is None:
            return
        self._dropped = True
        with suppress(asyncio.QueueFull):
            self._queue.put_nowait(b"wake up")
        await asyncio.wait({self._upload})
        if not self._upload.cancelled():
            self._upload.exception()  # retrieved, or asyncio would log it

    @contextmanager
    def _step(self) -> Iterator[None]:
        if self._ended:
            raise InvalidInput("this writer is already closed, or an earlier write failed")
        self._ended = True  # until the step has gone well
        yield
        self._ended = False

    async def _finish(self) -> str:
        upload = await self._send(self._take())
        await self._send(b"")
        return await asyncio.shield(upload)

    def _take(self) -> bytearray:
        """The bytes gathered, which are handed over without a copy and never changed again."""
        taken, self._rest = self._rest, bytearray()
        return taken

    async def _send(self, part: Buffer) -> asyncio.Task[str]:
        if self._upload is None:
            self._upload = asyncio.create_task(self._target.put_parts(self._key, self._parts()))
        putting = asyncio.ensure_future(self._queue.put(part))
        try:
            await asyncio.wait({putting, self._upload}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            putting.cancel()
        if self._upload.done():
            self._upload.result()
        return self._upload

    async def _parts(self) -> AsyncGenerator[Buffer, None]:
        while part := await self._queue.get():
            if self._dropped:
                raise _Dropped
            yield part
