"""Stores: one row is there, others were removed; tags and usage change in the same transaction."""

from __future__ import annotations

import asyncio
import hashlib

import pytest
from tests.support.rows import ACCOUNT, held, own, put_store, reserved
from tests.support.stores import collect_a_day_later, in_memory, read, upload

from protoslice.catalog.objects import Collected, new_id
from protoslice.catalog.store_lists import StoreQuery
from protoslice.catalog.stores import StoreTable
from protoslice.catalog.tags import TagTable
from protoslice.database import Database
from protoslice.errors import NotFound
from protoslice.storage import MemoryStorage, ObjectKey
from protoslice.stores import Stores


@pytest.fixture
def table(database: Database) -> StoreTable:
    """Return the stores of a space."""
    return StoreTable(database, ACCOUNT)


async def _tags(database: Database) -> dict[str, str]:
    return {tag.name: tag.store for tag in (await TagTable(database, ACCOUNT).page(99))[0]}


async def test_of_publishers_at_once_one_creates_the_store(
    database: Database, replica: Database, table: StoreTable
) -> None:
    done = await asyncio.gather(*(put_store((database, replica)[n % 2], "a", tags=[f"t{n}"]) for n in range(8)))
    (made,) = [each for each in done if each.created]
    assert {each.row.id for each in done} == {made.row.id}
    assert len(await _tags(database)) == 1, "one that was there gets its tags from who finds it sound"
    assert await held(database) == (0, 1, 7)
    assert await table.get("a", made.row.id) is not None


async def test_publish_of_a_shared_object_that_is_gone_leaves_nothing(database: Database, table: StoreTable) -> None:
    with pytest.raises(Collected):
        await put_store(database, "a", own=own(await reserved(database, 1)), shared=[new_id()], tags=["t"])
    assert await table.get("a") is None
    assert await _tags(database) == {}
    assert await held(database) == (0, 0, 0)


async def test_remove_takes_the_tags_and_restore_brings_them_back(database: Database, table: StoreTable) -> None:
    await put_store(database, "a", tags=["t1", "t2"], own=own(await reserved(database, 1)))
    assert await table.remove("a") == ["t1", "t2"]
    assert await table.remove("a") is None
    assert await table.get("a") is None
    assert await held(database) == (10, 0, 0)
    assert await table.starting_with("a", removed=True) == ["a"]
    await put_store(database, "b", tags=["t2"])
    found = await table.restore("a")
    assert found is not None
    assert found.taken == ["t2"]
    assert await _tags(database) == {"t1": "a", "t2": "b"}
    assert await held(database) == (10, 2, 14)
    assert await table.restore("none") is None


async def test_sent_again_a_removed_store_is_another_row_and_restore_finds_it(
    database: Database, table: StoreTable
) -> None:
    first = (await put_store(database, "a", manifest=b"1")).row
    await table.remove("a")
    second = (await put_store(database, "a", manifest=b"2")).row
    assert first.id != second.id
    found = await table.restore("a")
    assert found is not None
    assert found.row == second
    assert await held(database) == (0, 1, 7)
    await table.remove("a")
    found = await table.restore("a")
    assert found is not None
    assert found.row == second, "an older generation came back"


async def test_of_restorers_at_once_all_succeed_and_one_counts(
    database: Database, replica: Database, table: StoreTable
) -> None:
    tables = (table, StoreTable(replica, ACCOUNT))
    for _ in range(5):
        row = (await put_store(database, "a")).row
        await table.remove("a")
        found = await asyncio.gather(*(tables[n % 2].restore("a") for n in range(8)))
        assert {None if each is None else each.row.id for each in found} == {row.id}
        assert await held(database) == (0, 1, 7)
        await table.remove("a")


async def test_restore_beside_a_publisher_ends_with_one_store(
    database: Database, replica: Database, table: StoreTable
) -> None:
    for _ in range(8):
        await put_store(database, "a")
        await table.remove("a")
        restoring = StoreTable(replica, ACCOUNT).restore("a")
        restored, _made = await asyncio.gather(restoring, put_store(database, "a"))
        there = await table.get("a")
        assert restored is not None
        assert there is not None
        assert await held(database) == (0, 1, 7)
        await table.remove("a")


async def test_what_replaces_a_damaged_store_counts_once(database: Database, table: StoreTable) -> None:
    old = (await put_store(database, "a", tags=["t"], own=own(await reserved(database, 1)))).row
    new = await put_store(database, "a", replaces=old.id, own=own(await reserved(database, 1), 12))
    assert new.created
    assert await held(database) == (22, 1, 7)
    assert await _tags(database) == {"t": "a"}
    late = await put_store(database, "a", replaces=old.id)
    assert not late.created, "who saw the damage late found the new row"
    assert late.row.id == new.row.id


def test_sent_again_a_damaged_store_is_whole() -> None:
    data = b"abc" * 4000

    async def work(stores: Stores, storage: MemoryStorage) -> None:
        made = await upload(stores, {"a.bin": data}, expected_sha256=hashlib.sha256(data).digest())
        (key,) = [each for each in storage._objects if each.text.startswith("objects/")]
        await storage.put(ObjectKey(key.text), b"x" * len(data))
        again = await upload(stores, {"a.bin": data})
        assert again.store.id == made.store.id
        assert await read((await stores.view(made.store.id)).file("a.bin")) == data
        await collect_a_day_later(storage)
        assert await read((await stores.view(made.store.id)).file("a.bin")) == data
        with pytest.raises(NotFound):
            await storage.stat(key)

    in_memory(work)


async def test_pages_are_newest_first_and_by_tag(database: Database, table: StoreTable) -> None:
    for number in range(5):
        await put_store(database, f"s{number}", created=number // 2, type="abc"[number % 2], tags=[f"t{9 - number}"])
    await table.remove("s1")
    page, _ = await table.page(StoreQuery(), limit=9, after=None, room=9, tags=9)
    assert [each.row.digest for each in page] == ["s4", "s3", "s2", "s0"]
    rest, _ = await table.page(StoreQuery(), limit=9, after=page[1].key, room=9, tags=9)
    assert [each.row.digest for each in rest] == ["s2", "s0"]
    page, _ = await table.page(StoreQuery(type="a"), limit=9, after=None, room=9, tags=9)
    assert [each.row.digest for each in page] == ["s4", "s2", "s0"]
    assert [each.row.digest for each in await table.tagged("t", limit=9, after="", room=9, tags=9)] == [
        "s4",
        "s3",
        "s2",
        "s0",
    ]
    assert [each.row.digest for each in await table.tagged("t", limit=1, after="t6", room=9, tags=9)] == ["s2"]
