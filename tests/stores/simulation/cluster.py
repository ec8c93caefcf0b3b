"""Replicas over one storage: machines that serve stores, die, stand still, and are started again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from typing import Any, TypeVar

from tests.stores.simulation.faults import REQUEST, Fates, Request
from tests.stores.simulation.journal import Journal
from tests.stores.simulation.loop import MACHINE, SimulatedLoop, Stuck
from tests.stores.simulation.network import MachineDatabase, MachineStorage
from tests.support.catalogues import InlineDatabase

from protoslice.errors import ProtosliceError
from protoslice.storage import MemoryStorage
from protoslice.storage.interface import PAGE
from protoslice.stores import StoreOptions, Stores

T = TypeVar("T")

EPOCH = 1_800_000_000.0
"""When every history begins."""
RESTART_SECONDS = 5.0
SETTLED_SECONDS = 50_000.0
"""Longer than anything takes."""


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
        self.database = MachineDatabase(cluster, self)


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
        self.catalogue = InlineDatabase(lambda: EPOCH + loop.now)
        self.page = page
        """As many objects as a page of a listing shows at most."""
        self.conditional_delete = conditional_delete
        """See `Abilities.conditional_delete`: many a bucket has none."""
        self.skew = skew
        """By how many seconds the clocks of machines may be wrong."""
        self.at_peace = False
        """True once the history is over: calls then take no time and meet no trouble."""
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
            opening = Stores.open(machine.storage, machine.database, self._options)
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
