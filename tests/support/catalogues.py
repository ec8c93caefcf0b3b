"""Catalogues of tests: SQLite files that need not survive a crash of the machine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from protoslice.catalog import Database, upgrade
from protoslice.catalog.sqlite import SqliteDatabase


@asynccontextmanager
async def shared_catalogue(path: Path) -> AsyncIterator[Database]:
    """Yield the catalogue in a file, which several replicas of a test may open."""
    database = SqliteDatabase(path, durable=False)
    try:
        await upgrade(database)
        yield database
    finally:
        await database.close()
