"""Processes that use a catalogue: while another process runs, upgrades and changes of the mode are refused."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from tests.support.catalogues import make_earlier
from tests.support.postgres import TestServer
from tests.support.serve import open_app

import protoslice
from protoslice.catalog import open_database
from protoslice.database import Database, connect, postgres, processes, schema, upgrade
from protoslice.database.transactions import Outdated
from protoslice.errors import Conflict
from protoslice.server.auth.mode import change_mode

pytestmark = pytest.mark.anyio

LAST = len(schema.migrations("sqlite"))


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give this program one more migration until the block ends."""

    @contextlib.contextmanager
    def context() -> Iterator[None]:
        scripts = {dialect: schema.migrations(dialect) for dialect in ("sqlite", "postgresql")}
        with monkeypatch.context() as patch:
            patch.setattr(schema, "migrations", lambda dialect: [*scripts[dialect], "CREATE TABLE newer (id bigint)"])
            yield

    return context


async def upgraded(url: str) -> tuple[int, int]:
    """Upgrade a database as a new process does; return the versions before and after."""
    database = connect(url, "memory://")
    try:
        return await upgrade(database)
    finally:
        await database.close()


async def rows(database: Database) -> list[Any]:
    """Return the rows of processes."""
    return await database.read(lambda tx: tx.all("SELECT id, host, pid, version, schema, seen FROM processes"))


async def test_running_process_refuses_an_upgrade_and_is_named(url: str, newer: Any) -> None:
    await upgraded(url)
    async with open_database(url, "memory://"):
        with newer(), pytest.raises(Conflict, match=f"process {os.getpid()} on {socket.gethostname()} .version "):
            await upgraded(url)
    with newer():
        assert await upgraded(url) == (LAST, LAST + 1)


async def test_processes_of_one_version_start_at_once(url: str) -> None:
    """Replicas and workers: one of them upgrades an earlier SQLite file, and the others wait instead of refusing."""
    await make_earlier(url, 7)
    if not url.startswith("sqlite"):
        await asyncio.gather(*(upgraded(url) for _ in range(4)))
    started, ends = asyncio.Semaphore(0), [asyncio.Event() for _ in range(6)]

    async def process(end: asyncio.Event) -> None:
        async with open_database(url, "memory://") as database:
            await database.write(lambda tx: None)
            started.release()
            await end.wait()

    async with asyncio.TaskGroup() as group:
        running = [group.create_task(process(end)) for end in ends[:4]]
        for _ in running:
            await started.acquire()
        for end, task, next in zip(ends, running, ends[4:], strict=False):  # a rolling restart
            group.create_task(process(next))
            await started.acquire()
            end.set()
            await task
        database = connect(url, "memory://")
        assert len(await rows(database)) == 4
        for end in ends:
            end.set()
    assert await rows(database) == []
    await database.close()


async def test_killed_process_counts_for_a_minute_where_nothing_else_is_known(url: str, newer: Any) -> None:
    """SQLite's locks show that no process has the file open, but PostgreSQL has only the rows."""
    await upgraded(url)
    async with open_database(url, "memory://") as database:
        (killed,) = await rows(database)

    async def put(seconds: int) -> None:
        database = connect(url, "memory://")
        values = dict(zip(("id", "host", "pid", "version", "schema", "seen"), killed, strict=True))

        def work(tx: Any) -> None:
            tx.run("DELETE FROM processes")
            sql = "INSERT INTO processes VALUES (:id, :host, :pid, :version, :schema, :now, NULL)"
            tx.run(sql, **{name: values[name] for name in list(values)[:-1]}, now=tx.now - seconds * 1_000_000)

        await database.write(work)
        await database.close()

    await put(30)
    with newer():
        if not url.startswith("sqlite"):
            with pytest.raises(Conflict, match=r"seen 30 s ago\)"):
                await upgraded(url)
            await put(61)
        assert await upgraded(url) == (LAST, LAST + 1)


async def test_process_of_another_schema_writes_nothing_and_is_not_ready(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process was stopped while its row expired and another version upgraded the database."""
    monkeypatch.setattr(processes, "_RENEW_SECONDS", 0.01)
    await upgraded(url)
    database = connect(url, "memory://")
    async with open_app(storage=(tmp_path / "storage").as_uri(), database=url) as app:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            assert (await client.get("/readyz")).status_code == 200
            await database.write(lambda tx: tx.run("UPDATE meta SET schema = schema + 1"))
            refused = await client.put("/v1/stores", content=b"\x0a\x01a")
            assert (refused.status_code, refused.json()["type"]) == (503, "/problems/database-unavailable")
            assert (await client.get("/readyz")).status_code == 503
            assert app.services.database is not None
            with pytest.raises(Outdated):
                await app.services.database.write(lambda tx: tx.run("DELETE FROM stores"))
            while "Another version of Protoslice upgraded the database" not in caplog.text:
                await asyncio.sleep(0.01)
            await database.write(lambda tx: tx.run("UPDATE meta SET schema = schema - 1"))
            assert (await client.put("/v1/stores", content=b"\x0a\x01a")).status_code == 201
    await database.close()


async def test_row_is_renewed_made_again_and_deleted(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_RENEW_SECONDS", 0.01)
    await upgraded(url)
    async with open_database(url, "memory://") as database:
        before = await rows(database)
        assert before[0][2:5] == (os.getpid(), protoslice.__version__, LAST)
        while (await rows(database))[0][5] == before[0][5]:
            await asyncio.sleep(0.01)
        await database.write(lambda tx: tx.run("DELETE FROM processes"))  # as if another one took it for dead
        while not await rows(database):
            await asyncio.sleep(0.01)
        old = "INSERT INTO processes VALUES (:id, 'h', 1, '0', 1, :at, NULL)"
        await database.write(lambda tx: tx.run(old, id=b"old", at=tx.now - 86_401_000_000))
        async with open_database(url, "memory://"):
            assert len(await rows(database)) == 2
    other = connect(url, "memory://")
    assert await rows(other) == []
    await other.close()


async def test_mode_is_not_changed_while_another_process_runs(url: str) -> None:
    await upgraded(url)
    async with open_database(url, "memory://") as own:
        async with open_database(url, "memory://"):
            with pytest.raises(Conflict, match="change the mode of access while other processes use"):
                await change_mode(own, "tokens")
        await change_mode(own, "tokens")


@pytest.mark.parametrize("change", ["upgrade", "mode"])
async def test_process_that_starts_at_the_same_time_is_seen(change: str, postgres_url: str, newer: Any) -> None:
    """PostgreSQL: the transaction that registers a process has not ended when the change begins."""
    await upgraded(postgres_url)
    database = connect(postgres_url, "memory://")
    waiting = "SELECT 1 FROM pg_locks l JOIN pg_database d ON d.oid = l.database WHERE d.datname = %s AND NOT l.granted"
    with psycopg.connect(postgres_url) as starting, psycopg.connect(postgres_url, autocommit=True) as looking:
        starting.execute("SELECT schema FROM meta")
        starting.execute("INSERT INTO processes SELECT '1', 'other', 7, '0', schema, 1e16 FROM meta")
        with newer():
            task = asyncio.create_task(
                upgraded(postgres_url) if change == "upgrade" else change_mode(database, "tokens")
            )
            while looking.execute(waiting, (looking.info.dbname,)).fetchone() is None:
                assert not task.done()
                await asyncio.sleep(0.01)
            starting.commit()
            with pytest.raises(Conflict, match="process 7 on other"):
                await task
    await database.close()


_EARLIER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT schema FROM meta").fetchall()
print("ready", flush=True)
sys.stdin.read()
"""


async def test_process_of_an_earlier_version_refuses_an_upgrade_of_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "catalog.sqlite"
    url = f"sqlite:///{path}"
    await make_earlier(url, 10)
    command = [sys.executable, "-c", _EARLIER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as earlier:
        assert earlier.stdout is not None
        earlier.stdout.readline()
        with pytest.raises(Conflict, match=f"from schema 10 to {LAST} while .*: process {earlier.pid} .python"):
            await upgraded(url)
        assert not list(tmp_path.glob("*.schema*")), "a copy was made"
        earlier.communicate()
    assert await upgraded(url) == (10, LAST)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_process_of_an_earlier_version_refuses_an_upgrade_of_postgres(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each connection counts, unless it is idle for longer than a service's ever is: then a pooler keeps it."""
    await make_earlier(postgres_url, 10)
    with psycopg.connect(postgres_url, application_name="protoslice") as connection:
        pid = connection.info.backend_pid
        for query in (None, "SELECT 1"):
            if query is not None:
                connection.execute(query.encode())
            with pytest.raises(Conflict, match=f"an earlier version on this machine .PostgreSQL process {pid}"):
                await upgraded(postgres_url)
        connection.commit()
        monkeypatch.setattr(postgres, "_QUIET_SECONDS", 0)
        assert await upgraded(postgres_url) == (10, LAST)


@pytest.fixture
def postgres_url(request: pytest.FixtureRequest) -> str:
    """Return the URL of an empty database of PostgreSQL."""
    server: TestServer = request.getfixturevalue("postgres")
    return server.new_database()
