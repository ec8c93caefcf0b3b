"""The schema: it is created, upgraded, refused when newer, and the same in both engines.

The tests also cover URLs of databases, the hourly deletion of old rows, holds of backups, and snapshots that cannot be
restored.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import groupby, islice
from pathlib import Path

import psycopg
import pytest
from tests.support.catalogues import run_in
from tests.support.postgres import TestServer
from tests.support.rows import SPACE, keys, own, put_store, reserved

from protoslice.catalog import collector, open_database, purge_changes
from protoslice.catalog.collector import CollectorTable, Hold
from protoslice.catalog.objects import ObjectTable
from protoslice.database import Database, Transaction, connect, schema, shown_url, upgrade
from protoslice.database.snapshots import Snapshot, take_snapshot
from protoslice.errors import Conflict, IntegrityError, InvalidInput, StorageDenied, Unsupported

_KEYS = {
    "sqlite": (
        """
        SELECT m.name, f.id, f."from" FROM sqlite_master m, pragma_foreign_key_list(m.name) f
        WHERE m.type = 'table' ORDER BY m.name, f.id, f.seq""",
        """
        SELECT m.name, i.name, c.name FROM sqlite_master m, pragma_index_list(m.name) i, pragma_index_info(i.name) c
        WHERE m.type = 'table' ORDER BY m.name, i.name, c.seqno""",
    ),
    "postgresql": (
        """
        SELECT c.conrelid::regclass::text, c.oid::bigint, a.attname FROM pg_constraint c
        CROSS JOIN LATERAL unnest(c.conkey) WITH ORDINALITY k(attribute, n)
        JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.attribute
        WHERE c.contype = 'f' ORDER BY 1, 2, k.n""",
        """
        SELECT i.indrelid::regclass::text, i.indexrelid::bigint, a.attname FROM pg_index i
        CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY k(attribute, n)
        JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attribute ORDER BY 1, 2, k.n""",
    ),
}
"""The columns of foreign keys and of indexes, in order: table, key or index, column."""


def _unindexed(tx: Transaction, dialect: str) -> list[tuple[str, list[str]]]:
    """Return the tables and columns of foreign keys that are not the beginning of any index."""
    keys, indexes = (
        {group: [row[2] for row in rows] for group, rows in groupby(tx.all(sql), key=lambda row: (row[0], row[1]))}
        for sql in _KEYS[dialect]
    )
    return [
        (table, columns)
        for (table, _), columns in keys.items()
        if not any(other == table and found[: len(columns)] == columns for (other, _), found in indexes.items())
    ]


async def test_upgrade_once_for_all_programs_that_start(url: str) -> None:
    databases = [connect(url, "memory://") for _ in range(4)]
    found = await asyncio.gather(*(upgrade(each) for each in databases))
    assert {after for _, after in found} == {len(schema.migrations("sqlite"))}
    ids = {(await each.read(lambda tx: tx.first("SELECT catalogue_id FROM meta"))) for each in databases}
    assert len(ids) == 1
    for each in databases:
        await each.close()


async def test_newer_schema_is_refused(url: str) -> None:
    db = connect(url, "memory://")
    await upgrade(db)
    await db.write(lambda tx: tx.run("UPDATE meta SET schema = 999"))
    with pytest.raises(Unsupported, match=r"schema 999.*install a newer version"):
        await upgrade(db)
    await db.close()
    with pytest.raises(Unsupported, match="install a newer version"):
        async with open_database(url, "memory://"):
            pass


def test_postgres_is_upgraded_by_command_only(url: str) -> None:
    async def work() -> None:
        if url.startswith("sqlite"):
            async with open_database(url, "memory://") as db:
                await schema.check(db)
            return
        with pytest.raises(Unsupported, match="protoslice database upgrade"):
            async with open_database(url, "memory://"):
                pass

    asyncio.run(work())


async def test_failing_migration_changes_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = schema.migrations(url.partition(":")[0])
    db = connect(url, "memory://")
    await upgrade(db)
    monkeypatch.setattr(schema, "migrations", lambda dialect: [*scripts, "CREATE TABLE newer (id bigint);\nNONSENSE"])
    with pytest.raises(Exception, match="NONSENSE"):
        await upgrade(db)
    monkeypatch.setattr(schema, "migrations", lambda dialect: [*scripts, "CREATE TABLE newer (id bigint)"])
    assert await upgrade(db) == (len(scripts), len(scripts) + 1)
    await db.close()


async def test_every_foreign_key_has_an_index(url: str) -> None:
    db = connect(url, "memory://")
    await upgrade(db)
    assert await db.read(lambda tx: _unindexed(tx, db.dialect)) == []
    await db.write(
        lambda tx: tx.run(
            "CREATE TABLE a (x bigint REFERENCES b (x))"
            if db.dialect == "sqlite"
            else "CREATE TABLE a (x bigint UNIQUE, y bigint REFERENCES a (x))"
        )
    )
    assert len(await db.read(lambda tx: _unindexed(tx, db.dialect))) == 1
    await db.close()


@pytest.mark.parametrize("wrong", ["mysql://x", "sqlite://x", "sqlite:///", "postgresql:", "catalog.sqlite", ""])
def test_unknown_urls_are_refused(wrong: str) -> None:
    with pytest.raises(InvalidInput, match="PROTOSLICE_DATABASE"):
        connect(wrong, "memory://")


def test_bucket_without_a_database_is_refused() -> None:
    with pytest.raises(Unsupported, match=r"s3:// needs a database: set PROTOSLICE_DATABASE"):
        connect(None, "s3://bucket")


async def test_user_that_may_not_create_the_extension_learns_what_to_run(postgres: TestServer) -> None:
    url = postgres.new_database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP EXTENSION IF EXISTS pg_trgm")
        connection.execute("CREATE ROLE tenant LOGIN")
        connection.execute("GRANT CREATE ON SCHEMA public TO tenant")
    db = connect(re.sub("//[^@]*@", "//tenant@", url), "memory://")
    with pytest.raises(StorageDenied, match="run `CREATE EXTENSION pg_trgm` in this database as its owner"):
        await upgrade(db)
    await db.close()


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


async def _trash(table: CollectorTable) -> list[str]:
    return [row.key async for rows in table.trash() for row in rows]


def test_nothing_is_deleted_during_a_hold(catalogue: str) -> None:
    async def work(database: Database) -> None:
        table = CollectorTable(database)
        objects = await reserved(database, 1)
        await ObjectTable(database).drop(SPACE, objects)
        await table.drop_objects(-1)
        async with Hold(database):
            assert await _trash(table) == []
        assert await _trash(table) == [objects[0].key]

    run_in(catalogue, work)


def test_hold_that_expired_is_no_obstacle(catalogue: str) -> None:
    async def work(database: Database) -> None:
        table = CollectorTable(database)
        objects = await reserved(database, 1)
        await ObjectTable(database).drop(SPACE, objects)
        await table.drop_objects(-1)
        async with Hold(database):
            for seconds in (-1, 365 * 86_400):  # the clock was ahead when it was written
                at = int(seconds * 1e6)
                await database.write(lambda tx: tx.run("UPDATE holds SET expires = :at", at=tx.now + at))  # noqa: B023
                async with Hold(database):
                    with pytest.raises(Conflict, match="Another backup"):
                        await Hold(database).__aenter__()
            await database.write(
                lambda tx: tx.run(
                    "INSERT INTO holds (id, owner, expires) VALUES ('backup', 'x', :at)", at=tx.now + int(1e15)
                )
            )
        assert len(await _trash(table)) == 1

    run_in(catalogue, work)


def test_hold_that_was_lost_stops_the_backup(catalogue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(database: Database) -> None:
        async with Hold(database) as hold:
            await asyncio.sleep(0.05)
            hold.check()
            await database.write(lambda tx: tx.run("DELETE FROM holds"))
            await asyncio.sleep(0.3)
            with pytest.raises(Conflict, match="start it again"):
                hold.check()

    monkeypatch.setattr(collector, "HOLD_SECONDS", 1.0)
    run_in(catalogue, work)


def test_snapshots_that_are_no_catalogue_are_refused(tmp_path: Path) -> None:
    async def refused(path: Path, error: type[Exception], match: str) -> None:
        with pytest.raises(error, match=match):
            await Snapshot.open(path)

    (tmp_path / "text").write_text("no database" * 100)
    with closing(sqlite3.connect(tmp_path / "empty")) as connection:
        connection.execute("CREATE TABLE other (id integer)")
        connection.commit()
    asyncio.run(refused(tmp_path / "text", IntegrityError, "database"))
    asyncio.run(refused(tmp_path / "empty", IntegrityError, "no catalogue"))

    async def newer() -> None:
        database = connect(f"sqlite:///{tmp_path}/live", "memory://")
        await upgrade(database)
        await take_snapshot(database, tmp_path / "newer")
        await database.close()
        with closing(sqlite3.connect(tmp_path / "newer")) as connection:
            connection.execute("UPDATE meta SET schema = 999")
            connection.commit()
        await refused(tmp_path / "newer", Unsupported, "newer version")

    asyncio.run(newer())


def test_threads_read_the_objects_of_a_snapshot_in_turn(tmp_path: Path) -> None:
    """A storage has more objects than one thread reads at a time."""

    async def work(database: Database) -> None:
        await put_store(database, "x", own=own(await reserved(database, 9)))
        await take_snapshot(database, tmp_path / "copy")
        rows, found = Snapshot(tmp_path / "copy").objects(), list[str]()
        for _ in range(3):
            with ThreadPoolExecutor(1) as thread:
                found += thread.submit(lambda: [key for key, _ in islice(rows, 4)]).result()
        assert found == sorted(await keys(database))

    run_in(f"sqlite:///{tmp_path}/live.sqlite", work)
