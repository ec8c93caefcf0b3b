"""Objects: they are reserved, and published within a day; the collector removes all others.

The tests run the race between a collector and a publisher that shares an object, on real connections, at every step of
both. The collector deletes rows and the publisher inserts references, so a foreign key decides. A collector that only
marked objects, in one statement with the condition that nothing refers to them, would mark objects in use.

A storage belongs to one catalogue. A program refuses any other pair with a message about the remedy.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from tests.support.catalogues import InlineDatabase, catalogue_of
from tests.support.postgres import TestServer
from tests.support.rows import ACCOUNT, SPACE, held, own, put_store, reserved
from tests.support.stepping import NEVER, Actor
from tests.support.stores import keys_in, onnx, open_stores, opened, upload, visible

from protoslice.catalog import objects, open_database
from protoslice.catalog.collector import CollectorTable, _drop
from protoslice.catalog.marker import LAYOUT, MARKER, check_storage
from protoslice.catalog.new_objects import BLOCK, USABLE_SECONDS, Reservations
from protoslice.catalog.objects import Collected, ObjectTable, OwnObject, new_id, new_objects, object_id
from protoslice.catalog.stores import StoreTable
from protoslice.database import Database, Transaction
from protoslice.database.postgres import _parameters
from protoslice.database.transactions import UniqueViolation
from protoslice.errors import NotFound, Unsupported
from protoslice.storage import FileStorage, MemoryStorage
from protoslice.stores import Stores


async def _rows(database: Database) -> dict[int, tuple[bool, bool, int | None]]:
    """Return for each object whether it is unpublished, whether the collector examines it, and its size."""
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
    """Ids of different processes: an id of a later millisecond is larger, even where the random bits change."""
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
    """The rest of the day is enough for an upload."""
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


@contextmanager
def _a_free_object(url: str) -> Iterator[int]:
    """Yield an object to which nothing refers any more, and which the collector is about to examine."""

    async def prepare() -> int:
        async with open_database(url, "memory://") as database:
            (free,) = await reserved(database, 1)
            await put_store(database, "old", own=own([free]))
            await StoreTable(database, ACCOUNT).remove("old")
            await CollectorTable(database).purge_stores(-1)
            return free.id

    async def clean() -> None:
        async with open_database(url, "memory://") as database:
            await StoreTable(database, ACCOUNT).remove("new")
            await CollectorTable(database).purge_stores(-1)
            await CollectorTable(database).drop_objects(0)

    yield asyncio.run(prepare())
    asyncio.run(clean())


def _race(url: str, actors: list[Actor]) -> None:
    """Let the first actor run to its stop, then the second one to its stop, then both to the end."""
    first, second = actors
    first.start()
    second.start()
    first.finish()
    second.finish()
    first.join()
    second.join()


def _publishing(object: int) -> Callable[[Database], Any]:
    return lambda database: put_store(database, "new", shared=[object])


async def _dropping(database: Database) -> Any:
    return await database.write(lambda tx: _drop(tx, 0, 500))


def _marked(tx: Transaction) -> int:
    """Mark free objects in one statement, which is the wrong way."""
    return tx.run(
        """
        UPDATE objects SET due = -1 WHERE due <= :now AND NOT EXISTS (
            SELECT 1 FROM store_objects r WHERE r.space = objects.space AND r.object = objects.id
        )""",
        now=tx.now,
    )


async def _marking(database: Database) -> Any:
    return await database.write(_marked)


def _rows_of(url: str, object: int) -> tuple[bool, bool, bool]:
    """Return whether the object has a row, whether the row is marked, and whether the new store has the object."""

    async def read() -> tuple[bool, bool, bool]:
        async with open_database(url, "memory://") as database:
            found = await database.read(
                lambda tx: tx.first("SELECT due FROM objects WHERE space = :space AND id = :id", space=SPACE, id=object)
            )
            refers = await database.read(lambda tx: tx.all("SELECT 1 FROM store_objects WHERE object = :id", id=object))
            return found is not None, found is not None and found[0] == -1, bool(refers)

    return asyncio.run(read())


def _lengths(url: str) -> tuple[int, int]:
    """Return the number of steps of the collector and of the publisher, each without the other."""
    with _a_free_object(url) as free:
        publisher = Actor(url, NEVER, _publishing(free))
        publisher.start()
        publisher.join()
    with _a_free_object(url):
        collector = Actor(url, NEVER, _dropping)
        collector.start()
        collector.join()
    return collector.steps.count, publisher.steps.count


def _check(url: str, stops: tuple[int, int], *, collector_first: bool) -> bool:
    """Race once, and return True if the publisher won; nothing may be lost."""
    with _a_free_object(url) as free:
        collector, publisher = Actor(url, stops[0], _dropping), Actor(url, stops[1], _publishing(free))
        _race(url, [collector, publisher] if collector_first else [publisher, collector])
        assert not isinstance(collector.result, Exception), (stops, collector.result)
        exists, _, refers = _rows_of(url, free)
        won = not isinstance(publisher.result, Exception)
        assert won or isinstance(publisher.result, Collected), (stops, publisher.result)
        assert (exists, refers) == (won, won), (stops, publisher.result)
        return won


@pytest.mark.parametrize("collector_first", [True, False])
def test_shared_object_is_never_lost(postgres: TestServer, collector_first: bool) -> None:
    url = postgres.new_catalogue()
    ours, theirs = _lengths(url)
    assert ours >= 5
    assert theirs >= 6
    steps = range(ours) if collector_first else range(theirs)
    won = [_check(url, (n, NEVER) if collector_first else (NEVER, n), collector_first=collector_first) for n in steps]
    assert set(won) == {True, False}, "each side has to win somewhere"


@pytest.mark.long
@pytest.mark.parametrize("collector_first", [True, False])
def test_shared_object_is_never_lost_wherever_both_stop(postgres: TestServer, collector_first: bool) -> None:
    url = postgres.new_catalogue()
    ours, theirs = _lengths(url)
    for stops in ((mine, other) for mine in range(ours) for other in range(theirs)):
        _check(url, stops, collector_first=collector_first)


def test_marking_in_one_statement_marks_an_object_in_use(postgres: TestServer) -> None:
    url, lost = postgres.new_catalogue(), []
    _, theirs = _lengths(url)
    for stop in range(theirs):
        with _a_free_object(url) as free:
            collector, publisher = Actor(url, NEVER, _marking), Actor(url, stop, _publishing(free))
            _race(url, [publisher, collector])
            _, marked, refers = _rows_of(url, free)
            if marked and refers:
                lost.append(stop)
            with psycopg.connect(**_parameters(url)[0], autocommit=True) as connection:
                connection.execute("UPDATE objects SET due = 1 WHERE due = -1")
    assert lost, "this race would show nothing"


@pytest.mark.parametrize(
    ("marker", "layout"),
    [
        (b'{"layout":1}', "1"),
        (b'{"layout":3}', "3"),
        (b'{"layout":2,"upgrading":1}', "2"),
        (b'{"layout":5,"catalogue":"aa"}', "5"),
    ],
)
async def test_a_storage_of_another_layout_is_refused(marker: bytes, layout: str) -> None:
    storage = MemoryStorage()
    await storage.put(MARKER, marker)
    with pytest.raises(Unsupported) as refused:
        await open_stores(storage)
    assert refused.value.message == (
        f"This storage was written by another version of Protoslice (layout {layout}, not {LAYOUT}), which this "
        "one cannot read: use that version, or a new storage"
    )
    assert await keys_in(storage) == [MARKER.text], "nothing was written"
    assert (await storage.get(MARKER)).data == marker


async def test_a_storage_of_another_database_is_refused(tmp_path: Path) -> None:
    """An operator who loses the catalogue, or names a wrong one, would see an empty service and collect nothing."""
    async with FileStorage(str(tmp_path)) as storage:
        async with opened(storage) as stores:
            info = (await upload(stores, onnx(90_000))).store
        with pytest.raises(Unsupported) as refused:
            await open_stores(storage, database=InlineDatabase())
        assert refused.value.message == (
            "This storage belongs to another database: set PROTOSLICE_DATABASE to the one it was created with, or "
            "restore that from a backup"
        )
        async with opened(storage) as stores:
            assert set(await visible(stores)) == {info.id}


@pytest.mark.parametrize("marker", [b"{}", b"not JSON", b"[]", b"", b"[" * 100_000])
async def test_a_damaged_marker_is_named(marker: bytes) -> None:
    storage = MemoryStorage()
    await storage.put(MARKER, marker)
    with pytest.raises(Unsupported, match="of this storage is damaged"):
        await open_stores(storage)


async def test_an_empty_storage_is_refused_by_a_database_with_stores() -> None:
    storage, other = MemoryStorage(), MemoryStorage()
    async with opened(storage) as stores:
        await upload(stores, onnx(5000))
    with pytest.raises(Unsupported, match="This storage is empty"):
        await check_storage(other, catalogue_of(storage), mark=True)
    assert await keys_in(other) == []


async def test_a_new_storage_is_marked_with_its_catalogue() -> None:
    storage = MemoryStorage()
    async with opened(storage):
        said = json.loads((await storage.get(MARKER)).data)
    row = await catalogue_of(storage).read(lambda tx: tx.first("SELECT catalogue_id FROM meta"))
    assert row is not None
    assert said == {"layout": LAYOUT, "catalogue": bytes(row[0]).hex()}


async def test_a_storage_that_is_only_looked_at_is_not_marked() -> None:
    storage = MemoryStorage()
    for look in (
        check_storage(storage, None, mark=False),
        check_storage(storage, catalogue_of(storage), mark=False),
        Stores.open(storage, catalogue_of(storage), create=False),
    ):
        with pytest.raises(NotFound, match="contains no stores"):
            await look
    assert await keys_in(storage) == []


async def test_without_a_database_the_layout_alone_is_checked() -> None:
    storage = MemoryStorage()
    async with opened(storage):
        await check_storage(storage, None, mark=False)
    await storage.put(MARKER, b'{"layout":3}')
    with pytest.raises(Unsupported, match="layout 3, not 4"):
        await check_storage(storage, None, mark=False)
