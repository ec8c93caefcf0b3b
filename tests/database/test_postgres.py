"""PostgreSQL: lost answers, deadlocks, connections and servers that end."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psycopg
import pytest
from tests.support.postgres import TestServer

from protoslice.database import Database, Transaction, connect, transactions, upgrade
from protoslice.database.transactions import Work
from protoslice.errors import DatabaseUnavailable, InvalidInput, ProtosliceError

_LIVE = "SELECT id FROM spaces_of_tests ORDER BY id"


async def _prepared(url: str) -> Database:
    opened = connect(url, "memory://")
    await upgrade(opened)
    await opened.write(lambda tx: tx.run("CREATE TABLE IF NOT EXISTS spaces_of_tests (id bigint)"))
    return opened


def _insert(tx: Transaction) -> int:
    return tx.run("INSERT INTO spaces_of_tests (id) VALUES (1)")


def _count(tx: Transaction) -> int:
    return int(tx.all("SELECT count(*) FROM spaces_of_tests")[0][0])


class _CommitProxy:
    """A proxy that breaks connections at their first `COMMIT`, before or after it takes effect."""

    def __init__(self, folder: Path, upstream: Path, *, after: bool) -> None:
        self.broken = 0
        self.armed = False
        self._open = list[socket.socket]()
        self._after, self._upstream = after, upstream
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for each in (self._listener, *self._open):
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(str(self._upstream))
                self._open += [client, server]
                threading.Thread(target=self._up, args=(client, server), daemon=True).start()
                threading.Thread(target=_copy, args=(server, client), daemon=True).start()

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                if self.armed and re.search(rb"COMMIT(?!TED)", data):
                    self.armed, self.broken = False, self.broken + 1
                    client.shutdown(socket.SHUT_RDWR)
                    if not self._after:
                        break
                server.sendall(data)
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_WR)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


@pytest.fixture(params=["before", "after"])
def commits(request: pytest.FixtureRequest, tmp_path: Path, postgres: TestServer) -> Iterator[_CommitProxy]:
    """Return a proxy that breaks a connection before or after a COMMIT takes effect."""
    proxy = _CommitProxy(tmp_path, postgres.socket, after=request.param == "after")
    yield proxy
    proxy.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up soon on an unreachable server."""
    monkeypatch.setattr(transactions, "RETRY_SECONDS", 0.5)


async def test_lost_answer_to_commit_takes_effect_once(
    commits: _CommitProxy, tmp_path: Path, postgres: TestServer
) -> None:
    url = postgres.new_database().replace(str(postgres.socket.parent), str(tmp_path))
    db = await _prepared(url)
    for _ in range(5):
        commits.armed = True
        assert await db.write(_insert) == 1
    assert len(await db.read(lambda tx: tx.all(_LIVE))) == commits.broken == 5
    await db.close()


async def test_terminated_backend_is_replaced(postgres: TestServer) -> None:
    ended = list[int]()

    def ends_itself_once(tx: Transaction) -> None:
        _insert(tx)
        if not ended:
            ended.append(1)
            tx.all("SELECT pg_terminate_backend(pg_backend_pid())")

    db = await _prepared(postgres.new_database())
    await db.write(ends_itself_once)
    assert ended
    assert len(await db.read(lambda tx: tx.all(_LIVE))) == 1
    await db.close()


async def test_deadlock_is_repeated_until_both_succeed(postgres: TestServer) -> None:
    meeting, attempts = threading.Barrier(2, timeout=20), list[int]()

    def crosswise(first: int, second: int) -> Work[None]:
        def update(tx: Transaction) -> None:
            attempts.append(first)
            tx.run("UPDATE spaces_of_tests SET id = id WHERE id = :id", id=first)
            if attempts.count(first) == 1:
                meeting.wait()
            tx.run("UPDATE spaces_of_tests SET id = id WHERE id = :id", id=second)

        return update

    db = await _prepared(postgres.new_database())
    await db.write(lambda tx: tx.many("INSERT INTO spaces_of_tests VALUES (:id)", [{"id": 1}, {"id": 2}]))
    await asyncio.gather(db.write(crosswise(1, 2)), db.write(crosswise(2, 1)))
    assert len(attempts) >= 3
    await db.close()


async def test_crashed_server_loses_no_acknowledged_write(postgres: TestServer, impatient: None) -> None:
    url = postgres.new_database()
    db = await _prepared(url)
    acknowledged = 0
    for round in range(40):
        if round % 10 == 5:
            await asyncio.to_thread(postgres.stop)
            with pytest.raises(DatabaseUnavailable):
                await db.write(_insert)
            await asyncio.to_thread(postgres.start)
        acknowledged += await db.write(_insert)
    found = len(await db.read(lambda tx: tx.all(_LIVE)))
    assert acknowledged == found == 40
    await db.close()


async def test_unreachable_server_is_unavailable_without_its_url(tmp_path: Path, impatient: None) -> None:
    db = connect(f"postgresql://me:secret@/x?host={tmp_path}", "memory://")
    with pytest.raises(DatabaseUnavailable) as failure:
        await db.read(lambda tx: tx.all("SELECT 1"))
    assert "secret" not in str(failure.value)
    await db.close()


USERS: Final = {
    "stranger": (None, "refuses the user or the password"),
    "locked": ("NOLOGIN", "refuses the user or the password"),
    "secretive": ("LOGIN PASSWORD 'right'", "refuses the user or the password"),
    "lost": ("LOGIN", "no database of this name"),
    "outcast": ("LOGIN", "may not connect"),
    "crowded": ("LOGIN CONNECTION LIMIT 0", "does not respond; try again later"),
}


@pytest.mark.parametrize("user", USERS)
def test_refused_user_is_not_named_and_learns_what_to_correct(
    postgres: TestServer, user: str, impatient: None, caplog: pytest.LogCaptureFixture
) -> None:
    made, said = USERS[user]
    name = {"lost": "elsewhere", "outcast": "closed"}.get(user, "postgres")
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        if made is not None:
            connection.execute(f"CREATE ROLE {user} {made}".encode())
        if name == "closed":
            connection.execute("CREATE DATABASE closed")
            connection.execute("REVOKE CONNECT ON DATABASE closed FROM PUBLIC")
    if user == "secretive":
        postgres.require_password(user)

    async def refused(url: str) -> str:
        opened = connect(url, "memory://")
        try:
            with pytest.raises(DatabaseUnavailable) as caught:
                await opened.read(lambda tx: tx.all("SELECT 1"))
            return caught.value.message
        finally:
            await opened.close()

    for login in {user, f"{user}:wrong"}:
        caplog.clear()
        message = asyncio.run(refused(re.sub("//[^@]*@", f"//{login}@", postgres.url(name))))
        assert said in message
        assert ("try again" in message) == (user == "crowded")
        assert user not in message + caplog.text
        assert ["cannot connect" in record.getMessage() for record in caplog.records] == [True]


@pytest.mark.parametrize("prepare", ["on", "off"])
async def test_statements_work_prepared_or_not(postgres: TestServer, prepare: str) -> None:
    db = await _prepared(f"{postgres.new_database()}&prepare={prepare}")
    for _ in range(20):
        await db.write(_insert)
    counts = [
        (await db.read(lambda tx: tx.all("SELECT count(*) FROM pg_prepared_statements")))[0][0] for _ in range(40)
    ]
    assert (max(counts) > 0) == (prepare == "on")
    await db.close()


@pytest.fixture
def pooled(postgres: TestServer) -> Iterator[str]:
    """Return the URL of an empty database behind PgBouncer, which runs each transaction on any of two connections."""
    program = shutil.which("pgbouncer")
    if program is None:
        pytest.skip("PgBouncer is not installed")
    url, folder = postgres.new_database(), postgres.socket.parent
    settings = folder / "pgbouncer.ini"
    settings.write_text(f"""
[databases]
* = host={folder} user=protoslice
[pgbouncer]
unix_socket_dir = {folder}
listen_port = 6432
auth_type = any
pool_mode = transaction
default_pool_size = 2
ignore_startup_parameters = extra_float_digits
""")
    user = postgres._user
    running = subprocess.Popen(
        [program, settings], user=user, group=user, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, cwd=folder, extra_groups=None if user is None else [],
    )  # fmt: skip
    try:
        for _ in range(2000):
            if (folder / ".s.PGSQL.6432").exists():
                break
            assert running.poll() is None, "PgBouncer does not start"
            time.sleep(0.005)
        yield f"{url}&port=6432"
    finally:
        running.terminate()
        running.wait(20)


def test_a_pooler_is_noticed_and_no_statement_is_prepared(pooled: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def work() -> None:
        db = await _prepared(pooled)
        for _ in range(12):
            await asyncio.gather(*(db.write(_insert) for _ in range(16)), *(db.read(_count) for _ in range(16)))
        assert await db.read(_count) == 12 * 16
        prepared = [await db.read(lambda tx: tx.all("SELECT name FROM pg_prepared_statements")) for _ in range(8)]
        assert prepared == [[]] * 8
        await db.close()

    asyncio.run(work())
    assert "the database is behind a connection pooler" in caplog.text


def test_unknown_value_of_prepare_is_refused() -> None:
    with pytest.raises(InvalidInput, match="prepare="):
        connect("postgresql:///x?prepare=maybe", "memory://")


async def test_statement_errors_are_not_hidden(postgres: TestServer) -> None:
    db = await _prepared(postgres.new_database())
    with pytest.raises(Exception, match="no_such_column") as failure:
        await db.read(lambda tx: tx.all("SELECT no_such_column FROM meta"))
    assert not isinstance(failure.value, ProtosliceError)
    await db.close()
