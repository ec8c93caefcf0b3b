"""Upgrades of databases with many rows: they have no deadline, report slow work, and leave one copy."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from tests.support.catalogues import make_earlier
from tests.support.serve import service_process

from protoslice import database as opening
from protoslice.catalog.collector import CollectorTable
from protoslice.catalog.manifest import with_digest
from protoslice.catalog.objects import UNFINISHED_SECONDS
from protoslice.catalog.repositories import RepositoryListing
from protoslice.catalog.spaces import Usage
from protoslice.catalog.store_lists import StoreQuery
from protoslice.catalog.stores import StoreTable
from protoslice.catalog.webhooks import DeliveryTable
from protoslice.database import Transaction, connect, postgres, schema, sqlite, upgrade
from protoslice.database.transactions import SECOND, Outdated

EARLIER: Final = 7
"""The schema before names got labels; the next schema made an index of the labels."""
_FILL: Final = """
    WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count)
    INSERT INTO names (space, repository, kind, name, version, updated)
    SELECT 'default', 1, 'tag', 'model-' || n || '-' || ((n % 9973) * 104729), :version, n FROM numbers"""
_FOUND: Final = "SELECT count(*), min(label), max(length(label)) FROM names"


async def make_with_names(url: str, count: int) -> None:
    """Make a catalogue of an earlier schema that has names."""
    await make_earlier(url, EARLIER)
    database = connect(url, "memory://")

    def work(tx: Any) -> None:
        tx.run("INSERT INTO repositories (space, id, protocol, name, created) VALUES ('default', 1, 'stores', '', 0)")
        tx.run(_FILL, count=count, version=b"v")

    await database.fill(work)
    await database.close()


async def upgraded(url: str) -> None:
    """Upgrade a database."""
    database = connect(url, "memory://")
    try:
        assert await upgrade(database) == (EARLIER, len(schema.migrations(database.dialect)))
    finally:
        await database.close()


async def names_in(url: str) -> tuple[int, str]:
    """Return the number of names in a database, and the first label."""
    database = connect(url, "memory://")
    count, label, _ = (await database.export(lambda tx: tx.all(_FOUND)))[0]
    await database.close()
    return count, label


def copies_in(folder: Path) -> list[str]:
    """Return the names of all files except the files of an open database."""
    usual = {f"catalog.sqlite{suffix}" for suffix in ("", "-wal", "-shm", ".lock")}
    return sorted({each.name for each in folder.iterdir()} - usual)


@pytest.mark.anyio
async def test_upgrade_has_no_deadline(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request's statement deadline is set so short that every migration exceeds it."""
    await make_with_names(url, 20_000)
    monkeypatch.setattr(sqlite, "STATEMENT_SECONDS", 0)
    monkeypatch.setattr(sqlite, "_STEPS", 1)
    monkeypatch.setattr(postgres, "STATEMENT_SECONDS", 0.001)
    await upgraded(url)
    assert await names_in(url) == (20_000, "default\nmodel-1-104729")


@pytest.mark.long
@pytest.mark.anyio
async def test_upgrade_of_a_million_names(url: str) -> None:
    count = int(os.environ.get("PROTOSLICE_NAMES", "1000000"))
    await make_with_names(url, count)
    await upgraded(url)
    assert await names_in(url) == (count, "default\nmodel-1-104729")


@pytest.mark.anyio
async def test_repositories_of_before_are_found_by_their_names(url: str) -> None:
    """Schema 12 added the index of the names."""
    await make_earlier(url, 11)
    database = connect(url, "memory://")
    sql = (
        "INSERT INTO repositories (space, id, protocol, name, created, folded) VALUES ('a', 9, 'hub', 'X/Name', 0, '')"
    )
    await database.fill(lambda tx: tx.run(sql))
    await upgrade(database)
    found = await RepositoryListing(database, "a", "", "name", datasets=False).rows("")
    await database.close()
    assert [row.name for row in found] == ["X/Name"]


@pytest.mark.anyio
async def test_stores_of_before_are_found_by_their_file(url: str) -> None:
    def sealed(root: str | None, *files: str) -> bytes:
        data = {"version": 2, "id": "0" * 64, "type": None, "root": root, "files": [[each, 1, None] for each in files]}
        return with_digest(json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode())

    manifests = {
        "rooted": sealed("Big/Model.onnx", "a.txt", "Big/Model.onnx"), "rootless": sealed(None, "Model.bin"),
        "other": sealed("Modèle.onnx", "Modèle.onnx"), "damaged": b"\x00\xff", "none": sealed(None),
        "removed": sealed("model.pb", "model.pb"),
    }  # fmt: skip

    def fill(tx: Transaction) -> None:
        sql = """
            INSERT INTO stores (space, id, digest, size, held, created, weight, manifest, deleted)
            VALUES ('team', :id, :digest, 1, 0, :id, 1, :manifest, :deleted)"""
        rows = [
            {"id": id, "digest": name, "manifest": manifest, "deleted": 1 if name == "removed" else None}
            for id, (name, manifest) in enumerate(manifests.items())
        ]
        tx.many(sql, rows)

    await make_earlier(url, 10)
    database = connect(url, "memory://")
    await database.fill(fill)
    await upgrade(database)
    table = StoreTable(database, Usage("team"))
    for term in ("model", "MODEL."):
        query = StoreQuery(name=term, sort="name", descending=False)
        page, _ = await table.page(query, limit=9, after=None, room=1, tags=1)
        assert [each.row.digest for each in page] == ["rooted", "rootless"]
    await table.restore("removed")
    page, _ = await table.page(query, limit=9, after=None, room=1, tags=1)
    assert [each.row.digest for each in page] == ["rooted", "rootless", "removed"]
    await database.close()


@pytest.mark.anyio
async def test_failed_upgrades_leave_one_copy_of_each_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, scripts = f"sqlite:///{tmp_path}/catalog.sqlite", schema.migrations("sqlite")
    await make_with_names(url, 1)
    for name in ("20261128T110000.000000", "20261129T110000.000000"):  # copies of failed starts of earlier versions
        (tmp_path / f"catalog.sqlite.schema{EARLIER}.{name}").touch()
    (tmp_path / f"catalog.sqlite.schema{EARLIER}.part").touch()  # a copy of a start that was killed
    with monkeypatch.context() as patch:
        patch.setattr(schema, "migrations", lambda dialect: [*scripts, "NONSENSE"])
        for _ in range(3):
            with pytest.raises(Exception, match="NONSENSE"):
                await upgraded(url)
            assert copies_in(tmp_path) == [f"catalog.sqlite.schema{EARLIER}"]
    await upgraded(url)
    assert copies_in(tmp_path) == [f"catalog.sqlite.schema{EARLIER}"]
    copy = f"sqlite:///{tmp_path}/catalog.sqlite.schema{EARLIER}"
    await upgraded(copy)
    assert (await names_in(copy))[0] == 1


@pytest.mark.anyio
async def test_copy_that_fails_is_removed_and_nothing_is_upgraded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/catalog.sqlite"
    await make_with_names(url, 1)

    def full(self: object, target: Path) -> None:
        target.write_bytes(b"part of a copy")
        raise OSError("full")

    with monkeypatch.context() as patch:
        patch.setattr(sqlite.SqliteTransaction, "copy", full)
        with pytest.raises(OSError, match="full"):
            await upgraded(url)
    assert copies_in(tmp_path) == []
    await upgraded(url)


@contextmanager
def altered_by_another(url: str) -> Iterator[None]:
    """Let another program alter a database until the block ends."""
    if url.startswith("sqlite"):
        with open(f"{url.removeprefix('sqlite://')}.lock", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    else:
        with psycopg.connect(url) as connection:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (schema._LOCK,))
            yield


@pytest.mark.anyio
async def test_what_an_upgrade_waits_for_is_logged(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await make_with_names(url, 1)
    monkeypatch.setattr(opening, "_PROGRESS_SECONDS", 0.01)
    with altered_by_another(url):
        task = asyncio.create_task(upgraded(url))
        while "still upgrading the database after 0 s: waiting for another process" not in caplog.text:
            assert not task.done()
            await asyncio.sleep(0.01)
        assert "from schema" not in caplog.text
    await task
    assert f"upgrading the database from schema {EARLIER} to " in caplog.text


@pytest.mark.anyio
async def test_cancelled_upgrade_ends_and_changes_nothing(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A process that must stop does not finish its upgrade first, and does not wait for another process's upgrade."""
    await make_with_names(url, 1)
    scripts = schema.migrations(url.partition(":")[0])
    monkeypatch.setattr(opening, "_PROGRESS_SECONDS", 0.01)

    async def cancelled_at(step: str) -> None:
        database = connect(url, "memory://")
        task = asyncio.create_task(upgrade(database))
        while f": {step}" not in caplog.text:
            assert not task.done()
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await database.close()

    with altered_by_another(url):
        await cancelled_at("waiting for another process")
    with monkeypatch.context() as patch:
        endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT count(*) FROM n"
        patch.setattr(schema, "migrations", lambda dialect: [*scripts[:EARLIER], "CREATE TABLE a (b bigint);", endless])
        await cancelled_at(f"migration {EARLIER + 2} of {EARLIER + 2}")
    await upgraded(url)  # waits for the upgrade before it to end
    assert await names_in(url) == (1, "default\nmodel-1-104729")


def test_those_who_start_it_see_what_an_upgrade_does(url: str, tmp_path: Path) -> None:
    asyncio.run(make_with_names(url, 1))
    said = f"upgrading the database from schema {EARLIER} to {len(schema.migrations('sqlite'))}"
    settings = {"PROTOSLICE_DATABASE": url, "PROTOSLICE_SPACE_WATERMARK_BYTES": "0"}
    if url.startswith("sqlite"):
        with service_process("--storage", (tmp_path / "s").as_uri(), settings=settings) as service:
            assert said in service.log.read_text()
    else:
        command = [sys.executable, "-m", "protoslice.cli", "database", "upgrade", "--storage", "memory://"]
        ended = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=True)
        assert said in ended.stderr


_UNFINISHED: Final = """
    INSERT INTO objects (space, id, key, size, writer, due)
    WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count)
    SELECT 'team', n, 'objects/00/' || n, CASE WHEN n % 2 = 0 THEN 7 END, CASE WHEN n % 2 = 1 THEN 'w' END, NULL
    FROM numbers"""


async def make_with_objects(url: str, count: int) -> None:
    """Make a catalogue of schema 12 with objects, half of them unfinished."""
    await make_earlier(url, 12)
    database = connect(url, "memory://")

    def work(tx: Any) -> None:
        tx.run("INSERT INTO writers (id, expires) VALUES ('w', :end)", end=tx.now + 600 * SECOND)
        tx.run(_UNFINISHED, count=count)
        tx.run("UPDATE objects SET due = 1 WHERE id = 2")

    await database.fill(work)
    await database.close()


@pytest.mark.anyio
async def test_upload_during_an_upgrade_loses_no_bytes_and_publishes_no_hole(url: str) -> None:
    """The upload's process was stopped for a minute, so the upgrade did not notice it."""
    await make_with_objects(url, 4)
    stale = connect(url, "memory://")
    stale.schema = 12
    await stale.read(lambda tx: tx.first("SELECT 1 FROM objects"))
    database = connect(url, "memory://")
    await upgrade(database)
    with pytest.raises(Outdated):
        await stale.write(lambda tx: tx.run("UPDATE objects SET size = 9 WHERE id = 1"))
    rows = await database.read(lambda tx: tx.all("SELECT id, size, unpublished IS NULL, due FROM objects ORDER BY id"))
    assert [(id, size, bool(published), due) for id, size, published, due in rows] == [
        (1, None, False, None), (2, 7, True, 1), (3, None, False, None), (4, 7, True, None),
    ]  # fmt: skip
    table = CollectorTable(database)
    await table.expire_objects(UNFINISHED_SECONDS)
    assert (await table.drop_objects(0)).objects == 1, "the one that was due before"
    await database.write(lambda tx: tx.run("UPDATE objects SET unpublished = unpublished - 86400000000"))
    await table.expire_objects(UNFINISHED_SECONDS)
    assert (await table.drop_objects(0)).objects == 2
    assert await database.read(lambda tx: tx.all("SELECT id FROM objects")) == [(4,)]
    await stale.close()
    await database.close()


@pytest.mark.long
@pytest.mark.anyio
async def test_upgrade_of_a_million_objects(url: str) -> None:
    count = int(os.environ.get("PROTOSLICE_OBJECTS", "1000000"))
    await make_with_objects(url, count)
    database = connect(url, "memory://")
    await upgrade(database)
    found = await database.export(lambda tx: tx.all("SELECT count(*), count(unpublished), count(size) FROM objects"))
    await database.close()
    assert found == [(count, count // 2, count // 2)]


@pytest.mark.anyio
async def test_events_on_their_way_stay_and_damaged_ones_go(url: str) -> None:
    """Schema 13 added a column for each fact of a delivery."""
    event = {"type": "protoslice.tag.set", "subject": "ü"}
    bodies = {
        "waiting": {"event": event, "written": 1_790_000_000.25, "attempts": 2, "error": "status 503"},
        "new": {"event": event, "written": 5, "attempts": 0, "error": ""},
        "dead": {"event": event, "written": 5.5, "attempts": 9, "error": "status 410"},
    }
    damaged = ["", "{", "[]", "{}", "null", '{"event": [1], "written": 1}', '{"event": {}, "written": "1"}', "[" * 9999]

    def fill(tx: Transaction) -> None:
        tx.run(
            """
            INSERT INTO webhooks (space, name, id, url, events, created, secret)
            VALUES ('a', 'n', 'h', '', '', 0, :secret)""",
            secret=b"",
        )
        rows = [(id, json.dumps(body)) for id, body in bodies.items()] + [(f"z{n}", b) for n, b in enumerate(damaged)]
        tx.many(
            "INSERT INTO letters (hook, id, dead, due, body) VALUES ('h', :id, :dead, 7, :body)",
            [{"id": id, "body": body, "dead": int(id == "dead")} for id, body in rows],
        )

    await make_earlier(url, 12)
    database = connect(url, "memory://")
    await database.fill(fill)
    await upgrade(database)
    table = DeliveryTable(database)
    found = [*await table.page("h", dead=False, limit=99), *await table.page("h", dead=True, limit=99)]
    await database.close()
    assert [(each.id, each.written, each.due, each.attempts, each.error) for each in found] == [
        ("new", 5_000_000, 7, 0, ""), ("waiting", 1_790_000_000_250_000, 7, 2, "status 503"),
        ("dead", 5_500_000, 7, 9, "status 410"),
    ]  # fmt: skip
    assert [json.loads(each.event) for each in found] == [event] * 3
