"""A replica whose transactions and storage calls fail, or are slow, late or lost, and which may die or stall."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final, TypeVar

from tests.stores.simulation.postgres import Kind, PostgresCatalogue
from tests.support.catalogues import at_once

from protoslice.database import Database
from protoslice.database.transactions import CommitUnknown, Transient, Work
from protoslice.errors import DatabaseUnavailable, ProtosliceError, StorageUnavailable
from protoslice.serving import StoreOptions
from protoslice.serving.shared import Shared
from protoslice.storage import ObjectKey
from protoslice.storage.interface import Buffer, Writer
from protoslice.storage.wrappers import InterceptedStorage
from protoslice.stores import Stores
from protoslice.stores.collection import collect_garbage
from protoslice.uploads import UploadOptions

if TYPE_CHECKING:
    from tests.stores.simulation.cluster import Cluster

T = TypeVar("T")

DELAY_SECONDS: Final = 600.0
"""The seconds between the end of an object's row and the end of its bytes."""
LATE_SECONDS: Final = 20_000.0
"""The longest delay of a write that seems to have failed: less than a day."""
TWICE_SECONDS: Final = 500.0
"""The longest delay of an acknowledged write's second effect: less than `DELAY_SECONDS`."""
SLOW_SECONDS: Final = 300.0
STALL_SECONDS: Final = (100.0, 1000.0, 3000.0)
PATIENCE_SECONDS: Final = 200.0
"""The seconds after which a client cancels a request."""
OPTIONS: Final = StoreOptions(uploads=UploadOptions(lifetime_seconds=4000, begin_seconds=4000, part_bytes=64))
_WRITES: Final = ("put", "delete")
"""The calls that may take effect late, or twice."""


class Violation(Exception):
    """The error that an invariant does not hold."""


class Unreachable(Exception):
    """The error that the replica died or the client gave up: the request may take effect, also later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """The chances of a call to meet each kind of fault."""

    slow: float = 0.0
    fails: float = 0.0
    """The call fails before it takes effect."""
    lost: float = 0.0
    """The call takes effect, and the answer is lost."""
    late: float = 0.0
    """A write fails and takes effect later, or it succeeds and takes effect again later."""
    dies: float = 0.0
    """The replica dies before the call takes effect, after that, or both, in which case the effect comes late."""
    stalls: float = 0.0
    """The replica does nothing for a time that may be longer than an upload may take."""
    jump: float = 0.0
    """The chance that a history sets the database's clock forward by hours; it has no other faults then."""

    @classmethod
    def drawn(cls, random: Random) -> Weather:
        """Return random weather, often without a kind of fault, so that the others have an effect."""
        if random.random() < 0.15:
            return cls(jump=1.0)
        return cls(
            slow=random.choice((0.0, 0.02, 0.1)),
            fails=random.choice((0.0, 0.01, 0.05)),
            lost=random.choice((0.0, 0.01, 0.05)),
            late=random.choice((0.0, 0.02, 0.1)),
            dies=random.choice((0.0, 0.0, 0.005, 0.01)),
            stalls=random.choice((0.0, 0.0, 0.005)),
        )


class Died(BaseException):
    """The error that the replica is dead: its tasks have no effect any more."""


class Replica:
    """A process that serves stores."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.dead = False
        self.still_until = 0.0
        self.death: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.database = _ReplicaDatabase(self)
        self.storage = _ReplicaStorage(self)
        self.stores = Stores(Shared(self.storage, self.database, OPTIONS))
        self.collecting = asyncio.create_task(self._collect())

    def die(self) -> None:
        """End all tasks of the replica, without any clean-up."""
        if not self.dead:
            self.dead = True
            self.death.set_result(None)
            self.collecting.cancel()

    async def _collect(self) -> None:
        while True:
            await asyncio.sleep(self.cluster.random.uniform(10, 400))
            await self.collect()

    async def collect(self) -> None:
        """Collect garbage; only an unreachable database or storage may stop that."""
        cluster = self.cluster
        try:
            await collect_garbage(
                self.storage,
                self.database,
                grace_seconds=cluster.grace,
                unfinished_seconds=cluster.unfinished,
                delay_seconds=DELAY_SECONDS,
            )
        except ProtosliceError as error:
            if not isinstance(error, StorageUnavailable):
                cluster.violations.append(f"a collector failed: {error!r}")

    async def call(
        self, name: str, effect: Callable[[], Awaitable[T]], error: Callable[[T | None], Awaitable[Exception]]
    ) -> T:
        """Return the result of `effect`, which runs at once, late or never; other calls may run before it.

        `error` is raised if it never ran (with None), or if the answer is lost. A cancelled caller does not stop it.
        """
        self.cluster.calls[name] += 1
        self._check_alive()
        if self.cluster.peace:
            return await effect()
        return await asyncio.shield(asyncio.ensure_future(self._call(effect, error, write=name in _WRITES)))

    async def _call(
        self, effect: Callable[[], Awaitable[T]], error: Callable[[T | None], Awaitable[Exception]], *, write: bool
    ) -> T:
        cluster, random = self.cluster, self.cluster.random
        await self.pause(slow=random.random() < cluster.weather.slow)
        fate = cluster.fate(write=write)
        match fate:
            case "fails":
                raise await error(None)
            case "late":
                if random.random() < 0.5:
                    cluster.later(random.uniform(0, LATE_SECONDS), effect)
                    raise await error(None)
                cluster.later(random.uniform(0, TWICE_SECONDS), effect)
            case "dies":
                if write and random.random() < 0.5:
                    cluster.later(random.uniform(0, LATE_SECONDS), effect)
                elif random.random() < 0.5:
                    await effect()
                self.die()
            case "stalls":
                self.still_until = asyncio.get_running_loop().time() + random.choice(STALL_SECONDS)
                await self.pause()
        self._check_alive()
        result = await effect()
        await self.pause()
        if fate == "lost":
            raise await error(result)
        return result

    async def pause(self, *, slow: bool = False) -> None:
        random = self.cluster.random
        await asyncio.sleep(random.uniform(0, SLOW_SECONDS) if slow else random.uniform(0.001, 0.02))
        while (left := self.still_until - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(left)
        self._check_alive()

    def _check_alive(self) -> None:
        if self.dead:
            raise Died


class _ReplicaDatabase(Database):
    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self.dialect = replica.cluster.catalogue.dialect

    async def _write(self, work: Work[T], *, background: bool) -> T:
        random = self._replica.cluster.random

        async def commit() -> tuple[T]:
            return (await self._run(work, "write"),)

        async def error(result: tuple[T] | None) -> Exception:
            if random.random() < 0.5:
                return CommitUnknown(await self._run(work, "undone") if result is None else result[0])
            no_answer = DatabaseUnavailable("The database is away")
            return no_answer if result else random.choice((no_answer, Transient("The connection was closed")))

        return (await self._replica.call("commit", commit, error))[0]

    async def _read(self, work: Work[T], *, background: bool) -> T:
        async def error(_: T | None) -> Exception:
            return Transient("The connection was closed")

        return await self._replica.call("read", lambda: self._run(work, "read"), error)

    async def _run(self, work: Work[T], kind: Kind) -> T:
        """Return the result of a transaction: one moment on SQLite, statement by statement on PostgreSQL."""
        cluster = self._replica.cluster
        if isinstance(cluster.catalogue, PostgresCatalogue) and not cluster.peace:
            return await cluster.catalogue.interleave(work, kind, self._replica.pause)
        return cluster.catalogue.run(work, "COMMIT" if kind == "write" else "ROLLBACK")

    async def close(self) -> None:
        """Do nothing: the catalogue belongs to the cluster."""


class _ReplicaStorage(InterceptedStorage):
    def __init__(self, replica: Replica) -> None:
        super().__init__(replica.cluster.storage)
        self._replica = replica

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        async def effect() -> T:
            if name == "delete":
                self._replica.cluster.check_garbage(str(key))
            return at_once(awaited(call))

        async def error(_: T | None) -> Exception:
            return StorageUnavailable("The storage does not respond")

        return await self._replica.call(name, effect, error)

    async def writer(self, key: ObjectKey) -> Writer:
        """Return a writer that puts a whole object when it is committed."""
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
