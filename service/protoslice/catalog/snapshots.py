"""Snapshots: the whole catalogue of either engine as one SQLite file, and back."""

from __future__ import annotations

import asyncio
import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Final

import protoslice.catalog.schema as schema
from protoslice.catalog.database import SECOND, Database, Transaction
from protoslice.catalog.sqlite import SqliteDatabase, SqliteTransaction, translated
from protoslice.errors import Conflict, DatabaseUnavailable, IntegrityError, Unsupported

HOLD_SECONDS: Final = 300.0
"""Seconds for which no bytes are deleted after a hold was renewed."""
NEEDED: Final = "writer IS NULL AND (size IS NOT NULL OR due IS NULL)"
"""Condition on a row of `objects` whose bytes are in the storage."""
_BATCH: Final = 5000
_LEFT_OUT: Final = frozenset({"changes", "holds", "sqlite_sequence"})
_NUMBERS: Final = frozenset({("names", "number"), ("trash", "number"), ("audit", "number")})
"""Columns that the engine fills itself."""


async def take_snapshot(database: Database, path: Path) -> None:
    """Write the catalogue, as it is now, to a new SQLite file; the service may keep running."""
    if isinstance(database, SqliteDatabase):
        await database.copy(path)
        return
    target = SqliteDatabase(path, durable=False)
    try:
        await schema.migrate(target)
    finally:
        await target.close()
    await database.export(lambda tx: _fill(tx, path))


def _fill(source: Transaction, path: Path) -> None:
    """Copy the rows of a database into a SQLite file that has the tables."""
    with closing(sqlite3.connect(path, isolation_level=None)) as target, translated():
        target.execute("PRAGMA foreign_keys = OFF")
        target.execute("PRAGMA journal_mode = DELETE")
        target.execute("BEGIN")
        for table, columns in _tables(target):
            target.execute(f"DELETE FROM {table}")
            for rows in source.batches(f"SELECT {', '.join(columns)} FROM {table}", _BATCH):
                SqliteTransaction(target).load(table, columns, rows)
        target.execute("COMMIT")
    with open(path, "rb") as written:
        os.fsync(written.fileno())


class Snapshot:
    """A snapshot that was taken before, upgraded to the schema of this program."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    async def open(cls, path: Path) -> Snapshot:
        """Open a file; raise `IntegrityError` for a damaged one, `Unsupported` for one of a newer program."""
        database = SqliteDatabase(path, durable=False)
        try:
            found, wanted = await schema.version_of(database), len(schema.migrations("sqlite"))
            if not found:
                raise IntegrityError("The snapshot has no catalogue: it is damaged")
            if found > wanted:
                await schema.check(database)
            await schema.migrate(database)
        finally:
            await database.close()
        return cls(path)

    @property
    def catalogue_id(self) -> str:
        """Id of the catalogue, which storages name in their markers."""
        with self._connected() as connection:
            return bytes(connection.execute("SELECT catalogue_id FROM meta").fetchone()[0]).hex()

    def objects(self) -> Iterator[tuple[str, int | None]]:
        """Return the keys of all objects that may be needed, sorted, with their sizes where the catalogue has them."""
        sql = f"SELECT key, size FROM objects WHERE {NEEDED} ORDER BY key"
        with self._connected() as connection:
            yield from connection.execute(sql)

    async def restore(self, database: Database) -> None:
        """Fill an empty database; raise `Unsupported` for one that has tables already."""
        if await schema.version_of(database):
            raise Unsupported("The database is not empty: restore into a new one, or remove its tables first")
        await schema.migrate(database)
        await database.fill(self._copied_to)

    def _copied_to(self, tx: Transaction) -> None:
        with self._connected() as source:
            for table, columns in _tables(source):
                tx.run(f"DELETE FROM {table}")
                tx.load(table, columns, source.execute(f"SELECT {', '.join(columns)} FROM {table}"))

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True)) as connection, translated():
            yield connection


def _tables(connection: sqlite3.Connection) -> list[tuple[str, list[str]]]:
    """Return the tables of the catalogue with their columns, each behind those that it refers to."""
    sql = """
        SELECT name FROM pragma_table_list
        WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"""
    names = [name for (name,) in connection.execute(sql) if name not in _LEFT_OUT]
    refers = 'SELECT DISTINCT "table" FROM pragma_foreign_key_list(?)'
    order = TopologicalSorter({name: {row[0] for row in connection.execute(refers, (name,))} for name in names})
    columns = "SELECT name FROM pragma_table_info(?)"
    return [
        (name, [column for (column,) in connection.execute(columns, (name,)) if (name, column) not in _NUMBERS])
        for name in order.static_order()
    ]


class Hold:
    """Keeps bytes from being deleted while a backup is made, and other backups from beginning."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._owner = secrets.token_hex(8)
        self._renewing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Hold:
        sql = "INSERT INTO holds (id, owner, expires) VALUES ('backup', :owner, :expires) ON CONFLICT DO NOTHING"

        def work(tx: Transaction) -> int:
            tx.run("DELETE FROM holds WHERE expires < :now", now=tx.now)
            return tx.run(sql, owner=self._owner, expires=_end(tx))

        if not await self._database.write(work, background=True):
            raise Conflict(
                f"Another backup or check is running: try again when it has ended, or after {HOLD_SECONDS / 60:.0f} "
                "minutes if it was killed"
            )
        self._renewing = asyncio.create_task(self._renew())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        sql = "DELETE FROM holds WHERE owner = :owner"
        await self._database.write(lambda tx: tx.run(sql, owner=self._owner), background=True)

    def check(self) -> None:
        """Raise if the hold is lost: bytes may have been deleted."""
        if self._renewing is not None and self._renewing.done():
            self._renewing.result()

    async def _renew(self) -> None:
        """Renew the hold for ever; raise `Conflict` if it has expired."""
        sql = "UPDATE holds SET expires = :expires WHERE owner = :owner AND expires > :now"
        while True:
            await asyncio.sleep(HOLD_SECONDS / 10)
            with suppress(DatabaseUnavailable):  # the next renewal may be in time
                if not await self._database.write(
                    lambda tx: tx.run(sql, expires=_end(tx), owner=self._owner, now=tx.now), background=True
                ):
                    raise Conflict("The backup was interrupted for too long, and data may be deleted: start it again")


def _end(tx: Transaction) -> int:
    return tx.now + int(HOLD_SECONDS * SECOND)
