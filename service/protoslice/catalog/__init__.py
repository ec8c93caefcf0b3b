"""The catalogue: the SQL database that holds everything but the bytes of the stores.

Each module covers one kind of row, with its dataclasses, SQL statements and errors. `open_database` opens the
catalogue, and deletes its old rows once an hour.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Final

import protoslice.database.schema as schema
from protoslice.catalog.audit import purge_audit
from protoslice.catalog.webhooks import DeliveryTable
from protoslice.concurrency.chores import background, run_all
from protoslice.database import EMPTY, FILE, connect, upgrade
from protoslice.database.processes import registered
from protoslice.database.sqlite import SqliteDatabase
from protoslice.database.transactions import Database, Transaction
from protoslice.errors import ProtosliceError, Unsupported

_log = logging.getLogger(__name__)

_PURGE_SECONDS: Final = 3600
_FIRST_SECONDS: Final = 60
_DAY: Final = 86_400_000_000


@asynccontextmanager
async def open_database(
    url: str | None,
    storage: str,
    *,
    shared: bool = True,
    create: bool = True,
    audit_seconds: float = 0,
    audit_entries: int = 0,
) -> AsyncIterator[Database]:
    """Yield the catalogue at `url`; if `url` is None, yield the default catalogue of the storage at the URI `storage`.

    If the storage is not `shared` with other processes, the default catalogue is temporary: it ends with this
    process. A SQLite file is migrated to the current schema, and created if it is missing and `create` is True.
    Entries of the audit are deleted after `audit_seconds`, unless `audit_seconds` is 0. At most `audit_entries`
    entries of each space are kept, unless `audit_entries` is 0.

    Raise `Unsupported` for a bucket without a database URL, and for a schema that needs another version of the program.
    """
    with tempfile.TemporaryDirectory(prefix="protoslice-") as memory:
        is_private = url is None and (not shared or storage.startswith("memory://"))
        if is_private:
            database: Database = SqliteDatabase(Path(memory) / FILE, durable=False)
        else:
            database = await asyncio.to_thread(connect, url, storage, create=create)
        try:
            if isinstance(database, SqliteDatabase):
                await upgrade(database, create=create)
                _log.info("catalogue in SQLite %s", sqlite3.sqlite_version)
            elif not create and not await schema.version_of(database):
                raise Unsupported(EMPTY)
            await schema.check(database)
            tidying = {"the cleanup of the database": partial(_tidy, database, audit_seconds, audit_entries)}
            async with nullcontext() if is_private else registered(database), background(tidying):
                yield database
        finally:
            await database.close()


async def _tidy(database: Database, audit_seconds: float, audit_entries: int) -> None:
    """Delete old audit entries, deliveries and rows of `changes` once an hour, without end."""
    wait = _FIRST_SECONDS
    while True:
        await asyncio.sleep(wait)
        wait = _PURGE_SECONDS
        with suppress(ProtosliceError):  # the next run retries what failed
            await tidy(database, audit_seconds, audit_entries)


async def tidy(database: Database, audit_seconds: float, audit_entries: int = 0) -> None:
    """Delete all old rows once; if a step fails, run the remaining steps before the first error is raised."""
    steps: list[Callable[[], Awaitable[None]]] = [
        DeliveryTable(database).purge,
        partial(purge_audit, database, audit_seconds, audit_entries),
    ]
    if database.dialect == "postgresql":
        steps.append(partial(purge_changes, database))
    await run_all(steps)


async def purge_changes(database: Database) -> None:
    """Delete the rows of `changes` that are older than a day; their transactions are no longer retried."""

    def work(tx: Transaction, limit: int) -> int:
        return tx.run(
            "DELETE FROM changes WHERE id IN (SELECT id FROM changes WHERE at < :before ORDER BY at LIMIT :limit)",
            before=tx.now - _DAY,
            limit=limit,
        )

    async for _ in database.write_in_batches(work):
        pass


__all__ = ["open_database"]
