"""`database upgrade` and `database copy`."""

from __future__ import annotations

import asyncio
import json
import stat
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.postgres import TestServer

from protoslice.catalog import Database, Transaction, open_database, schema


def test_upgrade_creates_tables_once(call: Any, postgres: TestServer) -> None:
    url, version = postgres.new_database(), len(schema.migrations("sqlite"))
    first = call("database", "upgrade", "--json", PROTOSLICE_DATABASE=url)
    assert json.loads(first.stdout) == {"before": 0, "after": version}
    again = call("database", "upgrade", "--database", url)
    assert again.stdout == f"The database has schema {version} already\n"


def test_upgrade_refuses_a_bucket_without_a_database(call: Any) -> None:
    said = call("database", "upgrade", "--storage", "s3://bucket", code=3).stderr
    assert "set PROTOSLICE_DATABASE to postgresql://" in said


async def test_copy_holds_what_was_committed_while_the_catalogue_is_open(call: Any, tmp_path: Path) -> None:
    target = tmp_path / "copy.sqlite"

    async def keys(database: Database) -> object:
        return await database.read(lambda tx: tx.first("SELECT service_key FROM meta"))

    async with open_database(None, (tmp_path / "live").as_uri()) as live:
        for key in (b"one", b"two"):  # the second copy replaces the first
            await live.write(partial(_set_key, key))
            await asyncio.to_thread(call, "database", "copy", str(target), "--storage", (tmp_path / "live").as_uri())
            async with open_database(f"sqlite:///{target}", "memory://") as copy:
                assert await keys(copy) == (key,)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def _set_key(key: bytes, tx: Transaction) -> int:
    return tx.run("UPDATE meta SET service_key = :key", key=key)


def test_copy_refuses_what_is_no_sqlite_catalogue(call: Any, tmp_path: Path, postgres: TestServer) -> None:
    said = call("database", "copy", str(tmp_path / "x"), "--storage", (tmp_path / "none").as_uri(), code=4).stderr
    assert "No Protoslice database at" in said
    said = call("database", "copy", str(tmp_path / "x"), "--database", postgres.new_catalogue(), code=3).stderr
    assert "pg_dump" in said
