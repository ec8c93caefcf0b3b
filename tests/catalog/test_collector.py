"""The collector: due objects are deleted unless something refers to them, rows first and bytes later."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from tests.support.rows import ACCOUNT, SPACE, an_upload, held, keys, own, put_store, reserved

from protoslice.catalog import open_database
from protoslice.catalog.collector import CollectorTable, TrashRow
from protoslice.catalog.derived import DerivedTable
from protoslice.catalog.marker import check_storage
from protoslice.catalog.objects import UNFINISHED_SECONDS, ObjectTable
from protoslice.catalog.stores import StoreTable
from protoslice.catalog.uploads import ObjectChanges, UploadTable
from protoslice.database import Database
from protoslice.database.transactions import SECOND
from protoslice.storage import MemoryStorage, ObjectKey
from protoslice.stores.collection import GarbageReport, collect_garbage

Work = Callable[[Database, CollectorTable], Awaitable[None]]


def _run(url: str, work: Work) -> None:
    async def run() -> None:
        async with open_database(url, "memory://") as database:
            await work(database, CollectorTable(database))

    asyncio.run(run())


@pytest.fixture
def table(database: Database) -> CollectorTable:
    """Return what the collector does with the catalogue."""
    return CollectorTable(database)


async def _all(database: Database, sql: str, **values: Any) -> list[Any]:
    """Execute a statement and return its rows."""
    return await database.write(lambda tx: tx.all(sql, **values))


async def _trash(table: CollectorTable) -> list[TrashRow]:
    return [row async for rows in table.trash() for row in rows]


async def _let_pass(database: Database, seconds: float) -> None:
    """Make all times in the past earlier by some seconds."""

    def work(tx: Any) -> None:
        gone = int(seconds * SECOND)
        tx.run("UPDATE objects SET unpublished = unpublished - :gone", gone=gone)
        tx.run("UPDATE trash SET due = due - :gone", gone=gone)
        tx.run("UPDATE stores SET deleted = deleted - :gone", gone=gone)

    await database.write(work)


async def test_objects_expire_a_day_after_they_were_reserved(database: Database, table: CollectorTable) -> None:
    lost, kept = await reserved(database, 2)
    await put_store(database, "a", own=own([kept]))
    await _let_pass(database, UNFINISHED_SECONDS - 60)
    (later,) = await reserved(database, 1)
    await table.expire_objects(UNFINISHED_SECONDS)
    assert (await table.drop_objects(0)).objects == 0
    await _let_pass(database, 61)
    await table.expire_objects(UNFINISHED_SECONDS)
    assert (await table.drop_objects(0)).objects == 1
    assert await keys(database) == {later.key, kept.key}
    assert await _all(database, "SELECT key, passes FROM trash") == [(lost.key, 2)]
    await table.expire_objects(60)
    assert await keys(database) == {later.key, kept.key}
    assert (await table.drop_objects(0)).objects == 1, "those of a shorter time"


async def _all_rows(database: Database) -> dict[str, list[Any]]:
    """Return all rows of tables that the collector changes."""
    found = {}
    for table in ("objects", "stores", "store_objects", "trash", "uploads", "usage", "names"):
        found[table] = sorted(map(repr, await _all(database, f"SELECT * FROM {table}")))
    return found


async def test_dry_run_counts_what_a_collection_drops_and_changes_nothing(database: Database) -> None:
    storage = MemoryStorage()
    await check_storage(storage, database, mark=True)
    shared, alone, *unfinished = await reserved(database, 5)
    await put_store(database, "a", own=own([shared, alone]))
    await put_store(database, "b", shared=[shared.id])
    await StoreTable(database, ACCOUNT).remove("a")
    uploads = UploadTable(database, ACCOUNT)
    upload = await uploads.create(an_upload("u"), keep_seconds=60)
    await uploads.put(upload, kept_parts=0, keep_seconds=-60, objects=ObjectChanges(own=own(unfinished[:1], 100)))
    before = await _all_rows(database)
    collect = partial(collect_garbage, storage, database, grace_seconds=-1, unfinished_seconds=-1)
    expected = await collect(dry_run=True)
    assert await _all_rows(database) == before
    assert (expected.stores, expected.objects, expected.bytes, expected.deleted) == (1, 4, 110, 0)
    assert (await collect()) == expected
    assert (await collect(dry_run=True)).objects == 0


async def test_drop_keeps_what_something_refers_to(database: Database, table: CollectorTable) -> None:
    stored, uploaded, derived, free = await reserved(database, 4)
    row = (await put_store(database, "a", own=own([stored]))).row
    uploads = UploadTable(database, ACCOUNT)
    upload = await uploads.create(an_upload("u"), keep_seconds=60)
    changes = ObjectChanges(own=own([uploaded]))
    await uploads.put(upload, kept_parts=0, keep_seconds=60, objects=changes)
    await DerivedTable(database, SPACE).put(row.id, "x", None, own=own([derived], None)[0])
    await ObjectTable(database).drop(SPACE, [free])
    await _all(database, "UPDATE objects SET due = 1 RETURNING id")
    dropped = await table.drop_objects(0)
    assert (dropped.objects, dropped.stored_bytes) == (1, 0)
    assert await keys(database) == {stored.key, uploaded.key, derived.key}
    assert await _all(database, "SELECT 1 FROM objects WHERE due IS NOT NULL") == []
    assert await _all(database, "SELECT key, sums, passes FROM trash") == [(free.key, 1, 2)]


async def test_store_is_purged_after_the_grace_and_its_bytes_are_discharged(
    database: Database, table: CollectorTable
) -> None:
    shared, alone = await reserved(database, 2)
    await put_store(database, "a", own=own([shared, alone]))
    await put_store(database, "b", shared=[shared.id])
    await StoreTable(database, ACCOUNT).remove("a")
    assert await table.purge_stores(3600) == 0
    assert await table.purge_stores(-1) == 1
    assert (await table.drop_objects(0)).objects == 1
    assert await keys(database) == {shared.key}
    assert await held(database) == (10, 1, 7)
    assert await StoreTable(database, ACCOUNT).restore("a") is None


@pytest.mark.parametrize("published", [True, False])
def test_bytes_go_after_the_delay_and_twice_if_they_were_never_published(catalogue: str, published: bool) -> None:
    async def work(database: Database, table: CollectorTable) -> None:
        storage = MemoryStorage()
        await check_storage(storage, database, mark=True)
        (each,) = await reserved(database, 1)
        key = ObjectKey(each.key)

        async def collect() -> GarbageReport:
            await storage.put(key, b"late" if await _all(database, "SELECT 1 FROM trash") else b"first")
            return await collect_garbage(storage, database, grace_seconds=-1, delay_seconds=600)

        if published:
            await put_store(database, "a", own=own([each]))
            await StoreTable(database, ACCOUNT).remove("a")
        else:
            await ObjectTable(database).drop(SPACE, [each])
        assert ((await collect()).objects, await keys(database)) == (1, set())
        for passed, times in ((599, 0), (2, 1), (80_000, 0), (7000, int(not published)), (90_000, 0)):
            await _let_pass(database, passed)
            assert (await collect()).deleted == times, passed
            assert (key in storage._objects) == (times == 0)
        assert await _all(database, "SELECT 1 FROM trash") == []

    _run(catalogue, work)


def test_collectors_at_once_share_the_work(catalogue: str) -> None:
    async def work(database: Database, table: CollectorTable) -> None:
        objects = await reserved(database, 60)
        await ObjectTable(database).drop(SPACE, objects)
        async with open_database(catalogue, "memory://") as other:
            tables = [CollectorTable(each) for each in (database, other)]
            dropped = await asyncio.gather(*(tables[n % 2].drop_objects(0) for n in range(6)))
            assert sum(each.objects for each in dropped) == 60
            trash = await asyncio.gather(*(_trash(tables[n % 2]) for n in range(6)))
        assert sorted(row.key for rows in trash for row in rows) == sorted(each.key for each in objects)
        assert await _trash(table) == []

    _run(catalogue, work)
