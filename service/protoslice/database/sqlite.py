"""Transactions on SQLite: one thread writes and commits in groups, and a few threads read.

SQLite before 3.51.3 can lose the write-ahead log if several connections write or checkpoint at once ("WAL-reset bug").
With a lock file, only one process at a time writes, checkpoints or closes a connection, so older versions of SQLite are
safe too.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import queue
import re
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar

from protoslice.database.sqlite_file import (
    BUSY_MILLISECONDS,
    LOG_BYTES,
    Connection,
    DatabaseFile,
    close_connection,
    connect,
    exclusive,
    openers,
    refuse_network,
    set_up,
    translated,
    uri,
)
from protoslice.database.transactions import (
    READ_SECONDS,
    STATEMENT_SECONDS,
    UNSTORABLE,
    WAIT_SECONDS,
    Alteration,
    Database,
    Lane,
    Outdated,
    Row,
    Transaction,
    Work,
)
from protoslice.errors import (
    DatabaseUnavailable,
    InvalidInput,
)

T = TypeVar("T")
_log = logging.getLogger(__name__)

_READERS: Final = 4
_BACKGROUND: Final = 1
_GROUP: Final = 64
"""Largest number of transactions that one COMMIT writes."""
_ANSWER_SECONDS: Final = 30.0
"""Longest wait in seconds for the end of a transaction that has begun."""
_STEPS: Final = 20_000
"""Number of instructions of SQLite's virtual machine between two checks of the deadline."""
_LOG_WAIT_SECONDS: Final = 0.1
"""Longest wait in seconds for readers of the log; writes are blocked during the wait."""
_LOG_PAUSE_SECONDS: Final = 1.0
"""Seconds between a failed attempt to shorten the log, for example during a backup, and the next attempt."""
_ALONE_SECONDS: Final = 0.5
"""Seconds for which an upgrade waits for other connections to end, before it treats the file as shared."""
_LOOK_SECONDS: Final = 0.1
"""Seconds between two attempts to get the lock for writing."""


class SqliteDatabase(Database):
    """A catalogue in a file, which the processes of one machine share.

    If `durable` is False, a crash of the machine may lose committed changes.
    """

    dialect = "sqlite"

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        refuse_network(path)
        self.path = path
        self._durable = durable
        self._file = DatabaseFile(path)
        self._writer = _Writer(self._file, durable)
        self._local = threading.local()
        self._connections: list[Connection] = []
        self._lanes = {False: Lane(_READERS, "catalogue-read"), True: Lane(_BACKGROUND, "catalogue-background")}
        self._interrupted = threading.Event()

    async def _write(self, work: Work[T], *, background: bool) -> T:
        job = _Job(work)
        self._writer.submit(job)
        result: asyncio.Future[T] = asyncio.wrap_future(job.done)
        result.add_done_callback(lambda it: it.cancelled() or it.exception())  # marks errors as read if the caller left
        await asyncio.wait([result], timeout=WAIT_SECONDS)
        if job.done.cancel():  # the transaction has not begun
            raise DatabaseUnavailable("The database is busy; try again later")
        await asyncio.wait([result], timeout=_ANSWER_SECONDS)
        if not result.done():
            raise DatabaseUnavailable("The database does not respond; try again later")
        return result.result()

    async def _read(self, work: Work[T], *, background: bool) -> T:
        return await self._lanes[background].run(self._reading, work)

    def _reading(self, work: Work[T]) -> T:
        connection: Connection | None = getattr(self._local, "connection", None)
        self._file.check(connection)
        if connection is None:
            connection = connect(self.path)
            connection.execute("PRAGMA query_only = ON")
            self._local.connection = connection
            self._connections.append(connection)
        with translated(), _deadline(connection, READ_SECONDS):
            connection.execute("BEGIN")
            try:
                return work(SqliteTransaction(connection))
            finally:
                connection.execute("ROLLBACK")

    def _export(self, work: Work[T]) -> T:
        with self._own_connection() as (connection, _):
            connection.execute("PRAGMA query_only = ON")
            connection.execute("BEGIN")
            return work(SqliteTransaction(connection))

    def _fill(self, work: Work[T]) -> T:
        with self._own_connection() as (connection, lock), exclusive(lock):
            connection.execute("BEGIN IMMEDIATE")
            result = work(SqliteTransaction(connection))
            connection.execute("COMMIT")
            return result

    @contextmanager
    def _apart_for_rehearsal(self) -> Iterator[Transaction]:
        with self._own_connection() as (connection, lock), exclusive(lock):
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield SqliteTransaction(connection)
            finally:
                connection.execute("ROLLBACK")

    def _alter(self, alteration: Alteration) -> None:
        self._file.check()
        with open(self._writer.lock, "ab") as lock, self._alone(lock.fileno()), translated():
            with closing(connect(self.path)) as connection:
                if not alteration.is_due(SqliteTransaction(connection)):
                    return
            with closing(self._exclusive_connection()) as connection:
                connection.set_progress_handler(self._interrupted.is_set, _STEPS)
                tx = SqliteTransaction(connection)
                tx.is_alone = connection.execute("PRAGMA locking_mode").fetchone()[0] == "exclusive"
                alteration.prepare(tx)
                connection.execute("BEGIN IMMEDIATE")
                alteration.apply(tx)
                connection.execute("COMMIT")

    def _exclusive_connection(self) -> sqlite3.Connection:
        """Return an exclusive connection to the file, or a shared one if the file has other connections."""
        connection = sqlite3.connect(uri(self.path), uri=True, isolation_level=None, timeout=_ALONE_SECONDS)
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        except sqlite3.OperationalError:
            connection.close()
            return connect(self.path, durable=self._durable)
        set_up(connection, durable=self._durable)
        return connection

    def earlier_processes(self, tx: Transaction) -> list[str]:
        """Return descriptions of the processes that have the file open."""
        if tx.is_alone:
            return []
        found = [f"process {pid} ({name})" for pid, name in openers(self.path)]
        return found or ["a process outside of this system, such as one in another container"]

    def _interrupt(self) -> None:
        self._interrupted.set()

    @contextmanager
    def _alone(self, lock: int) -> Iterator[None]:
        """Acquire the lock for writing, which excludes other processes; `_interrupt` ends the wait for the lock."""
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if self._interrupted.wait(_LOOK_SECONDS):
                raise DatabaseUnavailable("The upgrade of the database was interrupted: start it again")
        try:
            yield
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)

    @contextmanager
    def _own_connection(self) -> Iterator[tuple[sqlite3.Connection, int]]:
        """Yield a new connection, and the lock file's descriptor; only the closing of the connection takes the lock."""
        self._file.check()
        with open(self._writer.lock, "ab") as lock, translated():
            connection = connect(self.path)
            try:
                yield connection, lock.fileno()
            finally:
                close_connection(connection, lock.fileno())

    def lanes(self) -> Iterable[Lane]:
        """Return the pools of connections."""
        return self._lanes.values()

    def log_bytes(self) -> int:
        """Return the size in bytes of the write-ahead log."""
        return self._file.log_bytes()

    def free_bytes(self) -> int:
        """Return the number of free bytes on the database's disk."""
        return shutil.disk_usage(self.path.parent).free

    async def copy(self, target: Path) -> None:
        """Write a copy of the database in its current state to a new file."""
        await asyncio.to_thread(self._copy, target)

    def _copy(self, target: Path) -> None:
        with self._own_connection() as (connection, _):
            SqliteTransaction(connection).copy(target)

    async def close(self) -> None:
        """Wait for running transactions, and close all connections."""
        for lane in self._lanes.values():
            await lane.close()
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        with open(self._writer.lock, "ab") as lock:
            for connection in self._connections:
                close_connection(connection, lock.fileno())
        self._writer.close()


class SqliteTransaction(Transaction):
    """A transaction on this thread's connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._now = time.time_ns() // 1000

    @property
    def now(self) -> int:
        """Time of the transaction by the clock of this machine, in microseconds since the epoch."""
        return self._now

    def record(self, change: bytes, schema: int) -> None:
        """Check the schema; a row in `changes` is unnecessary, because SQLite's COMMIT always reports its result."""
        if self.first("SELECT 1 FROM meta WHERE :schema IN (0, schema)", schema=schema) is None:
            raise Outdated

    def all(self, sql: str, **values: Any) -> list[Row]:
        """Return all rows of a statement."""
        with translated():
            rows = self._connection.execute(_statement(sql), _storable(values)).fetchall()
        self.note(sql, len(rows))
        return rows

    def run(self, sql: str, **values: Any) -> int:
        """Execute a statement and return the number of rows that it changed."""
        with translated():
            changed = self._connection.execute(_statement(sql), _storable(values)).rowcount
        return self.note(sql, changed)

    def many(self, sql: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Execute a statement once for each row of values."""
        with translated():
            changed = self._connection.executemany(_statement(sql), map(_storable, rows)).rowcount
        self.note(sql, changed)

    def batches(self, sql: str, size: int) -> Iterator[list[Row]]:
        """Yield all rows in lists of at most `size`."""
        with translated():
            cursor = self._connection.execute(sql)
            while rows := cursor.fetchmany(size):
                yield rows

    def copy(self, target: Path) -> None:
        """Write a copy of the database to a new file; no transaction may be open."""
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with translated():
            self._connection.execute("VACUUM INTO ?", (str(target),))
        with open(target, "rb") as copied:  # SQLite itself does not flush the copy to the disk
            os.fsync(copied.fileno())

    def load(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Insert many rows into a table."""
        marks = ", ".join("?" * len(columns))
        sql = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"
        with translated():
            changed = self._connection.executemany(sql, rows).rowcount
        self.note(sql, changed)


def _storable(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `values`; raise `InvalidInput` for text that PostgreSQL cannot store, so that both engines agree."""
    for value in values.values():
        if type(value) is str and "\0" in value:
            raise InvalidInput(UNSTORABLE)
    return values


class _Job:
    """A transaction that is queued for the writer."""

    def __init__(self, work: Work[Any]) -> None:
        self.work = work
        self.done: Future[Any] = Future()

    def settle(self, result: Any, failure: BaseException | None) -> None:
        if self.done.cancelled():
            return
        if failure is None:
            self.done.set_result(result)
        else:
            self.done.set_exception(failure)


class _Writer:
    """The only thread of this process that writes."""

    def __init__(self, file: DatabaseFile, durable: bool) -> None:
        self._durable = durable
        self._file = file
        path = file.path
        self.lock = path.with_name(path.name + ".lock")
        self._lock = os.open(self.lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="catalogue-write", daemon=True)
        self._closed = False
        self._rescued = False
        self._not_before = 0.0
        """Earliest time of the next attempt to shorten the log."""
        file.when_lost = lambda: self._jobs.put(_Job(lambda tx: None))  # wakes the writer, which can rescue the log
        self._thread.start()

    def submit(self, job: _Job) -> None:
        """Queue a transaction; raise `DatabaseUnavailable` if the writer is closed."""
        if self._closed:
            raise DatabaseUnavailable("The database is closed")
        self._jobs.put(job)

    def close(self) -> None:
        """Commit the queued transactions, then close the connection."""
        if not self._closed:
            self._closed = True
            self._jobs.put(None)
            self._thread.join()
            os.close(self._lock)

    def _run(self) -> None:
        while (group := self._next_group()) is not None:
            try:
                with translated(), exclusive(self._lock):
                    if self._file.writing is None:
                        self._file.writing = connect(self._file.path, durable=self._durable)
                    settled = _committed(self._file.writing, group)
                missed = self._missed()
                if missed is not None and not self._rescued:  # the committed changes will be lost
                    settled = [(job, None, missed) for job in group]
            except Exception as failure:
                settled = [(job, None, failure) for job in group]
                self._close()
            for job, result, refused in settled:
                job.settle(result, refused)
            self._shorten_log()
        self._close()

    def _shorten_log(self) -> None:
        """Write a long log into the database, and truncate the log."""
        connection = self._file.writing
        if connection is None or self._file.log_bytes() < LOG_BYTES or time.monotonic() < self._not_before:
            return
        done = False
        with suppress(sqlite3.Error), exclusive(self._lock):
            connection.execute(f"PRAGMA busy_timeout = {int(_LOG_WAIT_SECONDS * 1000)}")
            done = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
        with suppress(sqlite3.Error):
            connection.execute(f"PRAGMA busy_timeout = {BUSY_MILLISECONDS}")
        if not done:
            self._not_before = time.monotonic() + _LOG_PAUSE_SECONDS

    def _close(self) -> None:
        connection, self._file.writing = self._file.writing, None
        close_connection(connection, self._lock)

    def _missed(self) -> DatabaseUnavailable | None:
        """Check the files, and rescue a lost log; return the error with which all writes must now fail, or None."""
        try:
            self._file.check(self._file.writing)
        except DatabaseUnavailable as failure:
            if self._file.is_log_lost and self._file.writing is not None and not self._rescued:
                with exclusive(self._lock):
                    self._rescued = self._file.rescue(self._file.writing)
                done = "saved in the database" if self._rescued else "not saved yet"
                _log.error("%s; changes in the removed file are %s", failure.message, done)
            return failure
        return None

    def _next_group(self) -> list[_Job] | None:
        """Wait for at least one job, and return the waiting jobs.

        Return None if the writer is closed and the queue is empty.
        """
        group: list[_Job] = []
        while len(group) < _GROUP:
            try:
                job = self._jobs.get(block=not group)
            except queue.Empty:
                break
            if job is None:
                if not group:
                    return None
                self._jobs.put(None)
                break
            missed = self._missed()
            if missed is None:
                group.append(job)
            else:
                job.settle(None, missed)
        return group


def _committed(connection: sqlite3.Connection, group: list[_Job]) -> list[tuple[_Job, Any, BaseException | None]]:
    """Run jobs in one transaction, each in a savepoint, and return their results after the commit.

    If a job fails, the others continue. No job gets its result before the COMMIT, since a job may depend on rows that
    an earlier job of the group wrote.
    """
    connection.execute("BEGIN IMMEDIATE")
    settled: list[tuple[_Job, Any, BaseException | None]] = []
    try:
        for job in group:
            if not job.done.running() and not job.done.set_running_or_notify_cancel():
                continue
            connection.execute("SAVEPOINT job")
            try:
                with translated(), _deadline(connection, STATEMENT_SECONDS):
                    settled.append((job, job.work(SqliteTransaction(connection)), None))
            except BaseException as failure:
                if not connection.in_transaction:  # a full disk or a damaged file has rolled back the whole transaction
                    raise
                connection.execute("ROLLBACK TO job")
                settled.append((job, None, failure))
            connection.execute("RELEASE job")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return settled


@lru_cache(maxsize=1024)
def _statement(sql: str) -> str:
    """Return the statement without row locks, which SQLite lacks: a writing transaction locks the whole file."""
    return re.sub(r"\s+FOR ((NO KEY )?UPDATE|(KEY )?SHARE)( SKIP LOCKED)?", "", sql)


@contextmanager
def _deadline(connection: sqlite3.Connection, seconds: float) -> Iterator[None]:
    """Interrupt statements that are still running after `seconds`."""
    end = time.monotonic() + seconds
    connection.set_progress_handler(lambda: time.monotonic() > end, _STEPS)
    try:
        yield
    finally:
        connection.set_progress_handler(None, 0)
