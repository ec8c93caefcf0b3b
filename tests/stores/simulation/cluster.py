"""Replicas over one storage: machines that serve stores, die, stand still, and are started again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from tests.stores.simulation.faults import REQUEST, Fate, Fates, Request
from tests.stores.simulation.journal import Journal
from tests.stores.simulation.loop import MACHINE, SimulatedLoop, Stuck

from protoslice.errors import Conflict, ProtosliceError, StorageUnavailable
from protoslice.storage import MemoryStorage, ObjectKey
from protoslice.storage.interceptor import InterceptedStorage
from protoslice.storage.interface import PAGE, Abilities, Buffer, Page
from protoslice.stores import StoreOptions, Stores

__all__ = ["Cluster", "Died", "Machine", "Unreachable"]

T = TypeVar("T")

EPOCH = 1_800_000_000.0
"""When every history begins."""
RESTART_SECONDS = 5.0
SETTLED_SECONDS = 50_000.0
"""Longer than anything takes."""


class Died(BaseException):
    """A call of a machine that is dead: nothing that it still does has any effect."""


class Unreachable(Exception):
    """No answer: the machine is down, has died meanwhile, or the client has lost its patience."""


class Machine:
    """A process that serves stores; when it dies, another one comes in its place."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.name = name
        self.skew = cluster.skew * (2 * cluster.request(f"{name}'s clock", "").random.random() - 1)
        """By how many seconds its clock is wrong."""
        self.dead = False
        self.still_until = 0.0
        self.stores: Stores | None = None
        self.death: asyncio.Future[None] = cluster.loop.create_future()
        self.storage = MachineStorage(cluster, self)


class Cluster:
    """The machines, the storage that they share, and the time."""

    def __init__(
        self,
        loop: SimulatedLoop,
        seed: int,
        fates: Fates,
        journal: Journal,
        options: StoreOptions,
        *,
        page: int = PAGE,
        conditional_delete: bool = True,
        skew: float = 0.0,
    ) -> None:
        self.loop = loop
        self.seed = seed
        self.fates = fates
        self.journal = journal
        self.truth = MemoryStorage()
        self.page = page
        """As many objects as a page of a listing shows at most."""
        self.conditional_delete = conditional_delete
        """See `Abilities.conditional_delete`: many a bucket has none."""
        self.skew = skew
        """By how many seconds the clocks of machines may be wrong."""
        self.at_peace = False
        """Whether calls of the storage take no time, and nothing befalls them: when all is over, and is looked at."""
        self.touched: set[str] = set()
        """The keys of objects that were read in peace."""
        self.machines: dict[int, Machine] = {}
        self._outside = Context()
        self._starts: Counter[int] = Counter()

        self._begun: list[tuple[Machine, asyncio.Task[Any]]] = []
        self._options = options

    def time(self) -> float:
        """See `Nature.time`."""
        machine = MACHINE.get()
        return EPOCH + self.loop.now + (machine.skew if isinstance(machine, Machine) else 0.0)

    def token_hex(self, nbytes: int | None = None) -> str:
        """See `Nature.token_hex`."""
        return REQUEST.get().random.randbytes(nbytes or 32).hex()

    def request(self, label: str, kind: str) -> Request:
        """A request with a label of its own."""
        return Request(self.seed, label, kind)

    def begin(self, machine: Machine, request: Request, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Let a machine do something."""
        context = self._outside.copy()
        context.run(MACHINE.set, machine)
        context.run(REQUEST.set, request)
        task = self.loop.create_task(work, context=context)
        self._begun.append((machine, task))
        return task

    async def start(self, number: int) -> Machine:
        """Start machine `number`, however often it takes."""
        while True:
            name = f"r{number}" + "'" * self._starts[number]
            self._starts[number] += 1
            machine = self.machines[number] = Machine(self, name)
            opening = Stores.open(machine.storage, self._options)
            task = self.begin(machine, self.request(f"{name} starts", "start"), opening)
            waiting: set[asyncio.Future[Any]] = {task, machine.death}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            with suppress(ProtosliceError, asyncio.InvalidStateError):
                stores = task.result()
                stores.uploads  # noqa: B018  # refused where the storage seemed to break its promises
                machine.stores = stores
                return machine
            machine.dead = True
            await asyncio.sleep(RESTART_SECONDS)

    async def settle(self) -> None:
        """Let all come to its end: no more trouble comes, and who stands still goes on."""
        self.fates.calm = True
        await asyncio.sleep(SETTLED_SECONDS)
        waiting = [task.get_name() for machine, task in self._begun if not (machine.dead or task.done())]
        if waiting:
            raise Stuck(f"{len(waiting)} requests have not ended")
        self.at_peace = True

    def kill(self, machine: Machine) -> None:
        """End a machine at once; another one comes in its place after a while."""
        if machine.dead:
            return
        machine.dead = True
        machine.death.set_result(None)
        number = next((number for number, each in self.machines.items() if each is machine), None)
        if number is not None and machine.stores is not None:
            self.loop.call_later(
                RESTART_SECONDS, lambda: self.loop.create_task(self.start(number)), context=self._outside
            )

    def outside(self, delay: float, call: Callable[..., object], *args: object) -> None:
        """Call something after a while that belongs to no machine."""
        self.loop.call_later(delay, call, *args, context=self._outside)


class MachineStorage(InterceptedStorage):
    """The storage as a machine sees it, over a network that is in the hands of fate."""

    def __init__(self, cluster: Cluster, machine: Machine) -> None:
        super().__init__(cluster.truth)
        self._cluster = cluster
        self._machine = machine

    async def list(self, prefix: ObjectKey | None = None, *, after: ObjectKey | None = None, limit: int = PAGE) -> Page:
        """See `Storage.list`."""
        return await super().list(prefix, after=after, limit=min(limit, self._cluster.page))

    @property
    def abilities(self) -> Abilities:
        """See `Storage.abilities`."""
        return replace(super().abilities, conditional_delete=self._cluster.conditional_delete)

    async def put(self, key: ObjectKey, data: Buffer, *, if_etag: str | None = None) -> str:
        """See `Storage.put`."""
        name = "put" if if_etag is None else "put_if_same"
        return await self.around(name, key, lambda: self._inner.put(key, data, if_etag=if_etag))

    async def delete(self, key: ObjectKey, *, if_etag: str | None = None) -> None:
        """See `Storage.delete`."""
        name = "delete" if if_etag is None else "delete_if_same"
        assert if_etag is None or self._cluster.conditional_delete
        await self.around(name, key, lambda: self._inner.delete(key, if_etag=if_etag))

    async def around(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        """See `InterceptedStorage.around`."""
        if self._machine.dead or self._cluster.loop.ending:
            raise Died
        if self._cluster.at_peace:
            self._cluster.touched.add(str(key))
            return await call()
        sent = _Sent(self._cluster, self._machine, name, key, call)
        try:
            result: T = await sent.answer
        except asyncio.CancelledError:
            sent.give_up()
            raise
        return result


class _Sent:
    """A call of the storage on its way."""

    def __init__(
        self,
        cluster: Cluster,
        machine: Machine,
        name: str,
        key: ObjectKey | None,
        call: Callable[[], Awaitable[object]],
    ) -> None:
        self.answer: asyncio.Future[Any] = cluster.loop.create_future()
        self._cluster = cluster
        self._machine = machine
        self._name = name
        self._key = key
        self._call = call
        self._request = REQUEST.get()
        self._arrived = False
        there, self._back, self._fate = cluster.fates.of(self._request, name)
        if self._fate is not None and self._fate.kind == "late":
            cluster.outside(there + self._back, self._return, None, StorageUnavailable("no answer came in time"))
            there += self._fate.there
        cluster.outside(there, self._arrive)

    def give_up(self) -> None:
        """Nobody waits any more: it has its effect now, or none."""
        if not self._machine.dead and not self._arrived and self._request.random.random() < 0.5:
            self._arrive()
        self._arrived = True

    def _arrive(self) -> None:
        if self._arrived:
            return
        self._arrived = True
        cluster, fate = self._cluster, self._fate
        kind = fate.kind if fate is not None else ""
        if fate is not None:
            cluster.journal.trouble(self._request.kind, self._name, self._key, fate)
        result: object = None
        error: Exception | None = None
        if kind == "fails":
            error = StorageUnavailable("it did not happen")
        elif kind != "dies":
            try:
                result = _at_once(self._call)
            except ProtosliceError as found:
                error = found
        who = f"{self._machine.name} {self._request.label}"
        outcome = partial(_outcome, result, error, fate)
        cluster.journal.call(cluster.loop.now, who, self._name, self._key, fate=fate, outcome=outcome)
        if error is None and kind in {"lost", "denied"}:
            error = StorageUnavailable("the answer got lost") if kind == "lost" else Conflict("somebody else was first")
        if kind.startswith("dies"):
            cluster.kill(self._machine)
        elif kind == "still" and fate is not None:
            self._machine.still_until = max(self._machine.still_until, cluster.loop.now + fate.still)
        cluster.outside(self._back, self._return, result, error)

    def _return(self, result: object, error: Exception | None) -> None:
        if self.answer.done():
            return
        if error is None:
            self.answer.set_result(result)
        else:
            self.answer.set_exception(error)
            self.answer.exception()  # a dead machine does not ask


def _at_once(call: Callable[[], Awaitable[T]]) -> T:
    """The result of a call of the storage in memory, which waits for nothing."""

    async def run() -> T:
        return await call()

    running = run()
    try:
        while True:
            running.send(None)
    except StopIteration as done:
        result: T = done.value
        return result


def _outcome(result: object, error: Exception | None, fate: Fate | None) -> str:
    """What a reader is told of a call."""
    said = type(error).__name__ if error is not None else f"{len(result)} B" if isinstance(result, bytes) else "ok"
    match fate:
        case None:
            return said
        case Fate("slow"):
            return f"{said}  ({fate.there:.1f} s there, {fate.back:.1f} s back)"
        case Fate("still"):
            return f"{said}  (THE MACHINE STANDS STILL FOR {fate.still:.0f} s)"
    told = {
        "fails": "FAILS",
        "late": f"LATE BY {fate.there:.1f} s, AND BELIEVED TO HAVE FAILED",
        "lost": "DONE, BUT THE ANSWER IS LOST",
        "denied": "DONE, BUT TOLD Conflict",
    }
    return f"{said}  ({told.get(fate.kind, 'THE MACHINE DIES')})"
