"""Schema: created, upgraded, refused when newer, the same in both engines."""

from __future__ import annotations

import asyncio
import re
from itertools import groupby

import psycopg
import pytest
from tests.support.postgres import TestServer

from protoslice.catalog import open_database
from protoslice.database import Transaction, connect, schema, upgrade
from protoslice.errors import InvalidInput, StorageDenied, Unsupported

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
"""Columns of foreign keys and of indexes, in order: table, key or index, column."""


def _unindexed(tx: Transaction, dialect: str) -> list[tuple[str, list[str]]]:
    """Return the tables and columns of foreign keys with which no index begins."""
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
