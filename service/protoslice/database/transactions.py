"""Transactions on a SQL database: the interface that both engines share, with retries and deadlines.

A transaction is a plain function of a `Transaction`. It runs in a thread, and it may run more than once. It must
therefore do nothing except execute statements:

    def rename(tx: Transaction) -> bool:
        return tx.run("UPDATE spaces SET name = :new WHERE name = :old", new="b", old="a") == 1

    renamed = await database.write(rename)

Statements use `:name` placeholders in both engines.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, cast

from protoslice.errors import Changed, Conflict, DatabaseUnavailable, ProtosliceError, Unsupported

T = TypeVar("T")
Row: TypeAlias = tuple[Any, ...]

SECOND: Final = 1_000_000
"""Number of microseconds in a second; all times in the database are in microseconds since the epoch."""
LAST: Final = "\U0010ffff"
"""The last Unicode character: all texts that begin with `prefix` sort below `prefix + LAST`."""
IN_ONE: Final = 500
"""Largest number of values that one statement lists."""
WAIT_SECONDS: Final = 2.0
"""Longest wait in seconds for a connection; then the request is refused, so that requests do not pile up."""
STATEMENT_SECONDS: Final = 5.0
BATCH: Final = 500
"""Number of rows that one background transaction changes; dependent rows are changed in addition."""
READ_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 5.0
"""Seconds that all attempts of one transaction may take together."""
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_FIRST_PAUSE: Final = 0.005


def now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


def microseconds(moment: datetime) -> int:
    """Return a time in the form of a column, in microseconds since the epoch."""
    return (moment - _EPOCH) // _MICROSECOND


def time_of(microseconds: int) -> datetime:
    """Return the time that a column contains in microseconds since the epoch."""
    return _EPOCH + microseconds * _MICROSECOND


def check_unchanged(what: str, found: T | None, if_match: T | None, if_none_match: bool = False) -> None:
    """Raise `Changed` if the version `found` does not meet the conditions of a request.

    If `if_match` is not None, `found` must be equal to it. If `if_none_match` is True, `found` must be None.
    """
    if if_match is not None and found != if_match:
        raise Changed(f"{what} was changed or removed: read it again")
    if if_none_match and found is not None:
        raise Changed(f"{what} already exists")


class UniqueViolation(Conflict):
    """The error for a row whose key exists already."""


class ForeignKeyViolation(Conflict):
    """The error for a reference to a missing row, or for the deletion of a row that other rows refer to."""


class ConcurrentChange(Conflict):
    """The error for a row that another request has changed since the caller read it."""


UNSTORABLE: Final = "Text with NUL or unpaired surrogates cannot be stored"


class Transient(ProtosliceError):
    """The error for an attempt that failed, although a new attempt may succeed; `write` and `read` retry it."""


class Disconnected(Transient):
    """The error for a database that cannot be reached."""


class CommitUnknown(Transient):
    """The error for a connection that PostgreSQL closed during COMMIT; the change may or may not have taken effect."""

    def __init__(self, result: object) -> None:
        super().__init__("The database closed the connection during COMMIT")
        self.result = result


class Outdated(DatabaseUnavailable):
    """The error for a schema that a newer version of the program changed while this process was running."""

    def __init__(self) -> None:
        super().__init__(
            "Another version of Protoslice upgraded the database while this process was running: start this process "
            "again with that version"
        )


class Actor(NamedTuple):
    """The caller of a request; id and name are empty on a service without authentication."""

    id: str
    """Id of a token, or of an account of an identity provider; no two callers share an id."""
    name: str
    """Name that was chosen when the token was created."""
    reads: bool = True
    """False for a caller who may not read in the request's space, and who must not learn its content."""


NOBODY: Final = Actor("", "")
LOCAL: Final = "local"
"""Id of an operator who changes the database from the command line."""
ACTOR: Final[ContextVar[Actor | None]] = ContextVar("actor", default=None)
"""The caller of the request that the current task serves, or None for work of the service itself."""

AUDITED: Final = frozenset(
    {
        "commits", "former_names", "kept_files", "manifests", "names", "repositories", "schemas", "spaces", "stores",
        "tokens", "webhooks",
    }
)  # fmt: skip
"""Tables of content and access; requests must audit their changes to these, except the kinds in `Unaudited`."""
UNAUDITED: Final = frozenset(
    {
        # The service's own records: `meta`, and rows of processes, transactions, backups and collections.
        "audit", "changes", "holds", "meta", "processes", "trash", "usage",
        # Rows that are computed from stores or written with them.
        "derived", "file_digests", "pieces", "store_objects",
        # Uploads and their objects, to which no store or name refers yet.
        "objects", "upload_objects", "upload_parts", "uploads", "xorbs",
        # Events that are to be delivered, which are in the audit already.
        "deliveries",
    }
)  # fmt: skip
"""All other tables, whose changes are not audited."""


OF_STORAGE: Final = frozenset(
    {
        "commits", "file_digests", "former_names", "kept_files", "manifests", "names", "objects", "repositories",
        "schemas", "store_objects", "stores", "trash", "upload_objects", "upload_parts", "uploads", "xorbs",
    }
)  # fmt: skip
"""Tables about the content and names of the storage; they do not change while the storage is read-only."""


class Unaudited(Enum):
    """Kinds of changes in audited tables that are not recorded in the audit."""

    UPLOAD = auto()
    """Uploaded bytes, recorded by their digest, to which no name refers yet."""
    COMPUTED = auto()
    """Rows that are computed from other rows, and can be computed again."""
    COLLECTED = auto()
    """Rows that have expired, or that belong to things whose removal is already in the audit."""
    USE = auto()
    """The time at which a token was last used."""


_WRITTEN: Final = re.compile(r"\b(?:INSERT\s+INTO|DELETE\s+FROM|UPDATE(?=\s+\w+\s+SET\b))\s+(\w+)")


@lru_cache(maxsize=1024)
def written_by(sql: str) -> frozenset[str]:
    """Return the names of the tables whose rows a statement changes."""
    return frozenset(_WRITTEN.findall(sql))


class Transaction(ABC):
    """An open transaction; each method executes a statement."""

    actor: Actor = NOBODY
    of_request: bool = False
    """True for a change by a request, which is refused in a space that was removed."""
    change: bytes = b""
    """Id of the change, or empty for a transaction that only reads."""
    recorded: int = 0
    """Number of rows that the transaction has added to the audit."""
    is_alone: bool = False
    """True if the database is known to have no other connection; always False in PostgreSQL."""
    changed: frozenset[str] = frozenset()
    """Names of the tables whose rows the transaction has changed."""

    def note(self, sql: str, rows: int) -> int:
        """Record the tables that a statement changed, and return the number of rows."""
        if rows > 0:
            self.changed |= written_by(sql)
        return rows

    @abstractmethod
    def all(self, sql: str, **values: Any) -> list[Row]:
        """Return all rows of a statement."""

    def planned(self, sql: str, **values: Any) -> list[Row]:
        """Return all rows of a statement, whose best plan depends on the values."""
        return self.all(sql, **values)

    @abstractmethod
    def run(self, sql: str, **values: Any) -> int:
        """Execute a statement and return the number of rows that it changed."""

    @abstractmethod
    def many(self, sql: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Execute a statement once for each row of values."""

    @abstractmethod
    def batches(self, sql: str, size: int) -> Iterator[list[Row]]:
        """Yield all rows in lists of at most `size`, with only one list in memory at a time."""

    @abstractmethod
    def load(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Insert many rows into a table."""

    def first(self, sql: str, **values: Any) -> Row | None:
        """Return the first row of a statement, or None if it has no rows."""
        rows = self.all(sql, **values)
        return rows[0] if rows else None

    def among(self, sql: str, listed: Collection[str] | Collection[int], **values: Any) -> list[Row]:
        """Return the rows of a statement that contains `IN {listed}`.

        The statement is executed once for every `IN_ONE` values of `listed`.
        """
        found, rest = list[Row](), list(listed)
        while rest:
            part = {f"listed{number}": value for number, value in enumerate(rest[:IN_ONE])}
            found += self.all(sql.format(listed=f"({', '.join(f':{name}' for name in part)})"), **values, **part)
            del rest[:IN_ONE]
        return found

    @property
    @abstractmethod
    def now(self) -> int:
        """The time by the clock of the database, in microseconds since the epoch; it is constant in a transaction."""

    @abstractmethod
    def record(self, change: bytes, schema: int) -> None:
        """Raise `Outdated` if the schema of the database is not `schema`; 0 accepts any schema.

        PostgreSQL also saves the id `change` in a row, from which a later attempt can see that this attempt was
        committed.
        """


class Alteration(ABC):
    """A change of the schema, whose statements have no deadline."""

    @abstractmethod
    def is_due(self, tx: Transaction) -> bool:
        """Return True if the schema must be changed."""

    @abstractmethod
    def prepare(self, tx: Transaction) -> None:
        """Prepare the change, or raise an error to refuse it.

        In SQLite, no transaction is open at this time, but no other process can write.
        """

    @abstractmethod
    def apply(self, tx: Transaction) -> None:
        """Change the schema."""


Work: TypeAlias = Callable[[Transaction], T]
Observer: TypeAlias = Callable[[str, float, str | None], None]
"""Function that is called after each transaction.

It receives the kind (`read` or `write`), the seconds of all attempts, and the name of the error's class or None.
"""


class Database(ABC):
    """A database with the schema of the catalogue."""

    dialect: str
    observer: Observer | None = None
    schema: int = 0
    """Version of the schema that the process found when it opened the database, or 0 if it is unknown."""
    process: bytes = b""
    """Id of this process in the table `processes`."""
    process_secrets: str | None = None
    """Fingerprints of the process's secrets, in the form of the table `processes`."""
    read_only: str | None = None
    """Reason why the storage cannot be written, or None if it can."""
    _is_away = False
    """True from a failure to reach the database until an attempt succeeds; meanwhile, such failures are not retried."""

    async def write(self, work: Work[T], *, background: bool = False, unaudited: Unaudited | None = None) -> T:
        """Run `work` in a transaction and commit it; retry it after deadlocks and broken connections.

        If PostgreSQL's response to a COMMIT is lost, the next attempt finds out from the id in `changes` whether the
        first one took effect. Work in the `background` has its own connections, which requests cannot use up. If the
        caller is cancelled, a transaction that has begun continues. Raise `DatabaseUnavailable` if the database does
        not respond in time.

        If a request changes a table in `AUDITED`, `work` must add to the audit, unless `unaudited` states why it need
        not. Otherwise, raise `RuntimeError` without a commit. While the storage is read-only, only computed data may
        change in tables of `OF_STORAGE`; see `check_writable`.
        """
        change, actor, unknown = uuid.uuid4().bytes, ACTOR.get(), list[CommitUnknown]()

        def recorded(tx: Transaction) -> T:
            tx.record(change, self.schema)
            tx.change, tx.actor = change, actor or NOBODY
            tx.of_request = actor is not None and actor.id != LOCAL and unaudited is not Unaudited.COLLECTED
            result = work(tx)
            if tx.changed & OF_STORAGE and unaudited is not Unaudited.COMPUTED:
                self.check_writable()
            unrecorded = tx.changed & AUDITED
            if actor is not None and unrecorded and not tx.recorded and unaudited is None:
                raise RuntimeError(f"A request changed {', '.join(sorted(unrecorded))} and recorded nothing")
            return result

        async def attempt() -> T:
            try:
                return await self._write(recorded, background=background)
            except CommitUnknown as failure:
                unknown.append(failure)
                raise
            except UniqueViolation:
                if unknown and await self._took_effect(change, background=background):
                    return cast(T, unknown[-1].result)
                raise

        return await self._observed("write", attempt)

    def check_writable(self) -> None:
        """Raise `Unsupported` if the storage is read-only."""
        if self.read_only is not None:
            raise Unsupported(f"The service cannot write to its storage: {self.read_only}")

    async def write_in_batches(self, step: Callable[[Transaction, int], T]) -> AsyncIterator[T]:
        """Run `step` in background transactions until its result is false; yield all other results.

        `step` receives the number of rows that it may change. If the database does not finish a batch in time, this
        number is halved. Batches add nothing to the audit, because they only delete rows that are marked as removed, or
        that have expired.
        """
        rows = BATCH
        while True:
            try:
                done = await self.write(
                    lambda tx: step(tx, rows),  # noqa: B023 - it is awaited at once
                    background=True,
                    unaudited=Unaudited.COLLECTED,
                )
            except DatabaseUnavailable as failure:
                if rows == 1 or isinstance(failure.__cause__, Disconnected):
                    raise
                rows //= 2
                continue
            if not done:
                return
            yield done

    async def read(self, work: Work[T], *, background: bool = False) -> T:
        """Run `work`, which must only read, in a transaction; each attempt may take at most a second."""
        return await self._observed("read", lambda: self._read(work, background=background))

    async def _observed(self, kind: str, attempt: Callable[[], Awaitable[T]]) -> T:
        if self.observer is None:
            return await self._repeated(attempt)
        begun, failed = time.perf_counter(), None
        try:
            return await self._repeated(attempt)
        except ProtosliceError as error:
            failed = type(error).__name__
            raise
        finally:
            self.observer(kind, time.perf_counter() - begun, failed)

    async def _repeated(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `attempt`; repeat it with growing pauses while it raises `Transient`.

        Raise `DatabaseUnavailable` when the time for all attempts is used up.
        """
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + RETRY_SECONDS, _FIRST_PAUSE
        while True:
            try:
                result = await attempt()
            except Transient as failure:
                wait = pause * (0.5 + random.random())
                unreachable = isinstance(failure, Disconnected)
                if loop.time() + wait > deadline or (unreachable and self._is_away):
                    self._is_away = unreachable
                    raise DatabaseUnavailable(f"{failure.message}; try again later") from failure
            else:
                self._is_away = False
                return result
            await asyncio.sleep(wait)
            pause = min(pause * 2, 0.5)

    async def ping(self) -> None:
        """Raise `DatabaseUnavailable` if the database does not respond, and `Outdated` if its schema has changed."""
        row = await self.read(lambda tx: tx.first("SELECT schema FROM meta"), background=True)
        if self.schema and (row is None or row[0] != self.schema):
            raise Outdated

    def lanes(self) -> Iterable[Lane]:
        """Return the pools of connections."""
        return ()

    def log_bytes(self) -> int:
        """Return the size in bytes of SQLite's write-ahead log, or 0 for another engine."""
        return 0

    def free_bytes(self) -> int | None:
        """Return the number of free bytes on the disk of a database file, or None for another engine."""
        return None

    def earlier_processes(self, tx: Transaction) -> list[str]:
        """Return descriptions of the other processes that use the database, if its schema has no table of processes."""
        return []

    async def alter(self, alteration: Alteration) -> None:
        """Change the schema.

        Other processes that want to change the schema wait until then. Cancelling the caller stops the change.
        """
        try:
            await self._repeated(lambda: asyncio.to_thread(self._alter, alteration))
        except asyncio.CancelledError:
            self._interrupt()
            raise

    async def _took_effect(self, change: bytes, *, background: bool) -> bool:
        row = await self.read(
            lambda tx: tx.first("SELECT 1 FROM changes WHERE id = :id", id=change), background=background
        )
        return row is not None

    @abstractmethod
    async def _write(self, work: Work[T], *, background: bool) -> T:
        """Run `work` once in a transaction; raise `Transient` if another attempt may succeed."""

    @abstractmethod
    async def _read(self, work: Work[T], *, background: bool) -> T:
        """Run `work` once in a transaction that only reads."""

    async def export(self, work: Work[T]) -> T:
        """Run `work`, which must only read, in a transaction of unlimited length on a separate connection."""
        return await asyncio.to_thread(self._export, work)

    async def fill(self, work: Work[T]) -> T:
        """Run `work` in a transaction of unlimited length on a separate connection."""
        return await asyncio.to_thread(self._fill, work)

    @asynccontextmanager
    async def rehearsal(self) -> AsyncIterator[Database]:
        """Yield a database for trial changes, which are rolled back when the context ends.

        The database sees its own changes. It is a single transaction of unlimited length, which locks the rows that
        it changes, or in SQLite the whole file.
        """
        apart = self._apart_for_rehearsal()
        tx = await asyncio.to_thread(apart.__enter__)
        try:
            yield _Rehearsal(self.dialect, tx)
        finally:
            await asyncio.to_thread(apart.__exit__, None, None, None)

    def _export(self, work: Work[T]) -> T:
        raise Unsupported("This database cannot be copied")

    def _fill(self, work: Work[T]) -> T:
        raise Unsupported("This database cannot be restored into")

    def _apart_for_rehearsal(self) -> AbstractContextManager[Transaction]:
        """Return the context of a transaction on a separate connection, which is rolled back when the context ends."""
        raise Unsupported("This database cannot undo a trial run")

    def _alter(self, alteration: Alteration) -> None:
        raise Unsupported("This database cannot be altered")

    def _interrupt(self) -> None:
        """Interrupt a running `_alter`, which then ends soon in its thread."""
        raise Unsupported("This database cannot be altered")

    @abstractmethod
    async def close(self) -> None:
        """Wait for running transactions, and close all connections."""


class _Rehearsal(Database):
    """A database that consists of a single transaction, which is never committed."""

    def __init__(self, dialect: str, tx: Transaction) -> None:
        self.dialect = dialect
        self._tx = tx

    async def _write(self, work: Work[T], *, background: bool) -> T:
        return await asyncio.to_thread(work, self._tx)

    async def _read(self, work: Work[T], *, background: bool) -> T:
        return await asyncio.to_thread(work, self._tx)

    async def close(self) -> None:
        """Do nothing: the context that began the transaction also ends it."""


class Lane:
    """A pool of threads with one connection each; a caller waits at most `WAIT_SECONDS` for a thread."""

    def __init__(self, threads: int, name: str) -> None:
        self._free = asyncio.Semaphore(threads)
        self.connections = threads
        """Largest number of connections."""
        self.busy = 0
        """Number of connections in use."""
        self.waiting = 0
        """Number of callers that wait for a connection."""
        self._threads = ThreadPoolExecutor(threads, name)
        self._closed = False

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Return the result of `function`, which runs in a thread.

        Raise `DatabaseUnavailable` if no thread is free in time. A cancelled caller stops waiting, but the thread
        continues.
        """
        self.waiting += 1
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._free.acquire()
        except TimeoutError:
            raise DatabaseUnavailable("The database is busy; try again later") from None
        finally:
            self.waiting -= 1
        if self._closed:
            self._free.release()
            raise DatabaseUnavailable("The database is closed")
        future = asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)
        self.busy += 1
        future.add_done_callback(self._done)
        return await asyncio.shield(future)

    def _done(self, future: asyncio.Future[Any]) -> None:
        self._free.release()
        self.busy -= 1
        if not future.cancelled():
            future.exception()  # marks the error as read, since a cancelled caller does not read it

    async def close(self) -> None:
        """Refuse new work, and wait for running work."""
        self._closed = True
        await asyncio.to_thread(self._threads.shutdown)
