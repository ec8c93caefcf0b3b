"""Objects: reserved under a lease, published by their writer only, left to the collector otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from tests.support.rows import ACCOUNT, SPACE, held, own, put_store, reserved

from protoslice.catalog import Database, objects, open_database
from protoslice.catalog.database import UniqueViolation
from protoslice.catalog.objects import Collected, OwnObject, WriterTable, new_id, new_objects, object_id
from protoslice.catalog.stores import StoreTable
from protoslice.stores.writing.reservations import BLOCK, Reservations

Work = Callable[[Database], Awaitable[None]]


def _run(url: str, work: Work) -> None:
    async def run() -> None:
        async with open_database(url, "memory://") as database:
            await work(database)

    asyncio.run(run())


async def _rows(database: Database) -> dict[int, tuple[str | None, bool, int | None]]:
    """Return the writer of each object, whether the collector looks at it, and its size."""
    rows = await database.read(lambda tx: tx.all("SELECT id, writer, due, size FROM objects"))
    return {id: (writer, due is not None, size) for id, writer, due, size in rows}


def test_ids_are_in_keys_and_sort_by_time() -> None:
    made = new_objects("w", 100)
    assert [object_id(each.key) for each in made] == [each.id for each in made]
    assert len({each.key for each in made}) == 100
    assert all(new_id() > each.id for each in made)


def test_ids_sort_by_time_and_fit_into_columns_until_2077(catalogue: str, monkeypatch: pytest.MonkeyPatch) -> None:
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

    async def work(database: Database) -> None:
        (newest,) = await reserved(database, 1)
        assert newest.id > ids[-1]
        assert list(await _rows(database)) == [newest.id]

    _run(catalogue, work)


def test_reserve_needs_a_writer_that_lives(catalogue: str) -> None:
    async def work(database: Database) -> None:
        table = WriterTable(database)
        (first,) = await reserved(database, 1)
        assert not await table.reserve(SPACE, new_objects("unknown", 1), new=False)
        assert await table.reserve(SPACE, new_objects(first.writer, 1), new=False)
        with pytest.raises(UniqueViolation):
            await table.reserve(SPACE, new_objects(first.writer, 1), new=True)
        assert len(await _rows(database)) == 2
        assert await table.renew(first.writer)
        assert not await table.renew("unknown")

    _run(catalogue, work)


def test_publish_takes_objects_over_from_their_writer(catalogue: str) -> None:
    async def work(database: Database) -> None:
        one, two, other = *await reserved(database, 2), *await reserved(database, 1)
        await put_store(database, "a", own=[*own([one], 30), *own([two], None)])
        assert await _rows(database) == {
            one.id: (None, False, 30), two.id: (None, False, None), other.id: (other.writer, False, None),
        }  # fmt: skip
        assert await held(database) == (30, 1, 7)

    _run(catalogue, work)


@pytest.mark.parametrize("loss", ["ended", "dropped", "published", "another's", "none"])
def test_publish_of_an_object_that_is_the_writers_no_longer_is_refused(catalogue: str, loss: str) -> None:
    async def work(database: Database) -> None:
        one, two = await reserved(database, 2)
        table = WriterTable(database)
        wanted = own([one])
        match loss:
            case "ended":
                await table.end(one.writer, [])
            case "dropped":
                await table.drop(SPACE, [one])
            case "published":
                await put_store(database, "before", own=wanted)
            case "another's":
                wanted = [OwnObject(one.id, 10, "somebody")]
            case "none":
                wanted = [OwnObject(new_id(), 10, one.writer)]
        before = await held(database)
        with pytest.raises(Collected):
            await put_store(database, "a", own=[*wanted, *own([two])], tags=["t"])
        assert await held(database) == before
        assert await StoreTable(database, ACCOUNT).get("a") is None

    _run(catalogue, work)


def test_drop_leaves_what_was_published(catalogue: str) -> None:
    async def work(database: Database) -> None:
        kept, vain = await reserved(database, 2)
        await put_store(database, "a", own=own([kept]))
        await WriterTable(database).drop(SPACE, [kept, vain])
        assert await _rows(database) == {kept.id: (None, False, 10), vain.id: (None, True, None)}

    _run(catalogue, work)


def test_end_deletes_unused_rows_and_leaves_the_others_to_the_collector(catalogue: str) -> None:
    async def work(database: Database) -> None:
        unused, written, kept = await reserved(database, 3)
        await put_store(database, "a", own=own([kept]))
        await WriterTable(database).end(unused.writer, [(SPACE, unused), (SPACE, kept)])
        assert await _rows(database) == {written.id: (None, True, None), kept.id: (None, False, 10)}
        assert not await WriterTable(database).renew(unused.writer)

    _run(catalogue, work)


def test_spaces_that_begin_at_once_share_a_writer(catalogue: str) -> None:
    async def work(database: Database) -> None:
        for _ in range(5):
            reservations = Reservations(database)
            taken = await asyncio.gather(*(reservations.take(f"s{n}") for n in range(8)))
            assert len({each.writer for each in taken}) == 1
            await reservations.close()
        assert await database.read(lambda tx: tx.all("SELECT 1 FROM writers")) == []

    _run(catalogue, work)


def test_more_objects_than_a_few_blocks_are_taken_at_once(catalogue: str) -> None:
    async def work(database: Database) -> None:
        reservations = Reservations(database)
        taken = await asyncio.gather(*(reservations.take(SPACE) for _ in range(8 * BLOCK)))
        assert len({each.id for each in taken}) == 8 * BLOCK
        await reservations.close()

    _run(catalogue, work)


def test_process_that_lost_its_lease_reserves_again(catalogue: str) -> None:
    async def work(database: Database) -> None:
        reservations = Reservations(database)
        lost = await reservations.take(SPACE)
        await WriterTable(database).end(lost.writer, [])
        while (next := await reservations.take(SPACE)).writer == lost.writer:  # reserved before the loss was noticed
            pass
        await put_store(database, "a", own=own([next]))
        with pytest.raises(Collected):
            await put_store(database, "b", own=own([lost]))
        await reservations.close()

    _run(catalogue, work)
