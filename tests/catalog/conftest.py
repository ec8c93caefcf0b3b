"""Fixtures: a database of each engine, empty but for the schema."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.postgres import TestServer


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of an empty database, of each engine in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/catalog.sqlite"
    server: TestServer = request.getfixturevalue("postgres")
    return server.new_database()
