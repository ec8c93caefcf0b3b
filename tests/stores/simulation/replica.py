"""A replica: its transactions and calls of the storage fail, are slow, late or lost, and it may die or stall."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

from tests.stores.simulation.weather import DELAY_SECONDS, LATE_SECONDS, SLOW_SECONDS, STALL_SECONDS, TWICE_SECONDS
from tests.support.catalogues import at_once

from protoslice.catalog import Database
from protoslice.catalog.database import CommitUnknown, Transient, Work
from protoslice.errors import DatabaseUnavailable, ProtosliceError, StorageUnavailable
from protoslice.storage import ObjectKey
from protoslice.storage.interface import Buffer, Writer
from protoslice.storage.wrappers.interceptor import InterceptedStorage
from protoslice.stores import StoreOptions, Stores
from protoslice.stores.collection import collect_garbage
from protoslice.stores.uploads import UploadOptions

if TYPE_CHECKING:
    from tests.stores.simulation.cluster import Cluster

T = TypeVar("T")

OPTIONS: Final = StoreOptions(
    threads=2, uploads=UploadOptions(lifetime_seconds=4000, begin_seconds=4000, part_bytes=64)
)


class Died(BaseException):
    """The replica is dead: nothing that its tasks still do has an effect."""


class Replica:
    """A process that serves stores."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.dead = False
        self.still_until = 0.0
        self.stalled = False
        self.death: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.database = _ReplicaDatabase(self)
        self.storage = _ReplicaStorage(self)
        self.stores = Stores(self.storage, self.database, OPTIONS, refused=None)
        self.collecting = asyncio.create_task(self._collect())

    def die(self) -> None:
        """End all that the replica does, without any clean-up."""
        if not self.dead:
            self.dead = True
            self.death.set_result(None)
            self.collecting.cancel()

    async def _collect(self) -> None:
        cluster = self.cluster
        while True:
            await asyncio.sleep(cluster.random.uniform(10, 400))
            await self.collect()

    async def collect(self) -> None:
        """Collect garbage; only a database or a storage that is away may stop that."""
        cluster = self.cluster
        try:
            await collect_garbage(self.storage, self.database, grace_seconds=cluster.grace, delay_seconds=DELAY_SECONDS)
        except ProtosliceError as error:
            if not isinstance(error, StorageUnavailable):
                cluster.violations.append(f"a collector failed: {error!r}")

    async def call(
        self,
        name: str,
        effect: Callable[[], T],
        fails: Callable[[], Exception],
        lost: Callable[[T], Exception],
        *,
        write: bool = False,
    ) -> T:
        """Return what `effect` returns, which takes place at once, late or never; others may run meanwhile.

        A cancelled caller does not stop it.
        """
        cluster = self.cluster
        cluster.calls[name] += 1
        self._check_alive()
        if cluster.peace:
            return effect()
        return await asyncio.shield(asyncio.ensure_future(self._call(effect, fails, lost, write=write)))

    async def _call(
        self, effect: Callable[[], T], fails: Callable[[], Exception], lost: Callable[[T], Exception], *, write: bool
    ) -> T:
        cluster, random = self.cluster, self.cluster.random
        await self._pause(slow=random.random() < cluster.weather.slow)
        fate = cluster.fate(write=write)
        match fate:
            case "fails":
                raise fails()
            case "late":
                if random.random() < 0.5:
                    cluster.later(random.uniform(0, LATE_SECONDS), effect)
                    raise fails()
                cluster.later(random.uniform(0, TWICE_SECONDS), effect)
            case "dies":
                if write and random.random() < 0.5:
                    cluster.later(random.uniform(0, LATE_SECONDS), effect)
                elif random.random() < 0.5:
                    effect()
                self.die()
            case "stalls":
                self.stalled = True
                self.still_until = asyncio.get_running_loop().time() + random.choice(STALL_SECONDS)
                await self._pause()
        self._check_alive()
        result = effect()
        await self._pause()
        if fate == "lost":
            raise lost(result)
        return result

    async def _pause(self, *, slow: bool = False) -> None:
        random = self.cluster.random
        await asyncio.sleep(random.uniform(0, SLOW_SECONDS) if slow else random.uniform(0.001, 0.02))
        while (left := self.still_until - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(left)
        self._check_alive()

    def _check_alive(self) -> None:
        if self.dead:
            raise Died


class _ReplicaDatabase(Database):
    dialect = "sqlite"

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    async def _write(self, work: Work[T], *, background: bool) -> T:
        catalogue, random = self._replica.cluster.catalogue, self._replica.cluster.random

        def fails() -> Exception:
            if random.random() < 0.3:
                return CommitUnknown(catalogue.run(work, "ROLLBACK"))
            return random.choice((DatabaseUnavailable("The database is away"), Transient("The connection was closed")))

        def lost(result: T) -> Exception:
            return CommitUnknown(result) if random.random() < 0.7 else DatabaseUnavailable("No answer in time")

        return await self._replica.call("commit", lambda: catalogue.run(work, "COMMIT"), fails, lost)

    async def _read(self, work: Work[T], *, background: bool) -> T:
        catalogue, error = self._replica.cluster.catalogue, Transient("The connection was closed")
        return await self._replica.call("read", lambda: catalogue.run(work, "ROLLBACK"), lambda: error, lambda _: error)

    async def close(self) -> None:
        """Do nothing: the catalogue belongs to the cluster."""


class _ReplicaStorage(InterceptedStorage):
    def __init__(self, replica: Replica) -> None:
        super().__init__(replica.cluster.storage)
        self._replica = replica

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        def effect() -> T:
            if name == "delete":
                self._replica.cluster.check_garbage(str(key))
            return at_once(awaited(call))

        error = StorageUnavailable("The storage does not respond")
        return await self._replica.call(name, effect, lambda: error, lambda _: error, write=name in {"put", "delete"})

    async def writer(self, key: ObjectKey) -> Writer:
        """Return a writer that puts an object whole when it is committed."""
        return _Writer(self, key)


class _Writer(Writer):
    def __init__(self, storage: _ReplicaStorage, key: ObjectKey) -> None:
        self._storage = storage
        self._key = key
        self._data = bytearray()

    @property
    def size(self) -> int:
        return len(self._data)

    async def write(self, piece: Buffer) -> None:
        self._data.extend(piece)
        await asyncio.sleep(0)

    async def commit(self) -> str:
        return await self._storage.put(self._key, bytes(self._data))

    async def abort(self) -> None: ...


async def awaited(call: Callable[[], Awaitable[T]]) -> T:
    """Return the result of a call, as a coroutine."""
    return await call()
