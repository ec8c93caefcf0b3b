"""Spaces: usage is exact with many writers, and a quota is never exceeded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.support.postgres import TestServer
from tests.support.rows import SPACE, held, own, put_store, reserved

from protoslice.catalog import open_database
from protoslice.catalog.spaces import LIMITS, Quota, SpaceTable, Usage
from protoslice.database import Database, Transaction
from protoslice.errors import InvalidInput, NotFound, QuotaExceeded


@pytest.fixture
async def table(database: Database) -> SpaceTable:
    """Return the spaces of a catalogue that has the space `SPACE`."""
    table = SpaceTable(database)
    await table.create(SPACE)
    return table


def _charge(usage: Usage, stored_bytes: int = 0, stores: int = 0) -> Callable[[Transaction], None]:
    return lambda tx: usage.add(tx, stored_bytes=stored_bytes, stores=stores, logical_bytes=3 * stores)


async def test_spaces_are_created_once_and_paged(table: SpaceTable) -> None:
    assert not await table.create(SPACE)
    assert await table.create("a")
    assert [row.name for row in await table.page(9)] == ["a", "default", SPACE]
    assert [row.name for row in await table.page(1, "a")] == ["default"]
    for refused in (table.get("none"), table.change_limits("none", {"quota_bytes": 1})):
        with pytest.raises(NotFound):
            await refused
    await table.change_limits("a", dict(zip(LIMITS, (1, 2, 3, 4), strict=True)))
    assert (await table.get("a")).quota == Quota(1, 2, 3, 4)
    assert not await table.put("a", Quota(stores=7))
    assert (await table.get("a")).quota == Quota(stores=7)
    for wrong in (-1, 1 << 63, True):
        with pytest.raises(InvalidInput):
            await table.put("a", Quota(stores=wrong))


async def test_usage_is_the_sum_of_what_many_writers_count(
    database: Database, replica: Database, table: SpaceTable
) -> None:
    usage = Usage(SPACE)
    charges = [_charge(usage, n - 20, n % 3 - 1) for n in range(60)]
    await asyncio.gather(*((database, replica)[n % 2].write(each) for n, each in enumerate(charges)))
    assert await held(database) == (sum(n - 20 for n in range(60)), 0, 0)
    await database.write(_charge(Usage("default"), 5, 1))
    totals, tags = await table.totals()
    assert (totals.stored_bytes, totals.stores, tags) == (sum(n - 20 for n in range(60)) + 5, 1, 0)


@pytest.mark.parametrize("own_limits", [True, False])
@pytest.mark.parametrize("limit", ["bytes", "stores"])
async def test_of_writers_at_once_none_exceeds_a_quota(
    database: Database, replica: Database, table: SpaceTable, limit: str, own_limits: bool
) -> None:
    limits = (100, 0) if limit == "bytes" else (0, 10)
    usage = Usage(SPACE) if own_limits else Usage(SPACE, *limits)
    if own_limits:
        await table.change_limits(SPACE, dict(zip(LIMITS, limits, strict=False)))
    each = (10, 0) if limit == "bytes" else (0, 1)
    writes = [(database, replica)[n % 2].write(_charge(usage, *each)) for n in range(30)]
    done = await asyncio.gather(*writes, return_exceptions=True)
    assert sum(isinstance(found, QuotaExceeded) for found in done) == 20, done
    assert await held(database) == (100 * (limit == "bytes"), 10 * (limit == "stores"), 30 * (limit == "stores"))
    await database.write(_charge(usage, -each[0], -each[1]))
    await database.write(_charge(usage, *each))


async def test_quota_is_exact_whatever_isolation_level_the_server_defaults_to(postgres: TestServer) -> None:
    level = "&options=-cdefault_transaction_isolation%3Drepeatable%5C%20read"
    async with open_database(postgres.new_catalogue() + level, "memory://") as database:
        usage = Usage(SPACE, 0, 10)
        await SpaceTable(database).create(SPACE)
        writes = (database.write(_charge(usage, 0, 1)) for _ in range(30))
        done = await asyncio.gather(*writes, return_exceptions=True)
        assert sum(isinstance(found, QuotaExceeded) for found in done) == 20, done
        assert (await held(database))[1] == 10


async def test_limit_of_a_space_goes_before_that_of_the_service(database: Database, table: SpaceTable) -> None:
    usage = Usage(SPACE, stored_bytes=10, stores=1)
    with pytest.raises(QuotaExceeded):
        await database.write(_charge(usage, 11))
    await table.change_limits(SPACE, {"quota_bytes": 0, "quota_stores": 0})
    await database.write(_charge(usage, 11, 2))
    await table.change_limits(SPACE, dict.fromkeys(LIMITS))
    with pytest.raises(QuotaExceeded):
        await database.write(_charge(usage, 0, 1))


async def test_store_beyond_the_quota_leaves_nothing(database: Database, table: SpaceTable) -> None:
    await table.change_limits(SPACE, {"quota_bytes": 15})
    await put_store(database, "a", own=own(await reserved(database, 1)))
    objects = await reserved(database, 1)
    with pytest.raises(QuotaExceeded):
        await put_store(database, "b", own=own(objects), tags=["t"])
    assert await held(database) == (10, 1, 7)
    rows = await database.read(lambda tx: tx.all("SELECT id FROM objects WHERE unpublished IS NOT NULL"))
    assert rows == [(objects[0].id,)]
