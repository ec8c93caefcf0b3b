"""Reservations of objects: a process takes rows of the catalogue in blocks, so that an upload commits once."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

from protoslice.catalog.objects import ObjectTable, ReservedObject, new_objects
from protoslice.concurrency.singleflight import SingleFlight
from protoslice.database import Database
from protoslice.database.transactions import UniqueViolation
from protoslice.errors import ProtosliceError, StorageUnavailable

BLOCK: Final = 64
"""Objects that are reserved at a time for a space."""
USABLE_SECONDS: Final = 3600.0
"""Seconds for which reserved objects are taken; an upload has the rest of the day to write and publish them."""
_TRIES: Final = 4
"""Failed reservations after which one is given up."""


@dataclass(frozen=True, slots=True)
class _Block:
    """Objects that were reserved at a time, and are free."""

    at: float
    objects: list[ReservedObject]

    @property
    def is_usable(self) -> bool:
        return bool(self.objects) and monotonic() < self.at + USABLE_SECONDS


class Reservations:
    """Objects that this process may write, by space."""

    def __init__(self, database: Database) -> None:
        self._table = ObjectTable(database)
        self._free: dict[str, _Block] = {}
        self._filling: SingleFlight[str, None] = SingleFlight()
        self._background: set[asyncio.Task[None]] = set()
        self.unpublished_bytes = 0
        """Bytes of objects that were written and are neither published nor dropped."""

    async def take(self, space: str) -> ReservedObject:
        """Return an object for one request."""
        lost = 0
        while lost < _TRIES:
            block = self._free.get(space)
            if block is not None and block.is_usable:
                return block.objects.pop()
            try:
                await self._filling.get(space, lambda: self._fill(space))
            except UniqueViolation:  # another process has one of the ids
                lost += 1
        raise StorageUnavailable("The service is busy; try again")

    def forget(self) -> None:
        """Forget what was reserved and is not taken; rows that are there become garbage in a day."""
        self._free.clear()

    def drop(self, space: str, objects: Collection[ReservedObject]) -> None:
        """Leave objects that were written in vain to the collector, in the background."""
        if objects:
            self._begin(self._table.drop(space, objects))

    async def close(self) -> None:
        """Delete the rows of what was reserved and is not taken."""
        unused = [(space, each) for space, block in self._free.items() for each in block.objects]
        self._free.clear()
        if unused:
            self._begin(self._table.delete(unused))
        await asyncio.gather(*self._background, return_exceptions=True)

    async def _fill(self, space: str) -> None:
        """Reserve a block of objects in the place of those that are too old."""
        at, objects = monotonic(), new_objects(BLOCK)
        await self._table.reserve(space, objects)
        old = self._free.get(space)
        self._free[space] = _Block(at, objects)
        if old is not None and old.objects:
            self._begin(self._table.delete([(space, each) for each in old.objects]))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(_suppressed(work))
        self._background.add(task)
        task.add_done_callback(self._background.discard)


async def _suppressed(work: Coroutine[Any, Any, None]) -> None:
    with suppress(ProtosliceError):  # then the rows are collected in a day
        await work
