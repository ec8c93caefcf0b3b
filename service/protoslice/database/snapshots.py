"""Snapshots: a whole catalogue, from either engine, as one SQLite file, and its restoration."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache, partial
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Final

import protoslice.database.schema as schema
from protoslice.database.sqlite import SqliteDatabase, SqliteTransaction
from protoslice.database.sqlite_file import translated
from protoslice.database.transactions import Database, Transaction
from protoslice.errors import IntegrityError, Unsupported

NEEDED: Final = "unpublished IS NULL AND (size IS NOT NULL OR due IS NULL)"
"""SQL condition on rows of `objects` whose bytes must be in the storage."""
_OTHER_KEY: Final = "key NOT GLOB 'objects/[0-9a-f][0-9a-f]/[0-9a-f]*' OR substr(key, 12) GLOB '*[^0-9a-f-]*'"
_WRONG: Final = (
    "SELECT 1 FROM objects WHERE typeof(key) <> 'text' OR typeof(size) NOT IN ('integer', 'null')",
    f"SELECT 1 FROM objects WHERE {_OTHER_KEY}",
    f"SELECT 1 FROM trash WHERE {_OTHER_KEY}",
    "SELECT 1 FROM meta WHERE typeof(catalogue_id) <> 'blob'",
)
"""Statements that find rows that a restoration must refuse.

SQLite does not check types, so values may be unreadable. Keys may name files other than objects.
"""
_BATCH: Final = 5000
_LEFT_OUT: Final = frozenset({"holds", "processes", "sqlite_sequence", "sqlite_schema"})
_NUMBERS: Final = frozenset({("names", "number"), ("trash", "number"), ("audit", "number")})
"""Columns that the engine fills itself, and that a copy leaves out."""


async def take_snapshot(database: Database, path: Path) -> None:
    """Write the current state of a catalogue to a new SQLite file; the service may keep running."""
    if isinstance(database, SqliteDatabase):
        await database.copy(path)
        return
    target = SqliteDatabase(path, durable=False)
    try:
        await schema.migrate(target)
    finally:
        await target.close()
    await database.export(lambda tx: _fill(tx, path))


async def note_snapshot(database: Database, *, dump: bool) -> None:
    """Record that a backup has just been made; if `dump` is True, record a dump into the storage instead."""
    column = "dumped" if dump else "backed_up"
    await database.write(lambda tx: tx.run(f"UPDATE meta SET {column} = :now", now=tx.now), background=True)


async def last_snapshots(database: Database) -> tuple[int, int]:
    """Return the times of the last backup and the last dump in microseconds since the epoch; 0 means never."""
    row = await database.read(lambda tx: tx.first("SELECT backed_up, dumped FROM meta"), background=True)
    return (0, 0) if row is None else (row[0] or 0, row[1] or 0)


def _fill(source: Transaction, path: Path) -> None:
    """Copy the rows of a database into a SQLite file that already has the tables."""
    with closing(sqlite3.connect(path, isolation_level=None)) as target, translated():
        target.execute("PRAGMA foreign_keys = OFF")
        target.execute("PRAGMA journal_mode = DELETE")
        target.execute("BEGIN")
        for table, columns in tables():
            target.execute(f"DELETE FROM {table}")
            for rows in source.batches(f"SELECT {', '.join(columns)} FROM {table}", _BATCH):
                SqliteTransaction(target).load(table, columns, rows)
        target.execute("COMMIT")
    with open(path, "rb") as written:
        os.fsync(written.fileno())


class Snapshot:
    """A snapshot in a file, upgraded to the schema of this program."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    async def open(cls, path: Path) -> Snapshot:
        """Open a file.

        Raise `IntegrityError` if it is damaged, and `Unsupported` if a newer program wrote it.
        """
        database = SqliteDatabase(path, durable=False)
        try:
            found, wanted = await schema.version_of(database), len(schema.migrations("sqlite"))
            if found < 1:
                raise IntegrityError("The snapshot has no catalogue: it is damaged")
            if found > wanted:
                await schema.check(database)
            await schema.migrate(database)
            await asyncio.to_thread(_check_tables, path)
        except (sqlite3.Error, ValueError, TypeError) as error:
            raise IntegrityError(f"The snapshot is damaged: {error}") from error
        finally:
            await database.close()
        return cls(path)

    @property
    def catalogue_id(self) -> str:
        """Id of the catalogue, which the marker of its storage contains."""
        with self._connected() as connection:
            return bytes(connection.execute("SELECT catalogue_id FROM meta").fetchone()[0]).hex()

    def objects(self) -> Iterator[tuple[str, int | None]]:
        """Yield the keys of all objects that may be needed, in order, with their sizes, or None for an unknown size."""
        sql = f"SELECT key, size FROM objects WHERE {NEEDED} ORDER BY key"
        with self._connected() as connection:
            yield from connection.execute(sql)

    async def restore(self, database: Database, incarnation: bytes) -> None:
        """Fill an empty database in one transaction; raise `Unsupported` if the database is not empty."""
        await database.fill(partial(self._copied_to, database.dialect, incarnation))

    def _copied_to(self, dialect: str, incarnation: bytes, tx: Transaction) -> None:
        schema.apply_migrations(tx, dialect)
        _require_empty(tx)
        order = tables()
        for table, _ in reversed(order):
            tx.run(f"DELETE FROM {table}")
        with self._connected() as source:
            for table, columns in order:
                try:
                    tx.load(table, columns, source.execute(f"SELECT {', '.join(columns)} FROM {table}"))
                except Exception as error:
                    raise IntegrityError(f"The snapshot is damaged in the table {table}: {error}") from error
        tx.run("UPDATE meta SET incarnation = :incarnation", incarnation=incarnation)
        if dialect == "postgresql":
            tx.run("ANALYZE")

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        with _reading(self.path) as connection, translated():
            yield connection


async def require_empty(database: Database) -> None:
    """Raise `Unsupported` if a database has stores or names, or another program's tables."""
    if await schema.version_of(database):
        await schema.check(database)
        await database.read(_require_empty)


def _require_empty(tx: Transaction) -> None:
    for table in ("stores", "names", "repositories", "uploads"):
        if tx.first(f"SELECT 1 FROM {table} LIMIT 1") is not None:
            raise Unsupported("The database is not empty: restore into a new one")


@cache
def tables() -> list[tuple[str, list[str]]]:
    """Return the tables of a catalogue, each after the tables that it refers to, with the columns to copy.

    This program defines the tables. They are not read from the snapshot, which anyone may have changed.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        schema.apply_migrations(SqliteTransaction(connection), "sqlite")
        sql = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' ORDER BY name"
        names = [name for (name,) in connection.execute(sql) if name not in _LEFT_OUT]
        refers = 'SELECT DISTINCT "table" FROM pragma_foreign_key_list(?)'
        order = TopologicalSorter({name: {row[0] for row in connection.execute(refers, (name,))} for name in names})
        columns = "SELECT name FROM pragma_table_info(?)"
        return [
            (name, [column for (column,) in connection.execute(columns, (name,)) if (name, column) not in _NUMBERS])
            for name in order.static_order()
        ]


def _reading(path: Path) -> closing[sqlite3.Connection]:
    """Open a file for reading; any thread may use the connection."""
    uri = f"{path.absolute().as_uri()}?mode=ro"
    return closing(sqlite3.connect(uri, uri=True, check_same_thread=False))


def _check_tables(path: Path) -> None:
    """Raise `IntegrityError` unless a file has the tables of a catalogue, as real tables and not as views."""
    with _reading(path) as connection:
        there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        for table, columns in tables():
            if table not in there:
                raise IntegrityError(f"The snapshot is damaged: it has no table {table}")
            connection.execute(f"SELECT {', '.join(columns)} FROM {table} LIMIT 1")
        for wrong in _WRONG:
            if connection.execute(f"{wrong} LIMIT 1").fetchone() is not None:
                raise IntegrityError("The snapshot is damaged: a column has invalid values")
