"""Clients: scripts of actions, each a request or a few, that hold the service to what it says."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any, TypeVar

from tests.stores.simulation.cluster import Cluster, Unreachable
from tests.stores.simulation.faults import REQUEST
from tests.stores.simulation.ledger import Ledger, Violation

from protoslice.errors import ProtosliceError, StorageUnavailable
from protoslice.stores import Stores

T = TypeVar("T")

TAGS = ("v1", "v2")
TROUBLE = (StorageUnavailable, Unreachable)
"""The client cannot know whether what it wanted has been done."""


class Client:
    """Does what its script says. What it is told is held against what it was told before."""

    def __init__(self, name: str, cluster: Cluster, ledger: Ledger, ids: Mapping[str, str]) -> None:
        self.name = name
        self.cluster = cluster
        self.ledger = ledger
        self.ids = ids
        """The ids of stores, by the names of their contents."""
        self.etags: dict[str, str] = {}
        """The entity tags of tags, as they were seen last."""
        self.random = Random()
        self._action: Action
        self._label = ""
        self._requests = 0

    async def act(self, number: int, action: Action) -> None:
        """Do action `number` of the script."""
        self._label, self._requests = f"{self.name}.{number}", 0
        self.random = Random(f"{self.cluster.seed} {self._label}")
        self._action = action
        await asyncio.sleep(action.wait)
        await action.run(self)

    def another(self, what: str) -> Client:
        """Another client, who acts beside this one."""
        other = Client(f"{self.name}+", self.cluster, self.ledger, self.ids)
        other._action, other._label = self._action, f"{self._label}+{what[-4:]}"
        other.random = Random(f"{self.cluster.seed} {other._label}")
        return other

    def replica(self) -> int:
        """The replica to be asked next."""
        return self.random.choice(sorted(self.cluster.machines))

    async def ask(self, kind: str, work: Callable[[Stores], Awaitable[T]], replica: int | None = None) -> T:
        """The answer of a replica; `Unreachable` when none comes in time."""
        machine = self.cluster.machines[self.replica() if replica is None else replica]
        request = self.cluster.request(f"{self._label}.{self._requests}", kind)
        leaves = self.random.random() < 0.5
        self._requests += 1
        stores = machine.stores
        if machine.dead or stores is None:
            await asyncio.sleep(1)
            raise Unreachable(f"{machine.name} is down")
        task = self.cluster.begin(machine, request, _awaited(work, stores))
        waiting: set[asyncio.Future[Any]] = {task, machine.death}
        await asyncio.wait(waiting, timeout=self._action.patience, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            if leaves:
                task.cancel()
            self.say(f"{kind} at {machine.name}: no answer{' (and leaves)' if leaves else ''}")
            raise Unreachable(f"{machine.name} does not answer")
        return self._told(kind, machine.name, task)

    def _told(self, kind: str, machine: str, task: asyncio.Task[T]) -> T:
        error = task.exception()
        self.say(f"{kind} at {machine}: {_brief(error if error is not None else task.result())}")
        if error is not None and not isinstance(error, ProtosliceError | Violation):
            raise Violation("errors are those of the vocabulary", f"{kind} ended with {error!r}") from error
        return task.result()

    def say(self, text: str) -> None:
        """Note something in the journal."""
        self.cluster.journal.told(self.cluster.loop.now, self.name, lambda: text)


async def _awaited(work: Callable[[Stores], Awaitable[T]], stores: Stores) -> T:
    return await work(stores)


def _brief(told: object) -> str:
    return f"{type(told).__name__}: {told}" if isinstance(told, Exception) else str(told)[:150]


async def pieces(data: bytes, size: int = 40) -> AsyncIterator[bytes]:
    """The body of a request, which comes slowly."""
    for at in range(0, len(data), size):
        await asyncio.sleep(0.001 + REQUEST.get().random.random() / 50)
        yield data[at : at + size]


@dataclass(frozen=True, slots=True, kw_only=True)
class Action(ABC):
    """Next deed of a client, after `wait` seconds; it leaves a replica that takes longer than `patience`."""

    wait: float = 0.0
    patience: float = 60.0

    @abstractmethod
    async def run(self, client: Client) -> None:
        """Do it. Expected failures are borne; anything else raises `Violation`."""

    def simpler(self) -> Iterator[Action]:
        """The same with less to it, for a history to be made shorter."""
        yield from self.plainer(wait=0.0)

    def plainer(self, **plain: object) -> Iterator[Action]:
        """The same for each of its fields that differs from `plain`, with that field plain."""
        for name, value in plain.items():
            if getattr(self, name) != value:
                yield replace(self, **{name: value})  # type: ignore[arg-type]
