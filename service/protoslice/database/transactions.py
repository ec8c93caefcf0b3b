"""Transactions on a SQL database: the interface that both engines share, with retries and deadlines.

A transaction is a plain function of a `Transaction`. It runs in a thread and may run more than once, so it must do
nothing but execute statements:

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
"""Times are in microseconds since the epoch."""
LAST: Final = "\U0010ffff"
"""Character behind all others: what begins with a prefix is below `prefix + LAST`."""
IN_ONE: Final = 500
"""Values that one statement lists."""
WAIT_SECONDS: Final = 2.0
"""Longest wait for a connection; a busy database then refuses, so that requests do not pile up."""
STATEMENT_SECONDS: Final = 5.0
BATCH: Final = 500
"""Rows that one transaction of the background changes, with a few more for each where others depend on them."""
READ_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 5.0
"""Budget of one transaction for all its attempts."""
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_FIRST_PAUSE: Final = 0.005


def now() -> datetime:
    """Return the current time, in UTC."""
    return datetime.now(UTC)


def microseconds(moment: datetime) -> int:
    """Return a time as a column holds it."""
    return (moment - _EPOCH) // _MICROSECOND


def time_of(microseconds: int) -> datetime:
    """Return the time of a column."""
    return _EPOCH + microseconds * _MICROSECOND


def check_unchanged(what: str, found: T | None, if_match: T | None, if_none_match: bool = False) -> None:
    """Raise `Changed` unless `found` is `if_match`, if given, or None, if `if_none_match` is set."""
    if if_match is not None and found != if_match:
        raise Changed(f"{what} has changed, or is gone")
    if if_none_match and found is not None:
        raise Changed(f"{what} exists already")


class UniqueViolation(Conflict):
    """Raised when a row with this key exists."""


class ForeignKeyViolation(Conflict):
    """Raised when a row that the new row refers to is gone, or other rows refer to a removed row."""


class ConcurrentChange(Conflict):
    """Raised when another request has changed the row since the caller read it."""


UNSTORABLE: Final = "Text with NUL or unpaired surrogates cannot be stored"


class Transient(ProtosliceError):
    """Raised when an attempt failed, but a repetition may succeed; `write` and `read` repeat it."""


class Disconnected(Transient):
    """Raised when the database cannot be reached."""


class CommitUnknown(Transient):
    """Raised when the connection to PostgreSQL broke during COMMIT: the change may have taken effect or not."""

    def __init__(self, result: object) -> None:
        super().__init__("The database closed the connection during COMMIT")
        self.result = result


class Outdated(DatabaseUnavailable):
    """Raised when a newer version has changed the schema while this process was running."""

    def __init__(self) -> None:
        super().__init__(
            "The database was upgraded by another version of Protoslice while this process was running: replace this "
            "process by one of that version"
        )


class Actor(NamedTuple):
    """The caller of a request; both are empty on an open service."""

    id: str
    """Id of a token, or of an account of an issuer: never that of another caller."""
    name: str
    """Name that was chosen when the token was made."""
    reads: bool = True
    """False for a caller who may not read in the space of the request, and must not learn what it contains."""


NOBODY: Final = Actor("", "")
LOCAL: Final = "local"
"""Id of an operator, who changes the database on the command line."""
ACTOR: Final[ContextVar[Actor | None]] = ContextVar("actor", default=None)
"""The caller of the request that the current task belongs to; None for work of the service itself."""

AUDITED: Final = frozenset(
    {
        "commits", "former_names", "kept_files", "manifests", "names", "repositories", "schemas", "spaces", "stores",
        "tokens", "webhooks",
    }
)  # fmt: skip
"""Tables of content and access: a request that changes them adds to the audit, but for the kinds of `Unaudited`."""
UNAUDITED: Final = frozenset(
    {
        # Of the service: `meta`, and what processes, transactions, backups and collections note for themselves.
        "audit", "changes", "holds", "meta", "processes", "trash", "usage",
        # Computed from stores, or written with them.
        "derived", "file_digests", "pieces", "store_objects",
        # Uploads and their objects, before a store or a name refers to them.
        "objects", "upload_objects", "upload_parts", "uploads", "xorbs",
        # Events on their way, which the audit has.
        "deliveries",
    }
)  # fmt: skip
"""All other tables."""


OF_STORAGE: Final = frozenset(
    {
        "commits", "file_digests", "former_names", "kept_files", "manifests", "names", "objects", "repositories",
        "schemas", "store_objects", "stores", "trash", "upload_objects", "upload_parts", "uploads", "xorbs",
    }
)  # fmt: skip
"""Tables about the content of the storage and its names, which do not change while the storage is read-only."""


class Unaudited(Enum):
    """Kinds of changes of audited tables that are not recorded in the audit."""

    UPLOAD = auto()
    """Bytes that came, by their digest: no name refers to them yet."""
    COMPUTED = auto()
    """Rows that are computed from others, and can be computed again."""
    COLLECTED = auto()
    """Rows of what was removed before, with an entry, or has expired."""
    USE = auto()
    """The time at which a token was used."""


_WRITTEN: Final = re.compile(r"\b(?:INSERT\s+INTO|DELETE\s+FROM|UPDATE(?=\s+\w+\s+SET\b))\s+(\w+)")


@lru_cache(maxsize=1024)
def written_by(sql: str) -> frozenset[str]:
    """Return the tables whose rows a statement changes."""
    return frozenset(_WRITTEN.findall(sql))


class Transaction(ABC):
    """An open transaction. Each method executes one statement."""

    actor: Actor = NOBODY
    of_request: bool = False
    """True for a change that a request makes, which is refused in a space that was removed."""
    change: bytes = b""
    """Id of the change; empty for a transaction that only reads."""
    recorded: int = 0
    """Rows that it has added to the audit."""
    is_alone: bool = False
    """True if no other connection to the database is open; PostgreSQL does not know."""
    changed: frozenset[str] = frozenset()
    """Tables that it has changed rows of."""

    def note(self, sql: str, rows: int) -> int:
        """Record which tables a statement changed; return the number of rows."""
        if rows > 0:
            self.changed |= written_by(sql)
        return rows

    @abstractmethod
    def all(self, sql: str, **values: Any) -> list[Row]:
        """Return all rows."""

    def planned(self, sql: str, **values: Any) -> list[Row]:
        """Return all rows of a statement whose best plan depends on the values."""
        return self.all(sql, **values)

    @abstractmethod
    def run(self, sql: str, **values: Any) -> int:
        """Return the number of rows that the statement changed."""

    @abstractmethod
    def many(self, sql: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Execute the statement once for each row of values."""

    @abstractmethod
    def batches(self, sql: str, size: int) -> Iterator[list[Row]]:
        """Return all rows, `size` at a time, without holding more in memory."""

    @abstractmethod
    def load(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Insert many rows into a table."""

    def first(self, sql: str, **values: Any) -> Row | None:
        """Return the first row, or None."""
        rows = self.all(sql, **values)
        return rows[0] if rows else None

    def among(self, sql: str, listed: Collection[str] | Collection[int], **values: Any) -> list[Row]:
        """Return the rows of a statement with `IN {listed}`, executed once for every `IN_ONE` of `listed`."""
        found, rest = list[Row](), list(listed)
        while rest:
            part = {f"listed{number}": value for number, value in enumerate(rest[:IN_ONE])}
            found += self.all(sql.format(listed=f"({', '.join(f':{name}' for name in part)})"), **values, **part)
            del rest[:IN_ONE]
        return found

    @property
    @abstractmethod
    def now(self) -> int:
        """Microseconds since the epoch by the clock of the database, the same for the whole transaction."""

    @abstractmethod
    def record(self, change: bytes, schema: int) -> None:
        """Raise `Outdated` if the database has another schema than expected; 0 accepts any.

        PostgreSQL keeps `change` in a row, by which a later attempt sees that this transaction was committed.
        """


class Alteration(ABC):
    """A change of the schema. Its statements have no deadline."""

    @abstractmethod
    def is_due(self, tx: Transaction) -> bool:
        """Return True if the schema has to be changed."""

    @abstractmethod
    def prepare(self, tx: Transaction) -> None:
        """Refuse the change, or prepare it. SQLite begins no transaction for this, and no other process writes."""

    @abstractmethod
    def apply(self, tx: Transaction) -> None:
        """Change the schema."""


Work: TypeAlias = Callable[[Transaction], T]
Observer: TypeAlias = Callable[[str, float, str | None], None]
"""Called after a transaction with its kind (`read` or `write`), the seconds of all attempts, and the error's class."""


class Database(ABC):
    """A database with the catalogue's schema."""

    dialect: str
    observer: Observer | None = None
    schema: int = 0
    """Schema that the process found when it opened the database; 0 if it has not looked."""
    process: bytes = b""
    """Id of this process in the table of processes."""
    process_secrets: str | None = None
    """Fingerprints of its secrets, as they are kept there."""
    read_only: str | None = None
    """Why the storage cannot be written; None for one that can."""
    _is_away = False
    """True from a failure to reach the database until an attempt succeeds: meanwhile nothing waits for it."""

    async def write(self, work: Work[T], *, background: bool = False, unaudited: Unaudited | None = None) -> T:
        """Run `work` in a transaction and commit it; repeat it after deadlocks and broken connections.

        If the response to a COMMIT of PostgreSQL is lost, the next attempt sees by the key in `changes` whether the
        first one took effect. `background` work has connections that requests cannot use up. A cancelled caller does
        not stop a transaction that has begun. Raise `DatabaseUnavailable` if the database does not respond in time.

        A change of tables in `AUDITED` by a request is not committed, and raises `RuntimeError`, unless `work` adds to
        the audit or `unaudited` says why it does not. While the storage is read-only, only computed data changes in
        tables of `OF_STORAGE`: see `check_writable`.
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
        """Run `step` in background transactions until its result is false; yield all earlier results.

        `step` gets the number of rows that it may change. A batch that the database does not finish in time is halved.
        Batches delete what was removed or has expired, so they add nothing to the audit.
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
        """Run `work`, which must only read, in a transaction of at most a second."""
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
        """Return what `attempt` returns; repeat it with growing pauses while it raises `Transient`."""
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
        """Raise `DatabaseUnavailable` unless the database responds, and `Outdated` if its schema has changed."""
        row = await self.read(lambda tx: tx.first("SELECT schema FROM meta"), background=True)
        if self.schema and (row is None or row[0] != self.schema):
            raise Outdated

    def lanes(self) -> Iterable[Lane]:
        """Return the pools of connections."""
        return ()

    def log_bytes(self) -> int:
        """Return the size of the write-ahead log of SQLite, 0 for other engines."""
        return 0

    def free_bytes(self) -> int | None:
        """Return the free bytes of the disk of a database in a file; None for other engines."""
        return None

    def earlier_processes(self, tx: Transaction) -> list[str]:
        """Return other processes that use a database without a table of processes, in words."""
        return []

    async def alter(self, alteration: Alteration) -> None:
        """Change the schema.

        Other processes that change the schema wait meanwhile. Cancelling the caller stops the change.
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
        """Run `work` once in a transaction; raise `Transient` where another attempt may succeed."""

    @abstractmethod
    async def _read(self, work: Work[T], *, background: bool) -> T:
        """Run `work` once in a transaction that only reads."""

    async def export(self, work: Work[T]) -> T:
        """Run `work`, which only reads, in a transaction of any length on a separate connection."""
        return await asyncio.to_thread(self._export, work)

    async def fill(self, work: Work[T]) -> T:
        """Run `work` in a transaction of any length on a separate connection."""
        return await asyncio.to_thread(self._fill, work)

    @asynccontextmanager
    async def rehearsal(self) -> AsyncIterator[Database]:
        """Yield a database that sees its changes until the end of the context, when all changes are rolled back.

        It has one transaction, of any length, so rows that it changes, or in SQLite the whole file, are locked.
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
        raise Unsupported("This database cannot be filled")

    def _apart_for_rehearsal(self) -> AbstractContextManager[Transaction]:
        """Return the context of a transaction on a separate connection, which is rolled back at the end."""
        raise Unsupported("This database has no rehearsals")

    def _alter(self, alteration: Alteration) -> None:
        raise Unsupported("This database cannot be altered")

    def _interrupt(self) -> None:
        """Make `_alter` in another thread end soon."""
        raise Unsupported("This database cannot be altered")

    @abstractmethod
    async def close(self) -> None:
        """Finish transactions that have begun and close all connections."""


class _Rehearsal(Database):
    """A database in one transaction, which is not committed."""

    def __init__(self, dialect: str, tx: Transaction) -> None:
        self.dialect = dialect
        self._tx = tx

    async def _write(self, work: Work[T], *, background: bool) -> T:
        return await asyncio.to_thread(work, self._tx)

    async def _read(self, work: Work[T], *, background: bool) -> T:
        return await asyncio.to_thread(work, self._tx)

    async def close(self) -> None:
        """Do nothing: the transaction is ended by the context that made it."""


class Lane:
    """Threads that each hold one connection; a caller waits at most `WAIT_SECONDS` for a thread."""

    def __init__(self, threads: int, name: str) -> None:
        self._free = asyncio.Semaphore(threads)
        self.connections = threads
        """Connections at most."""
        self.busy = 0
        """Connections that are in use."""
        self.waiting = 0
        """Callers that wait for a connection."""
        self._threads = ThreadPoolExecutor(threads, name)
        self._closed = False

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Return the result of `function`, run in a thread; cancelling the caller ends its work."""
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
            future.exception()  # mark it as retrieved: a caller that was cancelled does not read it

    async def close(self) -> None:
        """Refuse new work, and wait for running work."""
        self._closed = True
        await asyncio.to_thread(self._threads.shutdown)
