"""Holds of backups, and snapshots that cannot be restored."""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from pathlib import Path

import pytest
from tests.support.catalogues import run_in
from tests.support.rows import SPACE, keys, own, put_store, reserved

from protoslice.catalog import collector
from protoslice.catalog.collector import CollectorTable, Hold
from protoslice.catalog.objects import ObjectTable
from protoslice.database import Database, connect, upgrade
from protoslice.database.snapshots import Snapshot, take_snapshot
from protoslice.errors import Conflict, IntegrityError, Unsupported


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
