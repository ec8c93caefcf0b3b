"""The race between a collector and a publisher that shares an object, on real connections, at every step of both.

The collector deletes rows and the publisher inserts references, so a foreign key decides. A collector that only marked
objects, in one statement with the condition that nothing refers to them, would mark some that are in use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from tests.support.postgres import TestServer
from tests.support.rows import ACCOUNT, SPACE, own, put_store, reserved
from tests.support.stepping import NEVER, Actor

from protoslice.catalog import open_database
from protoslice.catalog.collector import CollectorTable, _drop
from protoslice.catalog.objects import Collected
from protoslice.catalog.stores import StoreTable
from protoslice.database import Database, Transaction
from protoslice.database.postgres import _parameters


@contextmanager
def _a_free_object(url: str) -> Iterator[int]:
    """Yield an object to which nothing refers any more, and which the collector is about to look at."""

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
    """Let the first actor run to its stop, then the second to its own, then both to the end."""
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
    """Mark objects that are free in one statement: the wrong way."""
    return tx.run(
        """
        UPDATE objects SET due = -1 WHERE due <= :now AND NOT EXISTS (
            SELECT 1 FROM store_objects r WHERE r.space = objects.space AND r.object = objects.id
        )""",
        now=tx.now,
    )


async def _marking(database: Database) -> Any:
    return await database.write(_marked)


def _rows(url: str, object: int) -> tuple[bool, bool, bool]:
    """Return whether the object has a row, whether that is marked, and whether the new store refers to it."""

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
        exists, _, refers = _rows(url, free)
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
            _, marked, refers = _rows(url, free)
            if marked and refers:
                lost.append(stop)
            with psycopg.connect(**_parameters(url)[0], autocommit=True) as connection:
                connection.execute("UPDATE objects SET due = 1 WHERE due = -1")
    assert lost, "this race would show nothing"
