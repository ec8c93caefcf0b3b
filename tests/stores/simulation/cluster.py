"""Replicas over one catalogue and one storage, with a shared time and shared faults."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import fields
from random import Random
from typing import Any, TypeVar

from tests.stores.simulation.nature import EPOCH
from tests.stores.simulation.postgres import PostgresCatalogue
from tests.stores.simulation.replica import (
    DELAY_SECONDS,
    PATIENCE_SECONDS,
    SLOW_SECONDS,
    Replica,
    Unreachable,
    Weather,
    awaited,
)
from tests.support.catalogues import InlineDatabase, at_once

from protoslice.catalog.marker import marker_of, write_marker
from protoslice.errors import ProtosliceError
from protoslice.storage import MemoryStorage
from protoslice.stores import Stores

T = TypeVar("T")


class Cluster:
    """The replicas, their shared parts, and the faults that they meet."""

    def __init__(self, random: Random, catalogue: InlineDatabase | PostgresCatalogue, replicas: int) -> None:
        self.random = random
        self.weather = Weather.drawn(random)
        self.grace = random.choice((0.0, 300.0, 1500.0, 5000.0))
        self.unfinished = 86_400.0 if self.weather.jump else random.choice((600.0, 3000.0, 86_400.0))
        """The seconds that an upload may take, which some histories exceed."""
        self.storage = MemoryStorage()
        self.catalogue = catalogue
        self.jumped = 0.0
        """The seconds by which the database's clock was set forward."""
        self._jumped_at = -DELAY_SECONDS
        self.peace = False
        """True once calls meet no fault and take no time."""
        self.calls: Counter[str] = Counter()
        self.met: Counter[str] = Counter()
        """The number of faults by kind."""
        self.violations: list[str] = []
        catalogue._clock = self.database_time
        at_once(write_marker(self.storage, at_once(marker_of(catalogue))))
        self.replicas = [Replica(self) for _ in range(replicas)]

    def database_time(self) -> float:
        """Return the time by the database's clock."""
        return EPOCH + asyncio.get_running_loop().time() + self.jumped

    def replica(self) -> Replica:
        """Return a running replica; replace dead ones."""
        number = self.random.randrange(len(self.replicas))
        if self.replicas[number].dead:
            self.replicas[number] = Replica(self)
        return self.replicas[number]

    async def ask(self, work: Callable[[Stores], Awaitable[T]]) -> T:
        """Return the result of `work` at a replica; raise `Unreachable` if no answer arrives."""
        replica = self.replica()
        task = asyncio.ensure_future(awaited(lambda: work(replica.stores)))
        waiting: set[asyncio.Future[Any]] = {task, replica.death}
        patience = PATIENCE_SECONDS * (20 if self.weather.jump else self.random.choice((0.01, 1, 20)))
        await asyncio.wait(waiting, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        if replica.dead:
            raise Unreachable
        if task.done():
            return task.result()
        task.cancel()
        self.met["cancelled"] += 1
        raise Unreachable

    def fate(self, *, write: bool) -> str:
        """Return the fault of the next call: the name of a member of `Weather`, or None."""
        chance = self.random.random()
        for each in fields(Weather)[1:-1]:
            share: float = getattr(self.weather, each.name) if write or each.name != "late" else 0.0
            if chance < share:
                self.met[each.name] += 1
                return each.name
            chance -= share
        return ""

    def later(self, seconds: float, effect: Callable[[], Awaitable[object]]) -> None:
        """Run something after a while."""

        async def work() -> None:
            await asyncio.sleep(seconds)
            with suppress(ProtosliceError):
                await effect()

        asyncio.ensure_future(work())  # noqa: RUF006 - the loop holds its tasks

    def check_garbage(self, key: str) -> None:
        """Record a violation if an object's row exists while its bytes are about to be deleted."""
        sql = "SELECT 1 FROM objects WHERE key = :key"
        if self.catalogue.run(lambda tx: tx.all(sql, key=key.removesuffix(".sums")), "ROLLBACK"):
            self.violations.append(f"bytes of {key} are deleted, and its row exists")

    async def settle(self) -> None:
        """Wait until all replicas have ended, and collect garbage until nothing is left to do."""
        self.weather = Weather()
        for replica in self.replicas:
            replica.collecting.cancel()
        still = max(replica.still_until for replica in self.replicas) - asyncio.get_running_loop().time()
        await asyncio.sleep(max(0.0, still) + 3 * SLOW_SECONDS)
        self.peace = True
        for replica in self.replicas:
            if not replica.dead:
                if left := replica.stores.shared.reservations.unpublished_bytes:
                    self.violations.append(f"{left} bytes count as unpublished, and nothing is being written")
                await replica.stores.close()
        last = self.replica_at_peace()
        for _ in range(15):
            await asyncio.sleep(20_000)
            await last.collect()

    def replica_at_peace(self) -> Replica:
        """Return a new replica that collects no garbage."""
        replica = Replica(self)
        replica.collecting.cancel()
        return replica

    async def jump(self) -> None:
        """Set the database's clock forward, unless that was done before, and collect garbage at once."""
        if self.weather.jump and self._jumped_at + DELAY_SECONDS < asyncio.get_running_loop().time():
            self._jumped_at = asyncio.get_running_loop().time()
            self.jumped += 4000
            await self.replica().collect()


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    """Yield bytes in short pieces."""
    for at in range(0, len(data), 30):
        yield data[at : at + 30]
