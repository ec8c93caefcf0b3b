"""Reservations of objects: a process takes rows of the catalogue in blocks, so that an upload commits once."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection
from contextlib import suppress
from typing import Final

from protoslice.catalog import Database
from protoslice.catalog.database import UniqueViolation
from protoslice.catalog.objects import LEASE_SECONDS, ReservedObject, WriterTable, new_objects
from protoslice.concurrency.chores import keep_running
from protoslice.concurrency.singleflight import SingleFlight
from protoslice.errors import ProtosliceError, StorageUnavailable

BLOCK: Final = 64
"""Objects that are reserved at a time for a space."""
_TRIES: Final = 4
"""Failed reservations after which one is given up."""
_RENEW_SECONDS: Final = LEASE_SECONDS / 10


class Reservations:
    """Objects that this process may write, by space; its lease is renewed until `close`."""

    def __init__(self, database: Database, *, renew_seconds: float = _RENEW_SECONDS) -> None:
        self._table = WriterTable(database)
        self._renew_seconds = renew_seconds
        self._writer: str | None = None
        self._free: dict[str, list[ReservedObject]] = {}
        self._beginning = asyncio.Lock()
        self._filling: SingleFlight[str, bool] = SingleFlight()
        self._renewing: asyncio.Task[None] | None = None
        self._dropping: set[asyncio.Task[None]] = set()

    async def take(self, space: str) -> ReservedObject:
        """Return an object for one writer."""
        lost = 0
        while lost < _TRIES:
            if free := self._free.get(space):
                return free.pop()
            try:
                lost += not await self._filling.get(space, lambda: self._fill(space))
            except UniqueViolation:  # another process has one of the ids
                lost += 1
        raise StorageUnavailable("The service is busy; try again")

    def give_back(self, space: str, objects: Collection[ReservedObject]) -> None:
        """Take back objects of which no byte was written."""
        self._free.setdefault(space, []).extend(each for each in objects if each.writer == self._writer)

    def forget(self) -> None:
        """Forget what was reserved and is not taken; the rows that there are become garbage with the writer."""
        self._free.clear()

    def drop(self, space: str, objects: Collection[ReservedObject]) -> None:
        """Leave objects that were written in vain to the collector, in the background."""
        if objects:
            task = asyncio.create_task(self._drop(space, objects))
            self._dropping.add(task)
            task.add_done_callback(self._dropping.discard)

    async def close(self) -> None:
        """End the lease; what was reserved and is not published becomes garbage."""
        if self._renewing is not None:
            self._renewing.cancel()
        await asyncio.gather(*self._dropping, return_exceptions=True)
        writer, self._writer = self._writer, None
        if writer is not None:
            unused = [(space, each) for space, free in self._free.items() for each in free]
            with suppress(ProtosliceError):  # then the lease expires
                await self._table.end(writer, unused)
        self._free.clear()

    async def _fill(self, space: str) -> bool:
        """Reserve a block of objects; return False if the lease has ended."""
        async with self._beginning:  # other spaces wait until the writer has a row
            if self._writer is None:
                await self._begin(space)
                return True
        writer = self._writer
        objects = new_objects(writer, BLOCK)
        kept = await self._table.reserve(space, objects, new=False)
        if not kept:
            self._lose(writer)
        elif self._writer == writer:
            self._free.setdefault(space, []).extend(objects)
        return kept

    async def _begin(self, space: str) -> None:
        """Become a new writer, with the first objects for a space."""
        writer = secrets.token_hex(16)
        objects = new_objects(writer, BLOCK)
        await self._table.reserve(space, objects, new=True)
        self._writer, self._free[space] = writer, objects
        if self._renewing is None:
            self._renewing = asyncio.create_task(keep_running("the renewal of a lease", self._renew))

    def _lose(self, writer: str) -> None:
        """Forget a writer whose lease has ended, with all that it reserved."""
        if self._writer == writer:
            self._writer = None
            self._free.clear()

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._renew_seconds)
            writer = self._writer
            with suppress(ProtosliceError):  # the next renewal makes up for a failed one
                if writer is not None and not await self._table.renew(writer):
                    self._lose(writer)

    async def _drop(self, space: str, objects: Collection[ReservedObject]) -> None:
        with suppress(ProtosliceError):  # then they are dropped when the lease ends
            await self._table.drop(space, objects)
