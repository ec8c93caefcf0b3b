"""Transactions on both engines."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from protoslice.database import Database, Transaction, connect, transactions, upgrade
from protoslice.database.transactions import Disconnected, ForeignKeyViolation, UniqueViolation, Work
from protoslice.errors import Conflict, DatabaseUnavailable, InvalidInput, ProtosliceError

_TABLES = (
    "parents (id bigint PRIMARY KEY)",
    "children (id bigint PRIMARY KEY, parent bigint NOT NULL REFERENCES parents (id))",
)


@asynccontextmanager
async def _opened(url: str) -> AsyncIterator[Database]:
    opened = connect(url, "memory://")
    try:
        await upgrade(opened)

        def tables(tx: Transaction) -> None:
            for statement in _TABLES:
                tx.run(f"CREATE TABLE IF NOT EXISTS {statement}")

        await opened.write(tables)
        yield opened
    finally:
        await opened.close()


def _insert(id: int) -> Work[int]:
    return lambda tx: tx.run("INSERT INTO parents (id) VALUES (:id)", id=id)


def _ids(tx: Transaction) -> list[int]:
    return [row[0] for row in tx.all("SELECT id FROM parents ORDER BY id")]


async def test_write_read_back(url: str) -> None:
    async with _opened(url) as db:
        assert await db.write(_insert(1 << 40)) == 1
        assert await db.read(_ids) == [1 << 40]
    async with _opened(url) as db:
        assert await db.read(_ids) == [1 << 40]


async def test_write_rolls_back_when_the_work_raises(url: str) -> None:
    def failing(tx: Transaction) -> None:
        tx.run("INSERT INTO parents (id) VALUES (1)")
        raise Conflict("no")

    async with _opened(url) as db:
        with pytest.raises(Conflict, match="no"):
            await db.write(failing)
        assert await db.read(_ids) == []


async def test_write_reports_violated_constraints(url: str) -> None:
    async with _opened(url) as db:
        await db.write(_insert(1))
        with pytest.raises(UniqueViolation):
            await db.write(_insert(1))
        with pytest.raises(ForeignKeyViolation):
            await db.write(lambda tx: tx.run("INSERT INTO children (id, parent) VALUES (1, 2)"))
        await db.write(lambda tx: tx.run("INSERT INTO children (id, parent) VALUES (1, 1)"))
        with pytest.raises(ForeignKeyViolation):
            await db.write(lambda tx: tx.run("DELETE FROM parents"))
        assert await db.read(_ids) == [1]


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_text_that_cannot_be_stored_is_invalid_input(url: str, text: str) -> None:
    async def work() -> None:
        async with _opened(url) as db:
            if db.dialect == "sqlite" and "\0" in text:
                return  # SQLite stores it
            for call in (db.read, db.write):
                with pytest.raises(InvalidInput, match="cannot be stored"):
                    await call(lambda tx: tx.first("SELECT 1 FROM meta WHERE CAST(:text AS text) = ''", text=text))
            assert await db.read(_ids) == []

    asyncio.run(work())


async def test_write_many_at_once_fail_one_by_one(url: str) -> None:
    async with _opened(url) as db:
        ids = [*range(40), *range(20)]
        found = await asyncio.gather(*(db.write(_insert(id)) for id in ids), return_exceptions=True)
        refused = [each for each in found if isinstance(each, UniqueViolation)]
        assert len(refused) == 20, [each for each in found if each != 1]
        assert await db.read(_ids) == list(range(40))


def test_write_of_a_cancelled_caller_is_committed_whole(url: str) -> None:
    begun, go = threading.Event(), threading.Event()

    def slow(tx: Transaction) -> None:
        tx.run("INSERT INTO parents (id) VALUES (1)")
        begun.set()
        assert go.wait(20)
        tx.run("INSERT INTO parents (id) VALUES (2)")

    async def work() -> None:
        async with _opened(url) as db:
            task = asyncio.create_task(db.write(slow))
            assert await asyncio.to_thread(begun.wait, 20)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            go.set()
            while len(await db.read(_ids)) < 2:
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(work(), 60))


async def test_read_sees_one_moment_and_writes_nothing(url: str) -> None:
    async with _opened(url) as db:
        await db.write(_insert(1))
        with pytest.raises(Exception, match=r"read-?only"):
            await db.read(_insert(2))
        assert await db.read(_ids) == [1]


def test_read_sees_no_write_between_its_statements(url: str) -> None:
    seen, go = threading.Event(), threading.Event()

    def twice(tx: Transaction) -> tuple[list[int], list[int]]:
        first = _ids(tx)
        seen.set()
        assert go.wait(20)
        return first, _ids(tx)

    async def work() -> None:
        async with _opened(url) as db:
            reading = asyncio.create_task(db.read(twice))
            assert await asyncio.to_thread(seen.wait, 20)
            await db.write(_insert(1))
            go.set()
            assert await reading == ([], [])
            assert await db.read(_ids) == [1]

    asyncio.run(asyncio.wait_for(work(), 60))


async def test_a_long_read_is_interrupted(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without the deadline, the query takes some seconds: an endless one would hang the test instead of failing it.
    long = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9000000) SELECT count(*) FROM n"
    for engine in ("sqlite", "postgres"):
        monkeypatch.setattr(f"protoslice.database.{engine}.READ_SECONDS", 0.05)
    async with _opened(url) as db:
        with pytest.raises(DatabaseUnavailable, match="too slow"):
            await db.read(lambda tx: tx.all(long))
        assert await db.read(_ids) == []


async def test_full_lane_refuses_and_background_work_continues(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "WAIT_SECONDS", 0.05)
    go = threading.Event()

    def waits(tx: Transaction) -> None:
        assert go.wait(20)

    async with _opened(url) as db:
        reads = [asyncio.create_task(db.read(waits)) for _ in range(20)]
        await asyncio.sleep(0)
        with pytest.raises(DatabaseUnavailable, match="busy"):
            await db.read(_ids)
        assert await db.read(_ids, background=True) == []
        go.set()
        await asyncio.gather(*reads, return_exceptions=True)
        assert await db.read(_ids) == []


async def test_closed_database_refuses(url: str) -> None:
    async with _opened(url) as db:
        pass
    with pytest.raises(DatabaseUnavailable):
        await db.write(_insert(1))
    with pytest.raises(DatabaseUnavailable):
        await db.read(_ids)


async def test_now_is_the_same_for_a_transaction(url: str) -> None:
    async with _opened(url) as db:
        first, second = await db.write(lambda tx: (tx.now, tx.now))
        assert first == second
        if db.dialect == "postgresql":
            assert await db.read(lambda tx: tx.first("SELECT max(at) FROM changes")) == (first,)
        assert first > 1_790_000_000_000_000


class _Unreachable(Database):
    """A database that cannot be reached while `away`."""

    dialect = "sqlite"

    def __init__(self) -> None:
        self.away, self.attempts = True, 0

    async def _read(self, work: Work[Any], *, background: bool) -> Any:
        self.attempts += 1
        if self.away:
            raise Disconnected("The database does not respond")

    async def _write(self, work: Work[Any], *, background: bool) -> Any:
        await self._read(work, background=background)

    async def close(self) -> None:
        return None


@pytest.mark.anyio
async def test_nothing_waits_for_a_database_that_is_known_to_be_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "RETRY_SECONDS", 0.05)
    db = _Unreachable()

    async def attempts() -> int:
        before = db.attempts
        with pytest.raises(DatabaseUnavailable):
            await db.read(lambda tx: None)
        return db.attempts - before

    assert await attempts() > 1
    assert await attempts() == 1
    db.away = False
    await db.read(lambda tx: None)
    db.away = True
    assert await attempts() > 1, "it was back: it may be so again in a moment"


async def test_each_method_of_a_transaction_raises_errors_of_the_package(url: str) -> None:
    """Work that runs in a transaction can distinguish errors on both engines."""
    twice = [{"id": 7}, {"id": 7}]
    insert, rowless = "INSERT INTO parents (id) VALUES (:id)", "INSERT INTO children (id, parent) VALUES (1, 99)"
    unknown = "SELECT * FROM no_such_table" if url.startswith("postgres") else "SELECT abs(-9223372036854775808)"
    calls: dict[str, Work[Any]] = {
        "all": lambda tx: [tx.all(f"{insert} RETURNING id", **row) for row in twice],
        "planned": lambda tx: [tx.planned(f"{insert} RETURNING id", **row) for row in twice],
        "run": lambda tx: [tx.run(insert, **row) for row in twice],
        "many": lambda tx: tx.many(insert, twice),
        "load": lambda tx: tx.load("parents", ["id"], [[7], [7]]),
        "first": lambda tx: [tx.first(f"{insert} RETURNING id", **row) for row in twice],
        "among": lambda tx: tx.among(f"{rowless} RETURNING {{listed}}", [1]) + tx.all(rowless),
        "batches": lambda tx: list(tx.batches(unknown, 9)),
        "record": lambda tx: [tx.record(b"c", schema) for schema in (0, 0, 9999)],
    }
    methods = {name for name, value in vars(Transaction).items() if callable(value) and not name.startswith("_")}
    assert methods - {"note"} == set(calls)
    async with _opened(url) as db:
        for name, call in calls.items():
            raised: list[BaseException] = []

            def failing(tx: Transaction) -> None:
                try:
                    call(tx)  # noqa: B023
                except BaseException as failure:
                    raised.append(failure)  # noqa: B023
                    raise

            with pytest.raises(Exception):  # noqa: B017, PT011 - it is looked at below
                await db.write(failing)
            if name != "batches" or db.dialect == "postgresql":
                assert isinstance(raised[0], ProtosliceError), (name, raised)
