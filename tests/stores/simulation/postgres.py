"""PostgreSQL in the histories: transactions' statements interleave, and a transaction may end between two statements.

Each transaction has a connection and a thread. Only one thread runs Python at a time. The loop lets a transaction
execute one statement, and then waits until the statement has ended or is blocked by another transaction's lock.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Final, Generic, Literal, TypeVar

import psycopg

from protoslice.database import Database
from protoslice.database.postgres import _SNAPSHOT, _WRITING, PostgresTransaction, _parameters, translated
from protoslice.database.transactions import WAIT_SECONDS, Outdated, Row, Transient, Work

T = TypeVar("T")
Kind = Literal["write", "read", "undone"]
"""The kind of a transaction; an undone one writes and is rolled back."""

_LOOK_SECONDS: Final = 0.002
"""The seconds after which an unfinished statement may be waiting for a lock."""
_STUCK_SECONDS: Final = 60.0
_OPTIONS: Final = "SET lock_timeout = 0; SET statement_timeout = 0; SET deadlock_timeout = '5ms'"


class Ended(BaseException):
    """The error that a transaction ends without a COMMIT, because its process ended."""


class PostgresCatalogue(Database):
    """A catalogue in a schema of a server, with the clock of the history."""

    dialect = "postgresql"

    def __init__(self, url: str) -> None:
        self._parameters = _parameters(url)[0]
        self._clock: Callable[[], float] = time.time
        self._free: list[psycopg.Connection[Row]] = []
        self._watch = self._connected()
        self._waiting: set[_Running[Any]] = set()
        """The transactions whose statement waits for a lock."""
        self.waited = 0
        """The number of statements that waited for another transaction's lock."""

    def run(self, work: Work[T], end: str) -> T:
        """Return the result of `work` in a transaction at one moment, which ends with the statement `end`."""
        connection = self._taken()
        with translated():
            connection.execute("BEGIN")
            try:
                result = work(_Transaction(connection, self._clock()))
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute(end.encode())
        self._free.append(connection)
        return result

    async def interleave(self, work: Work[T], kind: Kind, pause: Callable[[], Awaitable[None]]) -> T:
        """Return the result of `work` in a transaction that does nothing during `pause` between its statements."""
        running = _Running(self._taken(), work, kind, self._clock())
        try:
            while True:
                running.advance()
                await self._wait(running, pause)
                if running.over.is_set():
                    return running.outcome()
                await pause()
        finally:
            running.end()
            self._free.append(running.connection)
            self._waiting.discard(running)
            for other in self._waiting:
                self._rests(other)

    async def _wait(self, running: _Running[T], pause: Callable[[], Awaitable[None]]) -> None:
        """Wait until the statement has ended; end a statement that waits for a lock longer than the package's limit."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + WAIT_SECONDS
        while not self._rests(running):
            if running not in self._waiting:
                self._waiting.add(running)
                self.waited += 1
            await pause()
            if loop.time() > deadline:
                running.is_late = True
                running.connection.cancel()
        self._waiting.discard(running)

    def _rests(self, running: _Running[Any]) -> bool:
        """Return True when the statement has ended, and False when it waits for another transaction."""
        begun = time.monotonic()
        while not running.rests.wait(_LOOK_SECONDS):
            pid = running.connection.info.backend_pid
            blockers = self._watch.execute(_BLOCKERS, {"pid": pid}).fetchall()[0]
            if blockers[0] and not blockers[1] and not running.is_late:  # PostgreSQL resolves a deadlock
                return False
            assert time.monotonic() < begun + _STUCK_SECONDS
        return True

    def _taken(self) -> psycopg.Connection[Row]:
        return self._free.pop() if self._free else self._connected()

    def _connected(self) -> psycopg.Connection[Row]:
        connection: psycopg.Connection[Row] = psycopg.connect(**self._parameters, autocommit=True)
        connection.execute(_OPTIONS.encode())
        return connection

    async def _write(self, work: Work[T], *, background: bool) -> T:
        return self.run(work, "COMMIT")

    async def _read(self, work: Work[T], *, background: bool) -> T:
        return self.run(work, "ROLLBACK")

    async def close(self) -> None:
        """Close all connections."""
        for connection in (*self._free, self._watch):
            connection.close()


_BLOCKERS: Final = b"""
    WITH RECURSIVE waits (pid, by) AS (
        SELECT %(pid)s::int, unnest(pg_blocking_pids(%(pid)s::int))
        UNION SELECT by, unnest(pg_blocking_pids(by)) FROM waits
    ) SELECT count(*) > 0, coalesce(bool_or(by = %(pid)s::int), false) FROM waits"""
"""A query: whether a connection waits for others, and whether one of those waits for it."""


class _Running(Generic[T]):
    """A transaction in a thread that executes each statement only when the loop allows it."""

    def __init__(self, connection: psycopg.Connection[Row], work: Work[T], kind: Kind, now: float) -> None:
        self.connection = connection
        self.rests = threading.Event()
        """Set while the thread does nothing until it may continue."""
        self.over = threading.Event()
        self.is_late = False
        """True once a statement was stopped because it waited too long for a lock."""
        self._work = work
        self._kind = kind
        self._now = now
        self._turn = threading.Event()
        self._ends = False
        self._result: list[T] = []
        self._error: BaseException | None = None
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=copy_context().run, args=(self._run,), daemon=True)
        self._thread.start()
        self.rests.wait()

    def advance(self) -> None:
        """Let the transaction execute its next statement."""
        self.rests.clear()
        self._turn.set()

    def end(self) -> None:
        """Roll back, unless the transaction is over."""
        if not self.over.is_set():
            self._ends = True
            if not self.rests.is_set():  # it waits for a lock
                self.connection.cancel()
            self.advance()
        self._thread.join(_STUCK_SECONDS)
        assert not self._thread.is_alive()

    def outcome(self) -> T:
        """Return the result of the work, or raise its error."""
        if self._error is not None:
            raise self._error
        return self._result[0]

    def step(self) -> None:
        """Wait until the transaction may execute the next statement; the thread calls this."""
        self.rests.set()
        assert self._turn.wait(_STUCK_SECONDS * 60)
        self._turn.clear()
        if self._ends:
            raise Ended

    def _run(self) -> None:
        asyncio._set_running_loop(self._loop)
        try:
            self.step()
            with translated():
                self.connection.execute(f"BEGIN {_SNAPSHOT if self._kind == 'read' else _WRITING}".encode())
                result = self._work(_Steps(self.connection, self._now, self.step))
                self.step()
                self.connection.execute(b"COMMIT" if self._kind == "write" else b"ROLLBACK")
            self._result.append(result)
        except BaseException as error:
            late = Transient("The database is locked by other transactions")
            self._error = late if self.is_late else error
            with suppress(psycopg.Error):  # a cancellation that came late
                self.connection.rollback()
            self.connection.rollback()
        finally:
            self.over.set()
            self.rests.set()


class _Transaction(PostgresTransaction):
    """A transaction at a time of the simulation."""

    def __init__(self, connection: psycopg.Connection[Row], now: float) -> None:
        super().__init__(connection)
        self._now = int(now * 1_000_000)

    def record(self, change: bytes, schema: int) -> None:
        sql = "INSERT INTO changes (id, at) SELECT :id, :now FROM meta WHERE :schema IN (0, schema)"
        if self.run(sql, id=change, now=self.now, schema=schema) == 0:
            raise Outdated


class _Steps(_Transaction):
    """A transaction that waits before each statement until it may continue."""

    def __init__(self, connection: psycopg.Connection[Row], now: float, step: Callable[[], None]) -> None:
        super().__init__(connection, now)
        self._step = step

    def all(self, sql: str, **values: Any) -> list[Row]:
        self._step()
        return super().all(sql, **values)

    def planned(self, sql: str, **values: Any) -> list[Row]:
        self._step()
        return super().planned(sql, **values)

    def run(self, sql: str, **values: Any) -> int:
        self._step()
        return super().run(sql, **values)

    def many(self, sql: str, rows: Any) -> None:
        self._step()
        super().many(sql, rows)

    def load(self, table: str, columns: Sequence[str], rows: Any) -> None:
        self._step()
        super().load(table, columns, rows)
