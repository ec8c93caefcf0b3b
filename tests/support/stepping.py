"""Two transactions on real PostgreSQL connections; each can stop before any of its statements."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

import psycopg

from protoslice.database import Database, Transaction
from protoslice.database.postgres import PostgresTransaction, _parameters, translated
from protoslice.database.transactions import Row, Work

T = TypeVar("T")
Unlocked: TypeAlias = Callable[[str], str]
"""A function that changes a statement before it is executed."""

BLOCKED_SECONDS: Final = 0.08
"""The seconds after which an unfinished statement counts as waiting for a lock."""
NEVER: Final = 99


class Steps:
    """The steps of one transaction: its statements and its COMMIT; it pauses before step `stop` until `go` is set."""

    def __init__(self, stop: int) -> None:
        self.stop = stop
        self.count = 0
        self.paused = threading.Event()
        self.go = threading.Event()

    def step(self) -> None:
        """Record a step that is about to be executed."""
        if self.count == self.stop:
            self.paused.set()
            assert self.go.wait(20)
        self.count += 1


class SteppedTransaction(Transaction):
    """A transaction that records its statements."""

    def __init__(self, inner: Transaction, steps: Steps, without: Unlocked) -> None:
        self._inner = inner
        self._steps = steps
        self._without = without

    @property
    def now(self) -> int:
        return self._inner.now

    def record(self, change: bytes, schema: int) -> None:
        self._inner.record(change, schema)

    def all(self, sql: str, **values: Any) -> list[Row]:
        self._steps.step()
        return self._inner.all(self._without(sql), **values)

    def run(self, sql: str, **values: Any) -> int:
        self._steps.step()
        return self._inner.run(self._without(sql), **values)

    def many(self, sql: str, rows: Any) -> None:
        self._steps.step()
        self._inner.many(sql, rows)

    def batches(self, sql: str, size: int) -> Any:
        return self._inner.batches(sql, size)

    def load(self, table: str, columns: Any, rows: Any) -> None:
        self._inner.load(table, columns, rows)


class OneConnection(Database):
    """A database whose transactions run on one connection, step by step."""

    dialect = "postgresql"

    def __init__(self, url: str, steps: Steps, without: Unlocked) -> None:
        self._steps = steps
        self._without = without
        self._connection: psycopg.Connection[Row] = psycopg.connect(**_parameters(url)[0], autocommit=True)

    async def _write(self, work: Work[T], *, background: bool) -> T:
        with translated():
            self._connection.execute("BEGIN")
            try:
                result = work(SteppedTransaction(PostgresTransaction(self._connection), self._steps, self._without))
                self._steps.step()
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")
            return result

    async def _read(self, work: Work[T], *, background: bool) -> T:
        return await self._write(work, background=background)

    async def close(self) -> None:
        self._connection.close()


class Actor:
    """One side of the race, in a thread."""

    def __init__(
        self, url: str, stop: int, act: Callable[[Database], Any], without: Unlocked = lambda sql: sql
    ) -> None:
        self.steps = Steps(stop)
        self.result: Any = None
        self._act = act
        self._without = without
        self._url = url
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        """Run until the stop, the end, or a lock that the other side holds."""
        self._thread.start()
        for _ in range(400):
            if self.steps.paused.wait(BLOCKED_SECONDS / 40) or self._ended.is_set():
                return
            if self.steps.count and not self._moves():
                return

    def finish(self) -> None:
        """Run to the end, or until a lock."""
        self.steps.go.set()
        self._thread.join(BLOCKED_SECONDS)

    def join(self) -> Any:
        """Run to the end, and return the result or the error."""
        self.steps.go.set()
        self._thread.join(20)
        assert not self._thread.is_alive()
        return self.result

    def _moves(self) -> bool:
        before = self.steps.count
        self._ended.wait(BLOCKED_SECONDS)
        return self.steps.count != before or self._ended.is_set() or self.steps.paused.is_set()

    def _run(self) -> None:
        async def run() -> Any:
            database = OneConnection(self._url, self.steps, self._without)
            try:
                return await self._act(database)
            finally:
                await database.close()

        try:
            self.result = asyncio.run(run())
        except Exception as error:
            self.result = error
        self._ended.set()
