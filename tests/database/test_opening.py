"""URLs of databases, and the hourly deletion of old rows."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.postgres import TestServer

from protoslice.catalog import open_database, purge_changes
from protoslice.database import Database, connect, shown_url
from protoslice.errors import InvalidInput

HIDDEN = {
    "postgresql://me:hush@db.example:5433/models?password=hush": "postgresql://db.example:5433/models",
    "postgres://me@/models?host=/run/postgresql": "postgres:///models",
    "sqlite:////var/lib/protoslice/catalog.sqlite": "sqlite:////var/lib/protoslice/catalog.sqlite",
}
UNENCODED = [
    "postgresql://me:hush@hush@db.example/models",
    "postgresql://me:hush/hush@db.example/models",
    "postgresql://me:hush?hush@db.example/models",
    "postgresql://me:hush#hush@db.example/models",
    "postgresql://me@db.example/models?password=hush@hush",
    "postgresql://me:hush%zz@db.example/models",
    "postgresql://me:hush@db.example/models?hush=1",
]


@pytest.mark.parametrize(("url", "shown"), HIDDEN.items())
def test_shown_url_has_no_user_password_or_options(url: str, shown: str) -> None:
    assert shown_url(url) == shown


@pytest.mark.parametrize("url", UNENCODED)
def test_connect_refuses_an_unencoded_password_without_repeating_it(url: str, caplog: pytest.LogCaptureFixture) -> None:
    assert "hush" not in shown_url(url)
    with pytest.raises(InvalidInput, match="PROTOSLICE_DATABASE") as raised:
        connect(url, "memory://")
    assert "hush" not in str(raised.value)
    assert raised.value.__cause__ is None
    assert "hush" not in caplog.text


def test_purge_changes_deletes_those_older_than_a_day(postgres: TestServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("protoslice.database.transactions.BATCH", 2)

    async def work(database: Database) -> None:
        for _ in range(5):
            await database.write(lambda tx: None)
        await database.write(lambda tx: tx.run("UPDATE changes SET at = at - :day - 1", day=86_400_000_000))
        await database.write(lambda tx: None)
        before = await database.read(lambda tx: tx.all("SELECT id FROM changes WHERE at > :now - 1000000", now=tx.now))
        await purge_changes(database)
        kept = await database.read(lambda tx: tx.all("SELECT id, at FROM changes"))
        assert {row[0] for row in before} <= {row[0] for row in kept}
        assert min(row[1] for row in kept) > await database.read(lambda tx: tx.now) - 86_400_000_000

    asyncio.run(_with(postgres.new_catalogue(), work))


async def _with(url: str, work: object) -> None:
    assert callable(work)
    async with open_database(url, "memory://") as database:
        await work(database)
