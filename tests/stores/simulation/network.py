"""The storage as a machine sees it: every call goes over a network that is in the hands of fate."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from tests.stores.simulation.faults import REQUEST, Fate

from protoslice.catalog import Database
from protoslice.catalog.database import CommitUnknown, Transient, Work
from protoslice.errors import Conflict, ProtosliceError, StorageUnavailable
from protoslice.storage import ObjectKey
from protoslice.storage.interface import PAGE, Abilities, Buffer, Page
from protoslice.storage.wrappers.interceptor import InterceptedStorage

if TYPE_CHECKING:
    from tests.stores.simulation.cluster import Cluster, Machine

T = TypeVar("T")


class Died(BaseException):
    """A call of a machine that is dead: nothing that it still does has any effect."""


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
        return await self.intercept(name, key, lambda: self._inner.put(key, data, if_etag=if_etag))

    async def delete(self, key: ObjectKey, *, if_etag: str | None = None) -> None:
        """See `Storage.delete`."""
        name = "delete" if if_etag is None else "delete_if_same"
        assert if_etag is None or self._cluster.conditional_delete
        await self.intercept(name, key, lambda: self._inner.delete(key, if_etag=if_etag))

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        """See `InterceptedStorage.intercept`."""
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


class MachineDatabase(Database):
    """The catalogue as a machine sees it: each transaction takes effect at once, late, or not at all."""

    dialect = "sqlite"

    def __init__(self, cluster: Cluster, machine: Machine) -> None:
        self._cluster = cluster
        self._network = machine.storage

    async def _write(self, work: Work[T], *, background: bool) -> T:
        done: list[T] = []

        async def commit() -> None:
            done.append(self._cluster.catalogue.run(work, "COMMIT"))

        try:
            await self._network.intercept("commit", None, commit)
        except StorageUnavailable:
            # The connection broke during COMMIT: what the work returned is known, and no more.
            raise CommitUnknown(done[0] if done else self._cluster.catalogue.run(work, "ROLLBACK")) from None
        return done[0]

    async def _read(self, work: Work[T], *, background: bool) -> T:
        found: list[T] = []

        async def read() -> None:
            found.append(self._cluster.catalogue.run(work, "ROLLBACK"))

        try:
            await self._network.intercept("read", None, read)
        except StorageUnavailable as error:
            raise Transient("the connection broke") from error
        return found[-1]

    async def close(self) -> None:
        """Do nothing: the catalogue belongs to the cluster."""


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
        there, self._back, self._fate = cluster.fates.of(self._request, name, key.segments[0] if key else "")
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
    """Result of a call and its trouble, as a line for readers."""
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
