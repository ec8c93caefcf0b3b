"""The fixtures of the catalogue's tests: a database of each engine, as two replicas see it."""

from collections.abc import AsyncIterator

import pytest

from protoslice.catalog import open_database
from protoslice.database import Database


@pytest.fixture
async def database(catalogue: str) -> AsyncIterator[Database]:
    """Return a new catalogue, of each engine in turn."""
    async with open_database(catalogue, "memory://") as opened:
        yield opened


@pytest.fixture
async def replica(catalogue: str, database: Database) -> AsyncIterator[Database]:
    """Return the catalogue of `database`, opened like in another process."""
    async with open_database(catalogue, "memory://") as opened:
        yield opened
