"""Background work: transactions of few rows for any amount to delete, steps that all run, loops that restart."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest
from tests.support.catalogues import InlineDatabase
from tests.support.stores import onnx, opened, upload

from protoslice.catalog import tidy
from protoslice.catalog.git_objects import GitObjectTable
from protoslice.catalog.labels import HUB
from protoslice.catalog.marker import check_storage
from protoslice.catalog.objects import ObjectTable, ReservedObject
from protoslice.catalog.repositories import RepositoryTable
from protoslice.catalog.spaces import Usage
from protoslice.catalog.webhooks import DeliveryTable
from protoslice.concurrency import chores
from protoslice.database import Transaction
from protoslice.database.sqlite import SqliteTransaction
from protoslice.database.sqlite_file import translated
from protoslice.database.transactions import Row, Work
from protoslice.errors import DatabaseUnavailable, NotFound
from protoslice.server.services import ServerState
from protoslice.server.settings import Settings
from protoslice.storage import MemoryStorage
from protoslice.stores import collection
from protoslice.stores.collection import collect_garbage

T = TypeVar("T")

BATCH: Final = 12
OWNED: Final = 10 * BATCH
"""The rows of each kind that one owner has, and the owners of each kind."""
SPACE: Final = "default"
KEPT: Final = {
    "changes",
    "former_names",
    "holds",
    "meta",
    "processes",
    "schemas",
    "spaces",
    "tokens",
    "usage",
    "webhooks",
}
"""The tables from which background work on SQLite deletes no rows."""


class Watched(InlineDatabase):
    """A record of each transaction's first statement and of the rows it changed, including cascades."""

    most = 1 << 40
    """The rows above which a transaction runs out of time."""
    broken = ""
    """The first statement of the transactions that fail."""

    def __init__(self) -> None:
        self.storage = MemoryStorage()
        self.seen: list[tuple[str, int]] = []
        super().__init__()

    def run(self, work: Work[T], end: str) -> T:
        transaction = WatchedTransaction(self._connection)
        before = self._connection.total_changes
        with translated():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                result = work(transaction)
                changed = self._connection.total_changes - before
                if changed > self.most or transaction.begun == self.broken:
                    raise DatabaseUnavailable("The database is too slow: a statement ran out of time")
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            finally:
                if end == "COMMIT" and transaction.begun is not None:
                    self.seen.append((transaction.begun, self._connection.total_changes - before))
            self._connection.execute(end)
        return result

    def kinds(self) -> list[str]:
        """Return the first statements of the transactions that write, each once."""
        return list(dict.fromkeys(first for first, _ in self.seen))

    def count(self, table: str) -> int:
        """Return the number of rows of a table."""
        return int(self._connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])

    def tables(self) -> set[str]:
        """Return the tables, without those of the search for names."""
        sql = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite%'"
        return {name for (name,) in self._connection.execute(sql)}


class WatchedTransaction(SqliteTransaction):
    """A transaction that records its first statement."""

    begun: str | None = None

    def all(self, sql: str, **values: Any) -> list[Row]:
        self._note(sql)
        return super().all(sql, **values)

    def run(self, sql: str, **values: Any) -> int:
        self._note(sql)
        return super().run(sql, **values)

    def many(self, sql: str, rows: Iterable[Mapping[str, Any]]) -> None:
        self._note(sql)
        super().many(sql, rows)

    def _note(self, sql: str) -> None:
        if self.begun is None and "FROM meta" not in sql:
            self.begun = sql


@pytest.fixture
async def database(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """Return a catalogue in which background work has much to delete, in small batches."""
    monkeypatch.setattr("protoslice.database.transactions.BATCH", BATCH)
    return await _filled()


async def _filled() -> Watched:
    database = Watched()
    await check_storage(database.storage, database, mark=True)
    database.run(_fill, "COMMIT")
    database.seen.clear()
    return database


def _fill(tx: Transaction) -> None:
    """Insert owners of many rows, and many owners."""
    numbers = range(1, OWNED + 1)
    old = {"space": SPACE, "old": 1}

    def rows(sql: str, **values: Any) -> None:
        tx.many(sql, [{**old, **values, "n": n, "name": f"{n:09}"} for n in numbers])

    insert_store = """
        INSERT INTO stores (space, id, digest, type, size, held, created, weight, manifest, deleted)
        VALUES (:space, :n + :first, :name || :first, 't', 1, 1, 1, 1, x'00', :old)"""
    insert_object = """
        INSERT INTO objects (space, id, key, size, unpublished, due)
        VALUES (:space, :n + :first, 'objects/' || :n + :first, 1, :unpublished, :due)"""
    insert_upload = """
        INSERT INTO uploads (space, id, client, state, used, epoch, expires, modified, record)
        VALUES (:space, :name || :state, 'c', :state, 0, 0, :old, :old, '{}')"""
    insert_repository = "INSERT INTO repositories (space, id, protocol, name, created) VALUES (:space, :id, :p, :id, 1)"
    insert_file = """
        INSERT INTO kept_files (space, repository, kind, name, size, data, upload, version, updated)
        VALUES (:space, :repository, :kind, :name, 0, x'00', :upload, x'00', :old)"""
    # Bytes that were never published.
    rows(insert_object, first=0, unpublished=1, due=None)
    # Rows of uploads: the first expired upload has everything.
    for state in ("open", "gone"):
        rows(insert_upload, state=state)
    rows(insert_object, first=1000, unpublished=None, due=None)
    upload = "000000001open"
    rows("INSERT INTO upload_objects (space, upload, object) VALUES (:space, :upload, :n + 1000)", upload=upload)
    rows("INSERT INTO upload_parts (space, upload, n, location) VALUES (:space, :upload, :n, '')", upload=upload)
    rows(
        "INSERT INTO xorbs (space, upload, name, size, record) VALUES (:space, :upload, :name, 1, x'00')", upload=upload
    )
    # Rows of stores: the first store has everything.
    rows(insert_store, first=0)
    for first in (2000, 3000):
        rows(insert_object, first=first, unpublished=None, due=None)
    rows("INSERT INTO store_objects (space, store, object) VALUES (:space, 1, :n + 2000)")
    rows("INSERT INTO derived (space, store, name, made, object) VALUES (:space, 1, :name, 1, :n + 3000)")
    rows("INSERT INTO file_digests (space, sha256, store, n) VALUES (:space, x'00', 1, :n)")
    rows("INSERT INTO pieces (space, digest, store) VALUES (:space, CAST(:name AS blob), 1)")
    # Rows of repositories: number 9 is removed, number 8 has objects of git.
    for id in (8, 9):
        tx.run(insert_repository, space=SPACE, id=id, p=HUB)
    tx.run(insert_repository, space=SPACE, id=7, p="stores")
    rows("""
        INSERT INTO commits (space, repository, id, digits, number, title, message, author, at)
        VALUES (:space, 9, :name, '', 1, '', '', '', 1)""")
    rows("""
        INSERT INTO manifests (space, repository, digest, media_type, body, pushed)
        VALUES (:space, 9, :name, '', x'00', 1)""")
    rows("""
        INSERT INTO names (space, repository, kind, name, commit_id, manifest, version, updated)
        VALUES (:space, 9, 'heads', :name, :name, :name, x'00', 1)""")
    rows(insert_file, repository=9, kind="git", upload=None)
    for kind in ("git", "git-commit"):
        rows(insert_file, repository=8, kind=kind, upload=None)
    rows(insert_file, repository=7, kind="blob", upload="none")
    # Rows that are due later.
    rows(insert_object, first=4000, unpublished=None, due=1)
    rows("INSERT INTO trash (key, sums, passes, due) VALUES ('objects/x' || :n, 1, 1, :old)")
    rows("""
        INSERT INTO audit (at, change, n, space, who, what, subject, detail)
        VALUES (:old, x'00', :n, :space, '', '', '', '{}')""")
    tx.run("INSERT INTO webhooks VALUES (:space, 'h', 'h', '', '', 1, x'00')", space=SPACE)
    for dead in (0, 1):
        rows(
            """
            INSERT INTO deliveries (hook, id, event, dead, written, due, attempts, error)
            VALUES ('h', :dead || :name, '', :dead, :old, :old, 0, '')""",
            dead=dead,
        )


async def _work(database: Watched) -> int:
    """Do all work that may have to delete many rows; return how many steps failed."""
    return await _failures(
        DeliveryTable(database).trim("h", OWNED // 2),
        tidy(database, 1),
        collect_garbage(database.storage, database, grace_seconds=-1, delay_seconds=-1),
    )


async def _failures(*works: Awaitable[object]) -> int:
    failed = 0
    for work in works:
        try:
            await work
        except DatabaseUnavailable:
            failed += 1
    return failed


async def _requests(database: Watched) -> None:
    """Make requests and end a process, which leave work to the background or interfere with it."""
    objects = [ReservedObject(n, f"objects/{n}") for n in range(1, OWNED)]
    await ObjectTable(database).drop(SPACE, objects[: OWNED // 2])
    await ObjectTable(database).delete([(SPACE, each) for each in objects[OWNED // 2 :]])
    await RepositoryTable(database, Usage(SPACE), HUB).remove("9")
    await GitObjectTable(database, SPACE, 8).clear()


def _assert_done(database: Watched) -> None:
    left = {table: database.count(table) for table in database.tables() - KEPT}
    # Bytes that are deleted twice, deliveries that are dead or of removed refs, the audit of a removal, the
    # repositories that stay, and the mark of a clearing.
    kept = {"trash": 2 * OWNED, "deliveries": 2 * OWNED, "audit": OWNED + 1, "repositories": 2, "kept_files": 1}
    for table, most in kept.items():
        assert left.pop(table) <= most, table
    assert {table: count for table, count in left.items() if count} == {}


async def test_every_table_has_many_rows_to_begin_with(database: Watched) -> None:
    few = {table for table in database.tables() - KEPT if database.count(table) < OWNED}
    assert few == {"repositories"}, "add rows to `_fill` that background work has to delete, or the table to `KEPT`"


async def test_no_transaction_changes_many_rows(database: Watched) -> None:
    await _requests(database)
    requests = database.seen[:]
    assert await _work(database) == 0
    _assert_done(database)
    assert {first: rows for first, rows in requests + database.seen if rows >= OWNED} == {}


async def test_batches_that_take_too_long_are_halved(database: Watched) -> None:
    database.most = BATCH
    await _requests(database)
    assert await _work(database) == 0
    _assert_done(database)
    assert any(rows > BATCH for _, rows in database.seen), "no batch was too large"


async def test_a_step_that_fails_does_not_stop_the_others(database: Watched) -> None:
    assert await _work(database) == 0
    kinds = database.kinds()
    assert len(kinds) >= 12
    for broken in kinds:
        other = await _filled()
        other.broken = broken
        assert await _work(other) == 1, broken
        missing = set(kinds) - set(other.kinds())
        assert missing <= {"DELETE FROM trash WHERE number = :number"}, broken  # of bytes that would be deleted


async def test_every_loop_of_a_service_goes_on_after_an_unexpected_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(chores, "RESTART_SECONDS", 0.01)
    settings = Settings(
        storage=tmp_path.as_uri(),
        space_watermark_bytes=0,
        auth="open",
        webhook_allow=("https://hooks.example/",),
        draft_quiet_seconds=60,
    )
    services, before = ServerState(settings), asyncio.all_tasks()
    await services.open()
    try:
        await upload(services.stores, onnx(200_000))
        while not all(map(_waits, loops := asyncio.all_tasks() - before)):
            await asyncio.sleep(0)
        loops = {task for task in loops if "Event.wait" not in repr(task.get_coro())}  # a loop waits for these
        assert len(loops) >= 8
        for task in loops:
            task._fut_waiter.set_exception(RuntimeError(f"planted in {task.get_name()}"))  # type: ignore[attr-defined]
        for _ in range(9):
            await asyncio.sleep(0)
        assert [task for task in loops if task.done()] == []
        for task in loops:
            assert f"planted in {task.get_name()}" in caplog.text, task
    finally:
        await services.close()


def _waits(task: asyncio.Task[Any]) -> bool:
    """Return True for a task that sleeps."""
    waiter = getattr(task, "_fut_waiter", None)
    return type(waiter) is asyncio.Future and not waiter.done()


async def test_a_service_collects_nothing_by_a_clock_that_was_set_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Clocks()
    database, storage = InlineDatabase(lambda: time.clock), MemoryStorage()
    monkeypatch.setattr("protoslice.stores.collection.elapsed", lambda: time.elapsed)
    monkeypatch.setattr(collection, "EVERY_SECONDS", 0)
    async with opened(storage, database=database) as stores:
        first, second = [(await upload(stores, onnx(1000, seed=seed))).store.id for seed in range(2)]
        collecting = asyncio.create_task(collection.collect_for_ever(storage, database, 600))

        async def pass_steps(count: int) -> None:
            for _ in range(count):
                time.pass_seconds(STEP)
                for _ in range(6):
                    await asyncio.sleep(0)

        async def can_be_restored(store: str) -> bool:
            with suppress(NotFound):
                await stores.restore(store)
                return True
            return False

        try:
            await pass_steps(3)
            await stores.delete(first)
            time.clock += 2 * DAY
            await pass_steps(3)
            assert await can_be_restored(first), "it was removed half an hour ago"
            time.clock -= 2 * DAY
            await stores.delete(first)
            await pass_steps(DAY // STEP + 2)
            assert not await can_be_restored(first), "the clock is right again"
            time.clock += 40 * DAY  # for good
            await stores.delete(second)
            await pass_steps(DAY // STEP - 2)
            assert await can_be_restored(second)
            await stores.delete(second)
            await pass_steps(DAY // STEP + 5)
            assert not await can_be_restored(second), "the new time is believed after a day"
        finally:
            collecting.cancel()
            await asyncio.gather(collecting, return_exceptions=True)


async def test_a_later_process_on_the_machine_notices_that_the_clock_was_set_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    time, machine = Clocks(), ["first start"]
    database = InlineDatabase(lambda: time.clock)
    monkeypatch.setattr("protoslice.stores.collection.elapsed", lambda: time.elapsed)
    monkeypatch.setattr("protoslice.stores.collection.boot", lambda: machine[0])

    async def doubted() -> float:
        return (await collection.doubt_clock(database))[0]

    assert await doubted() == 0
    time.pass_seconds(DAY)
    assert await doubted() == 0, "as much as has passed"
    time.clock += 2 * DAY
    assert await doubted() == DAY
    time.pass_seconds(STEP)
    assert await doubted() == DAY - STEP
    time.pass_seconds(DAY)
    assert await doubted() == 0, "the new time is believed after a day"
    time.clock += 2 * DAY
    machine[0] = "second start"
    assert await doubted() == 0, "nothing is known of what has passed since"
    assert await doubted() == 0


DAY: Final = 86_400
STEP: Final = 600


class Clocks:
    """A clock that a test sets, and the time that passes."""

    clock = 1.8e9
    elapsed = 1000.0

    def pass_seconds(self, seconds: float) -> None:
        """Advance both clocks."""
        self.clock += seconds
        self.elapsed += seconds
