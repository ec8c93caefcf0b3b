"""Spaces: usage is exact with many writers, and a quota is never exceeded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.support.postgres import TestServer
from tests.support.rows import SPACE, held, own, put_store, reserved

from protoslice.catalog import Database, Transaction, open_database
from protoslice.catalog.spaces import LIMITS, Account, SpaceTable
from protoslice.errors import QuotaExceeded

Work = Callable[[Database, SpaceTable], Awaitable[None]]


def _run(url: str, work: Work) -> None:
    async def run() -> None:
        async with open_database(url, "memory://") as database:
            await SpaceTable(database).create(SPACE)
            await work(database, SpaceTable(database))

    asyncio.run(run())


def _charge(account: Account, stored_bytes: int = 0, stores: int = 0) -> Callable[[Transaction], None]:
    return lambda tx: account.charge(tx, stored_bytes=stored_bytes, stores=stores, logical_bytes=3 * stores)


def test_spaces_are_created_once_and_paged(catalogue: str) -> None:
    async def work(_: Database, table: SpaceTable) -> None:
        assert not await table.create(SPACE)
        assert await table.create("a")
        assert [row.name for row in await table.page(9)] == ["a", "default", SPACE]
        assert [row.name for row in await table.page(1, "a")] == ["default"]
        assert await table.get("none") is None
        assert await table.change_limits("a", dict(zip(LIMITS, (1, 2, 3, 4), strict=True)))
        assert not await table.change_limits("none", {"quota_bytes": 1})
        row = await table.get("a")
        assert row is not None
        assert row.limits == (1, 2, 3, 4)

    _run(catalogue, work)


def test_usage_is_the_sum_of_what_many_writers_count(catalogue: str) -> None:
    async def work(one: Database, table: SpaceTable) -> None:
        account = Account(SPACE)
        async with open_database(catalogue, "memory://") as other:
            charges = [_charge(account, n - 20, n % 3 - 1) for n in range(60)]
            await asyncio.gather(*((one, other)[n % 2].write(each) for n, each in enumerate(charges)))
        assert await held(one) == (sum(n - 20 for n in range(60)), 0, 0)
        await one.write(_charge(Account("default"), 5, 1))
        totals, tags = await table.totals()
        assert (totals.stored_bytes, totals.stores, tags) == (sum(n - 20 for n in range(60)) + 5, 1, 0)

    _run(catalogue, work)


@pytest.mark.parametrize("own_limits", [True, False])
@pytest.mark.parametrize("limit", ["bytes", "stores"])
def test_of_writers_at_once_none_exceeds_a_quota(catalogue: str, limit: str, own_limits: bool) -> None:
    async def work(one: Database, table: SpaceTable) -> None:
        limits = (100, 0) if limit == "bytes" else (0, 10)
        account = Account(SPACE) if own_limits else Account(SPACE, *limits)
        if own_limits:
            await table.change_limits(SPACE, dict(zip(LIMITS, limits, strict=False)))
        each = (10, 0) if limit == "bytes" else (0, 1)
        async with open_database(catalogue, "memory://") as other:
            writes = [(one, other)[n % 2].write(_charge(account, *each)) for n in range(30)]
            done = await asyncio.gather(*writes, return_exceptions=True)
        assert sum(isinstance(found, QuotaExceeded) for found in done) == 20, done
        assert await held(one) == (100 * (limit == "bytes"), 10 * (limit == "stores"), 30 * (limit == "stores"))
        await one.write(_charge(account, -each[0], -each[1]))
        await one.write(_charge(account, *each))

    _run(catalogue, work)


def test_quota_is_exact_whatever_isolation_level_the_server_defaults_to(postgres: TestServer) -> None:
    level = "%20-cdefault_transaction_isolation%3Drepeatable%5C%20read"

    async def work(one: Database, table: SpaceTable) -> None:
        account = Account(SPACE, 0, 10)
        done = await asyncio.gather(*(one.write(_charge(account, 0, 1)) for _ in range(30)), return_exceptions=True)
        assert sum(isinstance(found, QuotaExceeded) for found in done) == 20, done
        assert (await held(one))[1] == 10

    _run(postgres.new_catalogue() + level, work)


def test_limit_of_a_space_goes_before_that_of_the_service(catalogue: str) -> None:
    async def work(one: Database, table: SpaceTable) -> None:
        account = Account(SPACE, stored_bytes=10, stores=1)
        with pytest.raises(QuotaExceeded):
            await one.write(_charge(account, 11))
        await table.change_limits(SPACE, {"quota_bytes": 0, "quota_stores": 0})
        await one.write(_charge(account, 11, 2))
        await table.change_limits(SPACE, dict.fromkeys(LIMITS))
        with pytest.raises(QuotaExceeded):
            await one.write(_charge(account, 0, 1))

    _run(catalogue, work)


def test_store_beyond_the_quota_leaves_nothing(catalogue: str) -> None:
    async def work(database: Database, table: SpaceTable) -> None:
        await table.change_limits(SPACE, {"quota_bytes": 15})
        await put_store(database, "a", own=own(await reserved(database, 1)))
        objects = await reserved(database, 1)
        with pytest.raises(QuotaExceeded):
            await put_store(database, "b", own=own(objects), tags=["t"])
        assert await held(database) == (10, 1, 7)
        rows = await database.read(lambda tx: tx.all("SELECT id FROM objects WHERE writer IS NOT NULL"))
        assert rows == [(objects[0].id,)]

    _run(catalogue, work)
