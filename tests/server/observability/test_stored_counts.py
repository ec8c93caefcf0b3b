"""Counts of what the catalogue holds, as /metrics shows them: at no cost of a scrape."""

from __future__ import annotations

import asyncio

from tests.support.catalogues import InlineDatabase
from tests.support.stores import onnx, open_stores, upload

from protoslice.catalog import Database
from protoslice.catalog.database import Work
from protoslice.errors import DatabaseUnavailable
from protoslice.server.observability.stored_counts import StoredCounts
from protoslice.storage import MemoryStorage
from protoslice.stores import IngestRequest


def samples(counts: StoredCounts) -> dict[str, float]:
    """Values by name."""
    return {sample.name: sample.value for metric in counts.collect() for sample in metric.samples}


async def counted(counts: StoredCounts, database: Database) -> None:
    """Let it count once."""
    following = asyncio.create_task(counts.follow(database))
    await asyncio.sleep(0.01)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


class Away(InlineDatabase):
    """A database that does not answer."""

    async def _read(self, work: Work[object], *, background: bool) -> object:  # type: ignore[override]
        raise DatabaseUnavailable("away")


def test_counts_are_those_of_the_catalogue() -> None:
    async def work() -> None:
        storage, database, counts = MemoryStorage(), InlineDatabase(), StoredCounts()
        assert samples(counts) == {}
        stores = await open_stores(storage, database=database)
        store = (await upload(stores, onnx(20_000), IngestRequest(tags=("a", "b")))).store
        await counted(counts, database)
        found = samples(counts)
        assert (found["protoslice_stores"], found["protoslice_tags"]) == (1, 2)
        assert found["protoslice_logical_bytes"] == store.size <= found["protoslice_stored_bytes"]
        await counted(counts, Away())
        assert samples(counts) == found, "without an answer the last counts stay"
        await stores.close()

    asyncio.run(work())
