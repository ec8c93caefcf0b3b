"""Replicas over one catalogue and one storage, which fail, are slow, die and stall as the seed says."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, fields
from random import Random
from typing import Any, Final, TypeVar

from tests.stores.simulation.nature import EPOCH
from tests.support.catalogues import InlineDatabase, at_once

from protoslice.catalog import Database
from protoslice.catalog.database import CommitUnknown, Transient, Work
from protoslice.errors import DatabaseUnavailable, ProtosliceError, StorageUnavailable
from protoslice.storage import MemoryStorage, ObjectKey
from protoslice.storage.interface import Buffer, Writer
from protoslice.storage.wrappers.interceptor import InterceptedStorage
from protoslice.stores import StoreOptions, Stores
from protoslice.stores.collection import collect_garbage
from protoslice.stores.uploads import UploadOptions

T = TypeVar("T")

DELAY_SECONDS: Final = 600.0
"""Seconds between the end of an object's row and that of its bytes."""
LATE_SECONDS: Final = 20_000.0
"""Longest delay of a write that is believed to have failed: less than a day."""
TWICE_SECONDS: Final = 500.0
"""Longest delay of the second effect of a write that was acknowledged: less than `DELAY_SECONDS`."""
STALL_SECONDS: Final = (100.0, 1000.0, 3000.0)
PATIENCE_SECONDS: Final = 200.0
"""Seconds after which a client cancels a request."""
OPTIONS: Final = StoreOptions(
    threads=2, uploads=UploadOptions(lifetime_seconds=4000, begin_seconds=4000, part_bytes=64)
)


class Violation(Exception):
    """Something that must hold does not."""


class Unreachable(Exception):
    """The replica died, or the client lost its patience: the request may take effect, also later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """Chances of a call to meet each kind of trouble."""

    slow: float = 0.0
    fails: float = 0.0
    """The call fails before it takes effect."""
    lost: float = 0.0
    """The call takes effect, and the answer is lost."""
    late: float = 0.0
    """A write fails and takes effect later, or it succeeds and takes effect again later."""
    dies: float = 0.0
    """The replica dies before the call takes effect, after that, or both: the effect comes late."""
    stalls: float = 0.0
    """The replica does nothing for a time that may be longer than its lease."""
    jump: float = 0.0
    """Chance of a history whose database clock is set forward by more than a lease; all else is calm there."""

    @classmethod
    def drawn(cls, random: Random) -> Weather:
        """Return random weather, often without a kind of trouble, so that the others have an effect."""
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
        if self.dead or not cluster.peace:
            task = asyncio.ensure_future(self._call(effect, fails, lost, write=write))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            return await asyncio.shield(task)
        return effect()

    async def _call(
        self, effect: Callable[[], T], fails: Callable[[], Exception], lost: Callable[[T], Exception], *, write: bool
    ) -> T:
        cluster, random = self.cluster, self.cluster.random
        await self._alive()
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
        await self._alive()
        result = effect()
        await self._pause()
        if fate == "lost":
            raise lost(result)
        return result

    async def _pause(self, *, slow: bool = False) -> None:
        random = self.cluster.random
        await asyncio.sleep(random.uniform(0, 300) if slow else random.uniform(0.001, 0.02))
        while (left := self.still_until - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(left)
        await self._alive()

    async def _alive(self) -> None:
        if self.dead:
            await asyncio.get_running_loop().create_future()


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
            return at_once(_awaited(call))

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


async def _awaited(call: Callable[[], Awaitable[T]]) -> T:
    return await call()


class Cluster:
    """The replicas, what they share, and the troubles that they meet."""

    def __init__(self, random: Random, catalogue: InlineDatabase, replicas: int) -> None:
        self.random = random
        self.weather = Weather.drawn(random)
        self.grace = random.choice((0.0, 300.0, 1500.0, 5000.0))
        self.storage = MemoryStorage()
        self.catalogue = catalogue
        self.jumped = 0.0
        """Seconds by which the clock of the database was set forward."""
        self.peace = False
        """True once calls meet no trouble and take no time."""
        self.calls: Counter[str] = Counter()
        self.met: Counter[str] = Counter()
        """Troubles by kind."""
        self.violations: list[str] = []
        self._late: set[asyncio.Task[None]] = set()
        catalogue._clock = self.database_time
        self.replicas = [Replica(self) for _ in range(replicas)]
        if self.weather.jump:
            for _ in range(4):
                self.later(random.uniform(0, 3000), self._jump)

    def database_time(self) -> float:
        """Return the time by the clock of the database."""
        return EPOCH + asyncio.get_running_loop().time() + self.jumped

    def replica(self) -> Replica:
        """Return a replica that lives; another one comes in the place of a dead one."""
        number = self.random.randrange(len(self.replicas))
        if self.replicas[number].dead:
            self.replicas[number] = Replica(self)
        return self.replicas[number]

    async def ask(self, work: Callable[[Stores], Awaitable[T]], replica: Replica | None = None) -> T:
        """Return what `work` returns at a replica; raise `Unreachable` if no answer comes."""
        replica = replica or self.replica()
        task = asyncio.ensure_future(_awaited(lambda: work(replica.stores)))
        waiting: set[asyncio.Future[Any]] = {task, replica.death}
        patience = PATIENCE_SECONDS * (20 if self.weather.jump else self.random.choice((0.01, 1, 20)))
        await asyncio.wait(waiting, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        if not replica.dead:
            task.cancel()
            self.met["cancelled"] += 1
        raise Unreachable

    def fate(self, *, write: bool) -> str:
        """Return what befalls the next call: the name of a member of `Weather`, or nothing."""
        chance = self.random.random()
        for each in fields(Weather)[1:-1]:
            share: float = getattr(self.weather, each.name) if write or each.name != "late" else 0.0
            if chance < share:
                self.met[each.name] += 1
                return each.name
            chance -= share
        return ""

    def later(self, seconds: float, effect: Callable[[], object]) -> None:
        """Let something happen after a while."""

        async def work() -> None:
            await asyncio.sleep(seconds)
            with suppress(ProtosliceError):
                effect()

        task = asyncio.create_task(work())
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    def check_garbage(self, key: str) -> None:
        """Note a violation if the row of an object exists, whose bytes are about to be deleted."""
        sql = "SELECT 1 FROM objects WHERE key = :key"
        if self.catalogue.run(lambda tx: tx.all(sql, key=key.removesuffix(".sums")), "ROLLBACK"):
            self.violations.append(f"bytes of {key} are deleted, and its row exists")

    async def settle(self) -> None:
        """Wait until all replicas have ended, and collect garbage until nothing is left to do."""
        self.weather = Weather()
        for replica in self.replicas:
            replica.collecting.cancel()
        await asyncio.sleep(STALL_SECONDS[-1] + 500)
        self.peace = True
        for replica in self.replicas:
            if not replica.dead:
                if replica.stores.room._pending:
                    self.violations.append(f"{replica.stores.room._pending} bytes are counted that nobody writes")
                await replica.stores.close()
        last = self.replica_at_peace()
        for _ in range(12):
            await asyncio.sleep(20_000)
            await collect_garbage(last.storage, last.database, grace_seconds=self.grace, delay_seconds=DELAY_SECONDS)

    def replica_at_peace(self) -> Replica:
        """Return a new replica that collects no garbage."""
        replica = Replica(self)
        replica.collecting.cancel()
        return replica

    def _jump(self) -> None:
        """Set the clock of the database forward, just before a collection."""
        self.jumped += 4000
        self.later(0, lambda: asyncio.ensure_future(self.replica().collect()))


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    """Yield bytes in short pieces."""
    for at in range(0, len(data), 30):
        yield data[at : at + 30]
