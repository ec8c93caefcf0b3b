"""Fixtures: a database of each engine, empty but for the schema."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.postgres import TestServer, running_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[TestServer]:
    """PostgreSQL for the tests of this process."""
    with running_postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of an empty database, of each engine in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/catalog.sqlite"
    server: TestServer = request.getfixturevalue("postgres")
    return server.new_database()
