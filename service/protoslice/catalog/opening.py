"""Open the catalogue that the settings name, and bring its schema up to date."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import protoslice.catalog.schema as schema
from protoslice.catalog.database import Database
from protoslice.catalog.sqlite import SqliteDatabase
from protoslice.errors import InvalidInput, Unsupported
from protoslice.uris import local_path

_log = logging.getLogger(__name__)

FILE: Final = "catalog.sqlite"
"""Name of the default catalogue, in the directory of the storage."""


@asynccontextmanager
async def open_database(url: str | None, storage: str) -> AsyncIterator[Database]:
    """Yield the catalogue at `url`, or without one the default for the storage at the URI `storage`.

    A SQLite file is created and migrated. Raise `Unsupported` for a bucket without a database, and for a database
    whose schema needs another version of the program.
    """
    with tempfile.TemporaryDirectory(prefix="protoslice-") as memory:
        database = await asyncio.to_thread(connect, url, storage, Path(memory))
        try:
            if isinstance(database, SqliteDatabase):
                await upgrade(database)
            await schema.check(database)
            yield database
        finally:
            await database.close()


def connect(url: str | None, storage: str, memory: Path | None = None) -> Database:
    """Return the database at `url`, or without one the default for `storage`; its schema is not checked.

    `memory` is the folder for the catalogue of a storage in memory. Raise `InvalidInput` for a URL that is neither
    SQLite's nor PostgreSQL's.
    """
    if url is None:
        if memory is not None and storage.startswith("memory://"):
            return SqliteDatabase(memory / FILE, durable=False)
        return SqliteDatabase(_default(storage) / FILE)
    scheme, _, rest = url.partition("://")
    if scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        return SqliteDatabase(Path(rest[1:]))
    if scheme in {"postgresql", "postgres"} and rest:
        try:
            from protoslice.catalog.postgres import PostgresDatabase
        except ImportError as error:
            raise Unsupported("PostgreSQL needs an extra: pip install 'protoslice[postgres]'") from error
        return PostgresDatabase(url)
    raise InvalidInput("Invalid PROTOSLICE_DATABASE: use postgresql://user@host/name or sqlite:////path/catalog.sqlite")


def _default(storage: str) -> Path:
    folder = local_path(storage)
    if folder is None:
        raise Unsupported(
            f"A storage at {storage.partition('://')[0]}:// needs a database: set PROTOSLICE_DATABASE to "
            "postgresql://… (any number of replicas) or sqlite:////path/catalog.sqlite (one replica, on a disk that "
            "survives restarts)"
        )
    return Path(folder)


async def upgrade(database: Database) -> tuple[int, int]:
    """Bring the schema up to date and return the versions before and after; copy a SQLite file first."""
    found, wanted = await schema.version_of(database), len(schema.migrations())
    if found > wanted:
        await schema.check(database)
    if found < wanted:
        if found and isinstance(database, SqliteDatabase):
            name = f"{database.path.name}.schema{found}.{datetime.now(UTC):%Y%m%dT%H%M%S.%f}"
            await database.copy(database.path.with_name(name))
        await schema.migrate(database)
        _log.info("catalogue upgraded from schema %d to %d", found, wanted)
    return found, wanted
