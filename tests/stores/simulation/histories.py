"""One history: clients act as the seed determines; then everything is settled and checked."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, TypeVar

from tests.stores.simulation.clients import CONTENTS, SPACES, Client, sent
from tests.stores.simulation.cluster import Cluster
from tests.stores.simulation.invariants import check
from tests.stores.simulation.ledger import Ledger
from tests.stores.simulation.loop import SimulatedLoop, Stuck
from tests.stores.simulation.nature import nature
from tests.stores.simulation.postgres import PostgresCatalogue
from tests.stores.simulation.replica import Violation, Weather
from tests.stores.simulation.uploading import UploadClient
from tests.support.catalogues import InlineDatabase, at_once, empty_catalogue
from tests.support.postgres import TestServer

from protoslice.catalog.spaces import SpaceTable
from protoslice.errors import ProtosliceError
from protoslice.stores import IngestRequest

T = TypeVar("T")

_CANCELLED: Final = 20
"""How often tasks are cancelled that wait for something again."""


@dataclass(slots=True)
class Report:
    """The counts of histories."""

    histories: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    met: Counter[str] = field(default_factory=Counter)
    failed: dict[int, str] = field(default_factory=dict)
    """The violations, by seed."""

    def __str__(self) -> str:
        met = ", ".join(f"{kind} {count}" for kind, count in sorted(self.met.items()))
        return f"{self.histories} histories, {self.calls.total()} calls ({met}), {len(self.failed)} failed"


def play(seed: int, report: Report, server: TestServer | None = None) -> None:
    """Play the history of a seed, on SQLite or a server of PostgreSQL, and add it to a report."""
    report.histories += 1
    url = server and server.new_catalogue()
    catalogue = PostgresCatalogue(url) if url else empty_catalogue()
    try:
        _run(seed, lambda: _history(seed, report, catalogue))
    except Violation as violation:
        report.failed[seed] = str(violation)
    except (Stuck, ProtosliceError) as error:
        report.failed[seed] = f"unexpected {error!r}"
    finally:
        at_once(catalogue.close())
        if server and url:
            server.drop(url)


async def _history(seed: int, report: Report, catalogue: InlineDatabase | PostgresCatalogue) -> None:
    random = Random(seed)
    for space in SPACES[1:]:
        await SpaceTable(catalogue).create(space)
    cluster, ledger = Cluster(random, catalogue, random.choice((2, 2, 3))), Ledger()
    kinds = [random.choice((Client, Client, UploadClient)) for _ in range(random.choice((2, 3, 4)))]
    clients = [kind(cluster, ledger, _ids, random) for kind in kinds]
    try:
        async with asyncio.TaskGroup() as group:
            for client in clients:
                group.create_task(client.run(random.choice((4, 8, 12))))
    except* ProtosliceError as group:
        raise Violation(f"a client got {group.exceptions[0]!r}") from group
    except* Violation as group:
        raise group.exceptions[0] from None
    finally:
        report.calls += cluster.calls
        report.met += cluster.met
        if isinstance(catalogue, PostgresCatalogue):
            report.met["waits for a lock"] += catalogue.waited
    await cluster.settle()
    await check(cluster, ledger, _ids)


async def _learn() -> None:
    cluster = Cluster(Random(0), empty_catalogue(), 1)
    cluster.weather = Weather()
    for content in CONTENTS:
        _ids[content.name] = await cluster.ask(lambda stores, it=content: sent(stores, it, IngestRequest()))  # type: ignore[misc]


_ids: Final = dict[str, str]()
"""The ids of the stores by their contents."""


def _run(seed: int, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Return the result of a coroutine on a simulated loop; end all tasks that it has begun."""
    if work is not _learn and not _ids:
        _run(0, _learn)
    loop = SimulatedLoop()
    try:
        with nature(seed):
            try:
                return loop.run_until_complete(work())
            finally:
                for _ in range(_CANCELLED):
                    tasks = [task for task in loop.tasks if not task.done()]
                    if not tasks:
                        break
                    for task in tasks:
                        task.cancel()
                    loop.run_until_complete(asyncio.wait(tasks, timeout=1))
    finally:
        loop.close()
