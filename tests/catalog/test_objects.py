"""Objects: reserved, published within a day, left to the collector otherwise."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from tests.support.catalogues import InlineDatabase
from tests.support.rows import ACCOUNT, SPACE, held, own, put_store, reserved

from protoslice.catalog import objects
from protoslice.catalog.collector import CollectorTable
from protoslice.catalog.new_objects import BLOCK, USABLE_SECONDS, Reservations
from protoslice.catalog.objects import Collected, ObjectTable, OwnObject, new_id, new_objects, object_id
from protoslice.catalog.stores import StoreTable
from protoslice.database import Database
from protoslice.database.transactions import UniqueViolation


async def _rows(database: Database) -> dict[int, tuple[bool, bool, int | None]]:
    """Return of each object whether it is unpublished, whether the collector looks at it, and its size."""
    rows = await database.read(lambda tx: tx.all("SELECT id, unpublished, due, size FROM objects"))
    return {id: (unpublished is not None, due is not None, size) for id, unpublished, due, size in rows}


def test_ids_are_in_keys_and_sort_by_time() -> None:
    made = new_objects(100)
    assert [object_id(each.key) for each in made] == [each.id for each in made]
    assert len({each.key for each in made}) == 100
    assert all(new_id() > each.id for each in made)


async def test_ids_sort_by_time_and_fit_into_columns_until_2077(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids of different processes: that of a later millisecond is larger, also where the random bits change."""
    change, millisecond = datetime(2027, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)
    around = [change + number * millisecond for number in range(-300, 300)]
    later = [datetime(year, month, 1, tzinfo=UTC) for year in range(2027, 2077) for month in (6, 12)]
    now = change
    clock = SimpleNamespace(
        time_ns=lambda: (now - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000
    )
    monkeypatch.setattr(objects, "time", clock)
    ids = list[int]()
    for now in [*around, *later]:
        monkeypatch.setattr(objects, "_ids", objects._Ids())
        ids.append(new_id())
        assert now >= change or ids[-1] >> 22 == clock.time_ns() // 1_000_000, "earlier versions made larger ones"
    assert ids == sorted(set(ids))
    (newest,) = await reserved(database, 1)
    assert newest.id > ids[-1]
    assert list(await _rows(database)) == [newest.id]


async def test_objects_are_reserved_once(database: Database) -> None:
    objects = await reserved(database, 2)
    with pytest.raises(UniqueViolation):
        await ObjectTable(database).reserve(SPACE, [*new_objects(1), objects[1]])
    assert set(await _rows(database)) == {each.id for each in objects}
    assert await ObjectTable(database).count_unpublished(-1) == 2
    assert await ObjectTable(database).count_unpublished(60) == 0


async def test_publish_takes_objects_over(database: Database) -> None:
    one, two, other = await reserved(database, 3)
    await put_store(database, "a", own=[*own([one], 30), *own([two], None)])
    assert await _rows(database) == {
        one.id: (False, False, 30), two.id: (False, False, None), other.id: (True, False, None),
    }  # fmt: skip
    assert await held(database) == (30, 1, 7)


@pytest.mark.parametrize("loss", ["expired", "dropped", "deleted", "published", "unknown"])
async def test_publish_of_an_object_that_is_lost_is_refused(database: Database, loss: str) -> None:
    one, two = await reserved(database, 2)
    table = ObjectTable(database)
    wanted = own([one])
    match loss:
        case "expired":
            await CollectorTable(database).expire_objects(-1)
        case "dropped":
            await table.drop(SPACE, [one])
        case "deleted":
            await table.delete([(SPACE, one)])
        case "published":
            await put_store(database, "before", own=wanted)
        case "unknown":
            wanted = [OwnObject(new_id(), 10)]
    before = await held(database)
    with pytest.raises(Collected):
        await put_store(database, "a", own=[*wanted, *own([two])], tags=["t"])
    assert await held(database) == before
    assert await StoreTable(database, ACCOUNT).get("a") is None


async def test_drop_leaves_what_was_published(database: Database) -> None:
    kept, vain = await reserved(database, 2)
    await put_store(database, "a", own=own([kept]))
    await ObjectTable(database).drop(SPACE, [kept, vain])
    assert await _rows(database) == {kept.id: (False, False, 10), vain.id: (False, True, None)}


async def test_delete_leaves_what_was_published(database: Database) -> None:
    unused, other, kept = await reserved(database, 3)
    await put_store(database, "a", own=own([kept]))
    await ObjectTable(database).delete([(SPACE, unused), (SPACE, kept)])
    assert await _rows(database) == {other.id: (True, False, None), kept.id: (False, False, 10)}


async def test_more_objects_than_a_few_blocks_are_taken_at_once(database: Database) -> None:
    reservations = Reservations(database)
    taken = await asyncio.gather(*(reservations.take(SPACE) for _ in range(8 * BLOCK)))
    assert len({each.id for each in taken}) == 8 * BLOCK
    await reservations.close()


async def test_objects_that_were_reserved_long_ago_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """An upload has the rest of a day for what it takes."""
    database, now = InlineDatabase(), 0.0
    monkeypatch.setattr("protoslice.catalog.new_objects.monotonic", lambda: now)
    reservations = Reservations(database)
    first = await reservations.take(SPACE)
    now = USABLE_SECONDS - 1
    assert abs((await reservations.take(SPACE)).id - first.id) < BLOCK, "of the same block"
    now = USABLE_SECONDS
    taken = await reservations.take(SPACE)
    assert taken.id > first.id + BLOCK or taken.id not in range(first.id - BLOCK, first.id + BLOCK)
    await reservations.close()
    assert len(await _rows(database)) == 3, "those that were taken"
