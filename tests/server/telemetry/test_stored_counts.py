"""Counts of what the catalogue holds, as /metrics shows them: at no cost of a scrape."""

from __future__ import annotations

import asyncio
import time

from tests.support.catalogues import InlineDatabase
from tests.support.stores import onnx, open_stores, upload

from protoslice.database import Database
from protoslice.database.snapshots import last_snapshots
from protoslice.database.transactions import Work
from protoslice.errors import DatabaseUnavailable
from protoslice.server.telemetry.stored_counts import StoredCounts
from protoslice.storage import MemoryStorage
from protoslice.stores import IngestRequest
from protoslice.stores.backups import back_up, dump_daily
from protoslice.stores.collection import collect_garbage


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


def test_bytes_that_wait_for_deletion_and_the_last_copies_are_known() -> None:
    async def work() -> None:
        storage, database, counts = MemoryStorage(), InlineDatabase(), StoredCounts()
        stores = await open_stores(storage, database=database)
        await counted(counts, database)
        found = samples(counts)
        copies = [found[f"protoslice_last_{each}_timestamp_seconds"] for each in ("backup", "dump")]
        assert (found["protoslice_trash_objects"], found["protoslice_trash_bytes"], copies) == (0, 0, [0, 0])
        store = (await upload(stores, onnx(20_000), IngestRequest())).store
        before = time.time() - 1
        await back_up(storage, database, MemoryStorage(), keep=1)
        dumping = asyncio.create_task(dump_daily(database, storage, keep=1, first_seconds=0))
        while not (await last_snapshots(database))[1]:
            await asyncio.sleep(0.01)
        await stores.delete(store.id)
        report = await collect_garbage(storage, database, grace_seconds=0, delay_seconds=600)
        assert report.bytes >= store.size
        await counted(counts, database)
        dumping.cancel()
        found = samples(counts)
        assert (found["protoslice_trash_objects"], found["protoslice_trash_bytes"]) == (report.objects, report.bytes)
        copies = [found[f"protoslice_last_{each}_timestamp_seconds"] for each in ("backup", "dump")]
        assert all(before <= each <= time.time() + 1 for each in copies)
        await collect_garbage(storage, database, grace_seconds=0, delay_seconds=0)
        await stores.close()

    asyncio.run(work())


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
