"""Derived facts: small ones in the database, large ones in the storage, none of removed stores."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from protoslice.catalog import Database, open_database
from protoslice.catalog.derived import DerivedRecords
from protoslice.concurrency.executor import Worker
from protoslice.errors import DatabaseUnavailable
from protoslice.storage import MemoryStorage, ObjectKey
from protoslice.stores.catalog.derived_facts import LARGEST_ROW, DerivedFacts

Work = Callable[[Database, MemoryStorage, DerivedFacts], Awaitable[None]]


def _run(url: str, work: Work) -> None:
    async def run() -> None:
        storage, worker = MemoryStorage(), Worker(1)
        async with open_database(url, "memory://") as database:
            facts = DerivedFacts(DerivedRecords(database, "team"), storage, "a", worker)
            await work(database, storage, facts)
        await worker.close()

    asyncio.run(run())


@pytest.mark.parametrize("size", [0, LARGEST_ROW, LARGEST_ROW + 1])
def test_save_makes_an_object_of_a_large_fact_only(catalogue: str, size: int) -> None:
    async def work(database: Database, storage: MemoryStorage, facts: DerivedFacts) -> None:
        assert await facts.load("digests") is None
        for data in (b"a" * size, b"b" * size):
            await facts.save("digests", data)
            assert await facts.load("digests") == data
        assert len((await storage.list()).items) == (size > LARGEST_ROW)
        assert await DerivedRecords(database, "other").get("a", "digests") is None

    _run(catalogue, work)


def test_load_of_a_damaged_fact_is_none(catalogue: str) -> None:
    async def work(database: Database, storage: MemoryStorage, facts: DerivedFacts) -> None:
        await facts.save("digests", b"a" * (LARGEST_ROW + 1))
        await storage.put(ObjectKey("derived/a/digests"), b"a" * 100)
        assert await facts.load("digests") is None
        await DerivedRecords(database, "team").put("a", "reads", b"a" * 100)
        assert await facts.load("reads") is None

    _run(catalogue, work)


def test_save_without_a_database_is_no_error_and_load_is(catalogue: str) -> None:
    async def work(database: Database, _: MemoryStorage, facts: DerivedFacts) -> None:
        await database.close()
        await facts.save("digests", b"a")
        with pytest.raises(DatabaseUnavailable):
            await facts.load("digests")

    _run(catalogue, work)


def test_stores_whose_facts_are_old_are_listed_in_pages_and_removed(catalogue: str) -> None:
    async def work(database: Database, _: MemoryStorage, __: DerivedFacts) -> None:
        records = DerivedRecords(database, "team")
        for store in ("a", "b", "c"):
            for name in ("digests", "reads"):
                await records.put(store, name, b"x")
        now = time.time()
        assert await records.stores("", 10, before=now - 60) == []
        assert await records.stores("", 2, before=now + 60) == ["a", "b"]
        assert await records.stores("b", 2, before=now + 60) == ["c"]
        await records.remove(["a", "c"])
        assert await records.stores("", 10, before=now + 60) == ["b"]
        assert await records.get("a", "reads") is None

    _run(catalogue, work)
