"""One history: clients play the plan through its troubles; then all is checked in peace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from tests.stores.simulation.clients import Client
from tests.stores.simulation.cluster import Cluster
from tests.stores.simulation.contents import CONTENTS
from tests.stores.simulation.faults import Fate, Fates, Place, Weather
from tests.stores.simulation.invariants import check
from tests.stores.simulation.journal import Journal
from tests.stores.simulation.ledger import Ledger, Violation
from tests.stores.simulation.loop import SimulatedLoop, Stuck
from tests.stores.simulation.nature import Nature
from tests.stores.simulation.plans import Plan, Script
from tests.stores.simulation.sending import Send
from tests.support.stores import records_apart

from protoslice.errors import ProtosliceError
from protoslice.storage import memory
from protoslice.stores import StoreOptions
from protoslice.stores.manifest import LARGEST_INLINE_SUMS
from protoslice.stores.uploads import UploadOptions

Setting = Callable[[Nature], None]
_INLINE = 200
"""Bytes of a record in a manifest: plans lie there and indexes are objects, so histories have both."""
_HELD = 40
"""Bytes of all files of a store that lie in its manifest: files of one content do."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a history."""

    violation: Violation | None
    journal: Journal
    met: dict[Place, Fate]
    """Fates of calls, by place."""


def play(plan: Plan, settle: Setting, *, lines: bool = False) -> Outcome:
    """Play a history in a nature that is given to `settle`."""
    journal = Journal(lines=lines)
    fates = Fates(plan.weather, plan.fates)
    ids = _ids(settle)
    violation = None
    try:
        with records_apart(_INLINE, sums=LARGEST_INLINE_SUMS if plan.seed % 2 else -1, files=_HELD):
            _play(plan, settle, fates, journal, ids)
    except Violation as found:
        violation = found
    return Outcome(violation, journal, fates.met)


def _play(plan: Plan, settle: Setting, fates: Fates, journal: Journal, ids: dict[str, str]) -> None:
    loop = SimulatedLoop()  # type: ignore[abstract]  # no signals, no processes, no sockets
    uploads = UploadOptions(lifetime_seconds=plan.lifetime, begin_seconds=plan.lifetime, part_bytes=plan.part_bytes)
    options = StoreOptions(uploads=uploads)
    cluster = Cluster(
        loop,
        plan.seed,
        fates,
        journal,
        options,
        page=plan.page,
        conditional_delete=plan.conditional_delete,
        skew=plan.skew,
    )
    ledger = Ledger({ids[content.name]: content for content in CONTENTS})
    ledger.late = plan.weather.late > 0
    memory._tags = count(1)
    settle(cluster)

    async def run() -> None:
        await asyncio.gather(*(cluster.start(number) for number in range(plan.replicas)))
        clients = [_follow(Client(script.name, cluster, ledger, ids), script) for script in plan.scripts]
        await asyncio.gather(*clients)
        await cluster.settle()
        await check(cluster, ledger, grace=plan.grace, lifetime=plan.lifetime)

    try:
        loop.run_until_complete(run())
    except Stuck as stuck:
        raise Violation("nobody waits for ever", str(stuck)) from stuck
    if loop.errors:
        raise Violation("no error is lost", str(loop.errors[0]))


async def _follow(client: Client, script: Script) -> None:
    for number, action in script.actions:
        try:
            await client.act(number, action)
        except ProtosliceError as error:
            raise Violation("a client is told what it can expect", f"{action}: {error!r}") from error


_known: dict[str, str] = {}


def _ids(settle: Setting) -> dict[str, str]:
    """The ids that contents have as stores, by their names: they depend on nothing else."""
    if not _known:
        loop = SimulatedLoop()  # type: ignore[abstract]
        cluster = Cluster(loop, 0, Fates(Weather(), {}), Journal(), StoreOptions())
        settle(cluster)

        async def learn() -> dict[str, str]:
            stores = (await cluster.start(0)).stores
            assert stores is not None
            machine = cluster.machines[0]
            return {
                content.name: (
                    await cluster.begin(
                        machine, cluster.request(content.name, "learn"), Send(content=content).send(stores)
                    )
                )[0]
                for content in CONTENTS
            }

        _known.update(loop.run_until_complete(learn()))
    return _known
