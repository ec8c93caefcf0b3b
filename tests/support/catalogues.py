"""The catalogues of tests: SQLite in memory, and files that need not survive a crash of the machine."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar
from unittest.mock import patch
from weakref import WeakKeyDictionary

from protoslice.database import Database, connect, schema, upgrade
from protoslice.database.sqlite import SqliteDatabase, SqliteTransaction
from protoslice.database.sqlite_file import translated
from protoslice.database.transactions import Alteration, Outdated, Row, Transaction, Work
from protoslice.storage import FileStorage, Storage

T = TypeVar("T")

_KEPT: Final = 64
_in_memory: Final = WeakKeyDictionary[Storage, "InlineDatabase"]()
_of_folders: Final = dict[str, "InlineDatabase"]()


@asynccontextmanager
async def shared_catalogue(path: Path) -> AsyncIterator[Database]:
    """Yield the catalogue in a file, which several replicas of a test may open."""
    database = SqliteDatabase(path, durable=False)
    try:
        await upgrade(database)
        yield database
    finally:
        await database.close()


async def make_earlier(url: str, version: int) -> None:
    """Make a catalogue of an earlier schema in an empty database."""
    scripts = schema.migrations(url.partition(":")[0])
    with patch.object(schema, "migrations", lambda dialect: scripts[:version]):
        database = connect(url, "memory://")
        await upgrade(database)
        await database.close()


def run_in(url: str, work: Callable[[Database], Awaitable[None]]) -> None:
    """Run `work` with the catalogue at a URL, after its tables are created."""

    async def run() -> None:
        database = connect(url, "memory://")
        try:
            await upgrade(database)
            await work(database)
        finally:
            await database.close()

    asyncio.run(run())


class InlineDatabase(Database):
    """A catalogue in memory whose transactions run on the event loop, one after the other.

    Like PostgreSQL, it records committed changes, so that a test can lose the answer to a COMMIT.
    """

    dialect = "sqlite"
    statements = 0
    """The number of statements so far."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA foreign_keys = ON")
        at_once(schema.migrate(self))
        self._connection.execute("CREATE TABLE changes (id blob PRIMARY KEY, at bigint NOT NULL) WITHOUT ROWID")

    @cached_property
    def transactions(self) -> Counter[str]:
        """The number of transactions so far, for `read` and for `write`."""
        return Counter()

    def count_anew(self) -> None:
        """Reset the counts of transactions and statements."""
        self.transactions.clear()
        self.statements = 0

    @contextmanager
    def at(self, clock: Callable[[], float]) -> Iterator[None]:
        """Use another clock in the database until the block ends."""
        before, self._clock = self._clock, clock
        try:
            yield
        finally:
            self._clock = before

    async def _write(self, work: Work[T], *, background: bool) -> T:
        self.transactions["write"] += 1
        return self.run(work, "COMMIT")

    async def _read(self, work: Work[T], *, background: bool) -> T:
        self.transactions["read"] += 1
        return self.run(work, "ROLLBACK")

    def run(self, work: Work[T], end: str) -> T:
        """Run `work` in a transaction that ends with the statement `end`, and return its result."""
        with translated():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                result = work(self._transaction())
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute(end)
            return result

    @contextmanager
    def _apart_for_rehearsal(self) -> Iterator[Transaction]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield self._transaction()
        finally:
            self._connection.execute("ROLLBACK")

    def _transaction(self) -> _CountedTransaction:
        transaction = _CountedTransaction(self._connection, self)
        transaction._now = int(self._clock() * 1_000_000)
        return transaction

    async def export(self, work: Work[T]) -> T:
        return await self._read(work, background=True)

    async def alter(self, alteration: Alteration) -> None:
        self.run(alteration.apply, "COMMIT")

    def copy_to(self, other: InlineDatabase) -> None:
        """Replace the content of another catalogue with this catalogue's content."""
        self._connection.backup(other._connection)

    async def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class _CountedTransaction(SqliteTransaction):
    """A transaction that counts its statements."""

    def __init__(self, connection: sqlite3.Connection, database: InlineDatabase) -> None:
        super().__init__(connection)
        self._database = database

    def record(self, change: bytes, schema: int) -> None:
        sql = "INSERT INTO changes (id, at) SELECT :id, :now FROM meta WHERE :schema IN (0, schema)"
        if self.run(sql, id=change, now=self.now, schema=schema) == 0:
            raise Outdated

    def all(self, sql: str, **values: Any) -> list[Row]:
        self._database.statements += 1
        return super().all(sql, **values)

    def run(self, sql: str, **values: Any) -> int:
        self._database.statements += 1
        return super().run(sql, **values)

    def many(self, sql: str, rows: Iterable[Mapping[str, Any]]) -> None:
        self._database.statements += 1
        super().many(sql, rows)


_empty: Final = list[bytes]()


def empty_catalogue() -> InlineDatabase:
    """Return an empty catalogue in memory. It is copied, which is faster than creating its tables."""
    if not _empty:
        _empty.append(InlineDatabase()._connection.serialize())
    catalogue = InlineDatabase.__new__(InlineDatabase)
    catalogue._clock = time.time
    catalogue._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    catalogue._connection.deserialize(_empty[0])
    catalogue._connection.execute("PRAGMA foreign_keys = ON")
    return catalogue


def upload_ids(storage: Path) -> list[str]:
    """Return the ids of the uploads of a service over a directory; the service may be running."""
    file = storage / "catalog.sqlite"
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as connection:
        return [id for (id,) in connection.execute("SELECT id FROM uploads")]


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits."""
    try:
        while True:
            work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result


def catalogue_of(storage: Storage) -> InlineDatabase:
    """Return a storage's catalogue in memory, which all replicas over the storage share."""
    while hasattr(storage, "_inner"):
        storage = storage._inner
    if not isinstance(storage, FileStorage):
        if storage not in _in_memory:
            _in_memory[storage] = InlineDatabase()
        return _in_memory[storage]
    folder = os.readlink(f"/proc/self/fd/{storage._tree._root}")
    if folder not in _of_folders:
        _of_folders[folder] = InlineDatabase()
        while len(_of_folders) > _KEPT:
            del _of_folders[next(iter(_of_folders))]
    return _of_folders[folder]
