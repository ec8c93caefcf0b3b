"""SQLite: groups, full disks, neighbouring processes and processes that are killed."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from protoslice.database import Database, Transaction, connect, sqlite, sqlite_file, upgrade
from protoslice.database.sqlite_file import exclusive, refuse_network
from protoslice.database.transactions import Work
from protoslice.errors import DatabaseUnavailable, IntegrityError, StorageFull, Unsupported

_FULL = "INSERT INTO numbers (id, padding) VALUES (:id, zeroblob(100000))"


async def _opened(folder: Path) -> Database:
    opened = connect(f"sqlite:///{folder}/catalog.sqlite", "memory://")
    await upgrade(opened)
    await opened.write(
        lambda tx: tx.run("CREATE TABLE IF NOT EXISTS numbers (id integer PRIMARY KEY AUTOINCREMENT, padding blob)")
    )
    return opened


def _insert(id: int) -> Work[int]:
    return lambda tx: tx.run("INSERT INTO numbers (id) VALUES (:id)", id=id)


def _ids(tx: Transaction) -> list[int]:
    return [row[0] for row in tx.all("SELECT id FROM numbers ORDER BY id")]


async def test_waiting_writes_share_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups, go = list[int](), threading.Event()
    committed = sqlite._committed

    def counted(connection: sqlite3.Connection, group: list[sqlite._Job]) -> object:
        groups.append(len(group))
        return committed(connection, group)

    db = await _opened(tmp_path)
    monkeypatch.setattr(sqlite, "_committed", counted)
    first = asyncio.create_task(db.write(lambda tx: go.wait(20)))
    while not groups:
        await asyncio.sleep(0.001)
    rest = [asyncio.create_task(db.write(_insert(id))) for id in range(100)]
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(first, *rest)
    assert groups == [1, 64, 36]
    await db.close()


async def test_what_is_committed_is_on_the_disk(tmp_path: Path) -> None:
    """The test reads the pragmas of each connection back, as SQLite ignores those that it cannot follow."""
    asked = ("synchronous", "journal_mode", "foreign_keys")
    db = await _opened(tmp_path)
    found = [[await way(lambda tx, name=name: tx.all(f"PRAGMA {name}")[0][0]) for name in asked]  # type: ignore[misc]
             for way in (db.write, db.read, db.fill, db.export)]  # fmt: skip
    assert found == [[2, "wal", 1]] * 4
    await db.close()


async def test_full_disk_fails_the_group_and_loses_nothing_else(tmp_path: Path) -> None:
    db = await _opened(tmp_path)
    await db.write(_insert(1))
    pages = await db.write(lambda tx: tx.all("PRAGMA page_count")[0][0])
    await db.write(lambda tx: tx.all(f"PRAGMA max_page_count = {pages + 2}"))
    with pytest.raises(StorageFull):
        await db.write(lambda tx: tx.run(_FULL, id=2))
    await db.write(lambda tx: tx.all(f"PRAGMA max_page_count = {pages + 1000}"))
    await db.write(_insert(3))
    assert await db.read(_ids) == [1, 3]
    await db.close()


async def test_damaged_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "catalog.sqlite").write_bytes(b"no database" * 1000)
    db = connect(f"sqlite:///{tmp_path}/catalog.sqlite", "memory://")
    with pytest.raises(IntegrityError, match="not an SQLite database"):
        await upgrade(db)
    await db.close()


def test_file_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    async def work() -> None:
        db = await _opened(tmp_path)
        modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()}
        assert set(modes) >= {"catalog.sqlite", "catalog.sqlite-wal", "catalog.sqlite-shm"}
        assert set(modes.values()) == {0o600}
        await db.close()

    old = os.umask(0)
    try:
        asyncio.run(work())
    finally:
        os.umask(old)


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs", "ceph"])
def test_network_file_system_is_refused(tmp_path: Path, kind: str) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nserver:/x {tmp_path} {kind} rw 0 0\nserver:/y /elsewhere nfs4 rw 0 0\n")
    with pytest.raises(Unsupported, match=f"network file system \\({kind}\\)"):
        refuse_network(tmp_path / "catalog.sqlite", mounts)
    refuse_network(Path("/catalog.sqlite"), mounts)


async def test_write_that_does_not_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "WAIT_SECONDS", 0.1)
    monkeypatch.setattr(sqlite, "_ANSWER_SECONDS", 0.1)
    go = threading.Event()
    db = await _opened(tmp_path)
    with pytest.raises(DatabaseUnavailable, match="does not respond"):
        await db.write(lambda tx: go.wait(20))
    go.set()
    await db.close()


async def test_write_that_does_not_begin_is_refused_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "WAIT_SECONDS", 0.2)
    db = await _opened(tmp_path)
    with open(tmp_path / "catalog.sqlite.lock", "ab") as lock, exclusive(lock.fileno()):
        waiting = [asyncio.create_task(db.write(_insert(number))) for number in range(3)]
        done, _ = await asyncio.wait(waiting, timeout=20)
        assert len(done) == 3, "the writes wait for the lock file"
        assert {str(task.exception()) for task in done} == {"The database is busy; try again later"}
    await db.write(_insert(4))
    assert await db.read(_ids) == [4]
    await db.close()


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("warm", [False, True])
async def test_file_that_was_removed_or_replaced_refuses_reads_and_writes(
    tmp_path: Path, replaced: bool, warm: bool
) -> None:
    path, kept = tmp_path / "catalog.sqlite", tmp_path / "kept"
    db = await _opened(tmp_path)
    await db.write(_insert(1))
    if warm:
        assert await db.read(_ids) == [1]
    path.rename(kept)
    if replaced:
        shutil.copy(kept, path)
    for attempt in (db.write(_insert(2)), db.read(_ids), db.read(_ids, background=True)):
        with pytest.raises(DatabaseUnavailable, match="was removed or replaced"):
            await attempt
    assert path.exists() == replaced
    kept.rename(path)
    await db.write(_insert(3))
    assert await db.read(_ids) == [1, 3]
    await db.close()


@pytest.mark.parametrize("end", ["-wal", "-shm"])
@pytest.mark.parametrize("first", ["write", "read"])
async def test_log_that_was_removed_is_noticed_and_loses_nothing(tmp_path: Path, end: str, first: str) -> None:
    path, crashed = tmp_path / "catalog.sqlite", tmp_path / "crashed"
    db = await _opened(tmp_path)
    for id in range(1, 4):
        await db.write(_insert(id))
    assert await db.read(_ids) == [1, 2, 3]
    path.with_name(path.name + end).unlink()
    order = ("write", "read", "background") if first == "write" else ("background", "read", "write")
    for kind in order:
        with pytest.raises(DatabaseUnavailable, match="restart all processes"):
            await (db.write(_insert(4)) if kind == "write" else db.read(_ids, background=kind == "background"))
    assert await _crashed(tmp_path, crashed) == [1, 2, 3]
    await db.close()
    again = await _opened(tmp_path)
    await again.write(_insert(5))
    assert await again.read(_ids) == [1, 2, 3, 5]
    await again.close()


@pytest.mark.parametrize("end", ["-wal", "-shm"])
async def test_write_during_which_the_log_is_removed_is_safe_if_it_is_acknowledged(tmp_path: Path, end: str) -> None:
    path, crashed = tmp_path / "catalog.sqlite", tmp_path / "crashed"

    def remove_log(tx: Transaction) -> None:
        tx.run("INSERT INTO numbers (id) VALUES (2)")
        path.with_name(path.name + end).unlink()

    db = await _opened(tmp_path)
    await db.write(_insert(1))
    await db.write(remove_log)
    assert await _crashed(tmp_path, crashed) == [1, 2]
    with pytest.raises(DatabaseUnavailable, match="restart all processes"):
        await db.write(_insert(3))
    await db.close()


@pytest.mark.parametrize("during", [False, True])
async def test_log_in_the_place_of_another_is_left_alone(tmp_path: Path, during: bool) -> None:
    log = tmp_path / "catalog.sqlite-wal"

    def replace_log(tx: Transaction | None = None) -> None:
        log.unlink()
        log.write_bytes(b"of another process")

    db = await _opened(tmp_path)
    await db.write(_insert(1))
    if not during:
        replace_log()
    with pytest.raises(DatabaseUnavailable, match="restart all processes"):
        await db.write(replace_log)
    assert log.read_bytes() == b"of another process"
    await db.close()


async def _crashed(folder: Path, copy: Path) -> list[int]:
    """Return the rows that a process finds after all other processes were killed."""
    copy.mkdir()
    for name in ("catalog.sqlite", "catalog.sqlite-wal"):
        if (folder / name).exists():
            shutil.copy(folder / name, copy)
    db = await _opened(copy)
    found = await db.read(_ids)
    await db.close()
    return found


@pytest.mark.parametrize("neighbour", ["reader", "writer", "shell", "export", "failure"])
async def test_ordinary_events_are_not_taken_for_a_lost_log(tmp_path: Path, neighbour: str) -> None:
    path = tmp_path / "catalog.sqlite"
    db = await _opened(tmp_path)
    for id in range(1, 6):
        await db.write(_insert(id))
        match neighbour:
            case "reader" | "writer":
                other = connect(f"sqlite:///{path}", "memory://")
                await (other.read(_ids) if neighbour == "reader" else other.write(_insert(100 + id)))
                await other.close()
            case "shell":
                with closing(sqlite3.connect(path)) as shell:
                    shell.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                    shell.execute("UPDATE numbers SET padding = NULL")
                    shell.commit()
            case "export":
                await db.export(_ids)
            case "failure":  # closes the only connection, and with it the log
                pages = await db.write(lambda tx: tx.all("PRAGMA page_count")[0][0])
                await db.write(lambda tx: tx.all(f"PRAGMA max_page_count = {pages + 2}"))  # noqa: B023
                with pytest.raises(StorageFull):
                    await db.write(lambda tx: tx.run(_FULL, id=200))
    assert [id for id in await db.read(_ids) if id < 100] == [1, 2, 3, 4, 5]
    await db.close()


_WRITER = """
import asyncio, sys
from protoslice.database import connect

async def main():
    db = connect(sys.argv[1], "memory://")
    print("ready", flush=True)
    async def write():
        while True:
            await db.write(lambda tx: tx.run("INSERT INTO numbers (padding) VALUES (zeroblob(3000))"))
            print("x", flush=True)
    await asyncio.gather(*(write() for _ in range(4)))

asyncio.run(main())
"""


def test_killed_neighbours_lose_no_acknowledged_write(tmp_path: Path) -> None:
    async def prepare() -> None:
        await (await _opened(tmp_path)).close()

    async def count() -> int:
        db = await _opened(tmp_path)
        found: int = (await db.read(lambda tx: tx.all("SELECT count(*) FROM numbers")))[0][0]
        await db.close()
        return found

    asyncio.run(prepare())
    acknowledged = 0
    for _ in range(3):
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", _WRITER, f"sqlite:///{tmp_path}/catalog.sqlite"],
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(2)
        ]
        for writer in writers:
            assert writer.stdout is not None
            for _ in range(40):
                writer.stdout.readline()
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
            acknowledged += 39 + writer.communicate(timeout=20)[0].count("x")
    assert asyncio.run(count()) >= acknowledged
    with closing(sqlite3.connect(tmp_path / "catalog.sqlite")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def _log_bytes(folder: Path) -> int:
    return (folder / "catalog.sqlite-wal").stat().st_size


def _reader(folder: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(folder / "catalog.sqlite", isolation_level=None)
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM numbers").fetchall()
    return connection


async def test_log_shrinks_while_there_is_always_a_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (sqlite, sqlite_file):
        monkeypatch.setattr(module, "LOG_BYTES", 1 << 18)
    monkeypatch.setattr(sqlite, "_LOG_WAIT_SECONDS", 20)
    db = await _opened(tmp_path)
    readers = [_reader(tmp_path)]
    for number in range(1, 15):
        await db.write(lambda tx, number=number: tx.run(_FULL, id=number))  # type: ignore[misc]
        for _ in range(200):
            if _log_bytes(tmp_path) < 1 << 18:
                break
            readers.append(_reader(tmp_path))
            readers.pop(0).close()
            await asyncio.sleep(0.01)
        assert _log_bytes(tmp_path) < 1 << 18
        assert db.log_bytes() == _log_bytes(tmp_path)
    readers[0].close()
    assert len(await db.read(_ids)) == 14
    await db.close()


async def test_reader_that_stays_stops_no_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backup is such a reader; the log shrinks with the first write after it."""
    for module in (sqlite, sqlite_file):
        monkeypatch.setattr(module, "LOG_BYTES", 1 << 18)
    monkeypatch.setattr(sqlite, "_LOG_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(sqlite, "_LOG_PAUSE_SECONDS", 0)
    db = await _opened(tmp_path)
    with closing(_reader(tmp_path)):
        for id in range(1, 11):
            await db.write(lambda tx, id=id: tx.run(_FULL, id=id))  # type: ignore[misc]
        assert _log_bytes(tmp_path) > 1 << 20
    await db.write(lambda tx: tx.run(_FULL, id=11))
    await db.write(lambda tx: None)  # the log is shortened before this one
    assert _log_bytes(tmp_path) < 1 << 18
    assert await db.write(lambda tx: tx.all("PRAGMA journal_size_limit")) == [(1 << 18,)]
    await db.close()
