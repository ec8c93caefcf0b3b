"""SQL databases: transactions on SQLite and PostgreSQL, migrations and snapshots.

`connect` returns the database that the settings name, and `upgrade` brings its schema up to date.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from pathlib import Path
from typing import Final

import protoslice.database.schema as schema
from protoslice.database.processes import FIRST_SCHEMA, refuse_running, running
from protoslice.database.sqlite import SqliteDatabase, SqliteTransaction
from protoslice.database.transactions import Alteration, Database, Transaction
from protoslice.errors import InvalidInput, Unsupported, missing_extra
from protoslice.uris import local_path

__all__ = ["Database", "Transaction", "connect", "file_of", "schema", "shown_url", "upgrade"]

_log = logging.getLogger(__name__)

FILE: Final = "catalog.sqlite"
"""Name of the default catalogue's file, in the directory of the storage."""
_URL: Final = re.compile(r"(postgres(?:ql)?|sqlite)://(?:[^/?#@]*@)?([^/?#@]*(?:/[^?#@]*)?)(?:\?[^#@]*)?")
"""Pattern of a database URL; special characters of a password must be percent-encoded."""
_PROGRESS_SECONDS: Final = 10
"""Seconds between two warnings about a slow upgrade."""
_LOCK_SECONDS: Final = 60
"""Longest time in seconds for which a PostgreSQL upgrade waits for other programs' transactions, such as a dump."""
EMPTY: Final = (
    "The database is empty, but the storage is in use: set PROTOSLICE_DATABASE to the database of this storage, or run "
    "`protoslice restore-backup` (again, if it was interrupted)"
)
"""The message about a database that has no tables."""


def connect(url: str | None, storage: str, *, create: bool = True) -> Database:
    """Return the database at `url`, or the default database of `storage` if `url` is None.

    The schema is not checked. Raise the errors of `file_of`. Also raise `Unsupported` if a SQLite file is missing and
    `create` is False.
    """
    path = file_of(url, storage)
    if path is not None:
        if not create and not path.exists():
            raise Unsupported(EMPTY)
        return SqliteDatabase(path)
    try:
        from protoslice.database.postgres import PostgresDatabase
    except ImportError as error:
        raise Unsupported(missing_extra("To use PostgreSQL", "postgres")) from error
    return PostgresDatabase(url or "")


def file_of(url: str | None, storage: str) -> Path | None:
    """Return the SQLite file of the database at `url`, or None if it is in PostgreSQL.

    If `url` is None, return the file of the default database of `storage`. Raise `InvalidInput` for a URL of neither
    engine, and `Unsupported` for a bucket without a database URL. Nothing is opened.
    """
    if url is None:
        return _default(storage) / FILE
    scheme, _, rest = url.partition("://")
    if _URL.fullmatch(url) is None or (scheme == "sqlite" and not rest.startswith("//")):
        raise InvalidInput(
            "Invalid PROTOSLICE_DATABASE: use postgresql://user@host/name or sqlite:////path/catalog.sqlite, "
            "and percent-encode special characters of a password"
        )
    return Path(rest[1:]) if scheme == "sqlite" else None


def shown_url(url: str) -> str:
    """Return the URL of a database without its user, password and options."""
    match = _URL.fullmatch(url)
    return f"{url.partition(':')[0][:10]}://…" if match is None else f"{match[1]}://{match[2]}"


def _default(storage: str) -> Path:
    folder = local_path(storage)
    if folder is None:
        raise Unsupported(
            f"A storage at {storage.partition('://')[0]}:// needs a database: set PROTOSLICE_DATABASE to "
            "postgresql://… (any number of replicas) or sqlite:////path/catalog.sqlite (one replica, on a disk that "
            "survives restarts)"
        )
    return Path(folder)


async def upgrade(database: Database, *, create: bool = True) -> tuple[int, int]:
    """Upgrade the schema, and return its versions before and after; a SQLite file is copied first.

    If the upgrade takes long, log a warning every 10 seconds. Raise `Unsupported` for an empty database if `create` is
    False.
    """
    upgrading = _Upgrade(database, create)
    task = asyncio.create_task(database.alter(upgrading))
    begun = time.monotonic()
    try:
        while not (await asyncio.wait({task}, timeout=_PROGRESS_SECONDS))[0]:
            _log.warning("still upgrading the database after %d s: %s", time.monotonic() - begun, upgrading.step)
        await task
    finally:
        task.cancel()
    if 0 < upgrading.found < upgrading.wanted:
        _log.warning("the upgrade of the database took %.1f s", time.monotonic() - begun)
    database.schema = upgrading.wanted
    return upgrading.found, upgrading.wanted


class _Upgrade(Alteration):
    """An upgrade of a database, which runs in a thread, with a description of its current step."""

    def __init__(self, database: Database, create: bool) -> None:
        self._database = database
        self._create = create
        self.found, self.wanted = 0, len(schema.migrations(database.dialect))
        self.step = "waiting for another process"

    def is_due(self, tx: Transaction) -> bool:
        """Return True if the database has an older schema."""
        dialect = self._database.dialect
        schema.lock(tx, dialect)
        self.found = schema.version(tx, dialect)
        schema.refuse_newer(self.found, self.wanted)
        if not self.found and not self._create:
            raise Unsupported(EMPTY)
        return self.found < self.wanted

    def prepare(self, tx: Transaction) -> None:
        """Refuse the upgrade if other processes use the database; otherwise, copy a SQLite file."""
        if not self.found:
            return
        self._refuse_running(tx)
        if self._database.dialect == "postgresql":
            # The lock delays processes that start to use the database; they then find that the schema has changed.
            tx.run(f"SET LOCAL lock_timeout = {_LOCK_SECONDS * 1000}")
            tx.run("LOCK TABLE meta IN ACCESS EXCLUSIVE MODE")
            self._refuse_running(tx)
        _log.warning(
            "upgrading the database from schema %d to %d; it changes only when the upgrade is complete",
            self.found,
            self.wanted,
        )
        if isinstance(self._database, SqliteDatabase) and isinstance(tx, SqliteTransaction):
            self._copy(tx, self._database.path)

    def _refuse_running(self, tx: Transaction) -> None:
        if self.found < FIRST_SCHEMA:
            found = self._database.earlier_processes(tx)
        else:
            found = [] if tx.is_alone else running(tx, self._database.process)
        refuse_running(found, f"upgrade the database from schema {self.found} to {self.wanted}")

    def _copy(self, tx: SqliteTransaction, path: Path) -> None:
        """Copy the database file, and replace older copies of the same schema, which failed upgrades may have left."""
        name = f"{path.name}.schema{self.found}"
        self.step = f"copying it to {name}"
        part, copy = path.with_name(f"{name}.part"), path.with_name(name)
        part.unlink(missing_ok=True)
        try:
            tx.copy(part)
            part.replace(copy)
        finally:
            part.unlink(missing_ok=True)
        for other in path.parent.iterdir():
            # Earlier versions added the time to the names of their copies.
            if re.fullmatch(rf"{re.escape(name)}\.\d{{8}}T\d{{6}}\.\d{{6}}", other.name):
                other.unlink()

    def apply(self, tx: Transaction) -> None:
        """Apply the missing migrations."""
        schema.apply_migrations(tx, self._database.dialect, self._at)

    def _at(self, number: int) -> None:
        self.step = f"migration {number} of {self.wanted}"
