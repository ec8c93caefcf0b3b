"""Transactions on PostgreSQL: each thread has its own connection, so that transactions are plain functions.

Sessions keep no state, and settings last only for a transaction, so connections may use a pooler such as PgBouncer.
If there is a pooler, or if the URL contains `prepare=off`, no statements are prepared.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from protoslice.build import build
from protoslice.database.transactions import (
    READ_SECONDS,
    STATEMENT_SECONDS,
    UNSTORABLE,
    WAIT_SECONDS,
    Alteration,
    CommitUnknown,
    Database,
    Disconnected,
    ForeignKeyViolation,
    Lane,
    Outdated,
    Row,
    Transaction,
    Transient,
    UniqueViolation,
    Work,
)
from protoslice.errors import DatabaseUnavailable, InvalidInput, StorageDenied, StorageFull

T = TypeVar("T")
_log = logging.getLogger(__name__)

_CONNECTIONS: Final = 20
_BACKGROUND: Final = 2
_CONNECT_SECONDS: Final = 3
_WRITING: Final = "ISOLATION LEVEL READ COMMITTED READ WRITE"
"""Isolation of transactions that write, which must not depend on the server's default.

Counts are read again after a lock is acquired, and must then include the changes of other transactions.
"""
_SNAPSHOT: Final = "ISOLATION LEVEL REPEATABLE READ READ ONLY"
_BEGIN: Final = "BEGIN {}; SET LOCAL statement_timeout = {}; SET LOCAL lock_timeout = {}"
_NOW: Final = "(extract(epoch FROM transaction_timestamp()) * 1000000)::bigint"
_EARLIER: Final = """
    SELECT host(client_addr), pid FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = :name
    AND (state <> 'idle' OR state_change > now() - make_interval(secs => :seconds)) ORDER BY backend_start"""
_QUIET_SECONDS: Final = 150
_ROLLED_BACK: Final = (errors.SerializationFailure, errors.DeadlockDetected, errors.LockNotAvailable)
_REFUSALS: Final = tuple(
    (re.compile(pattern), reason)
    for pattern, reason in (
        (
            r"authentication failed|no password supplied|role .* (?:does not exist|is not permitted)|pg_hba\.conf",
            "The database refuses the user or the password: correct PROTOSLICE_DATABASE",
        ),
        (
            r"database .* does not exist",
            "The server has no database of this name: create it, or correct PROTOSLICE_DATABASE",
        ),
        (
            r"permission denied for database",
            "The user may not connect to the database: grant CONNECT, or correct PROTOSLICE_DATABASE",
        ),
    )
)
"""Patterns of errors for which a retry is useless; libpq reports SQLSTATEs 28, 3D and 42501 only as text."""
_USER: Final = re.compile(r"\b(user|role) \S+")
_PLACEHOLDER: Final = re.compile(r"(?<!:):([a-z_][a-z0-9_]*)")


class PostgresDatabase(Database):
    """A catalogue in PostgreSQL, which any number of replicas may share."""

    dialect = "postgresql"

    def __init__(self, url: str) -> None:
        self._parameters, self._prepare = _parameters(url)
        self._name = self._parameters["application_name"]
        self._parameters["application_name"] = f"{self._name}/{build()}"
        self._local = threading.local()
        self._has_warned = False
        self._connections: set[psycopg.Connection[Row]] = set()
        self._apart: set[psycopg.Connection[Row]] = set()
        """Connections with transactions of unlimited length."""
        self._lanes = {False: Lane(_CONNECTIONS, "catalogue"), True: Lane(_BACKGROUND, "catalogue-background")}

    async def _write(self, work: Work[T], *, background: bool) -> T:
        return await self._lanes[background].run(self._transaction, work, _WRITING, STATEMENT_SECONDS)

    async def _read(self, work: Work[T], *, background: bool) -> T:
        return await self._lanes[background].run(self._transaction, work, _SNAPSHOT, READ_SECONDS)

    def _transaction(self, work: Work[T], mode: str, seconds: float) -> T:
        connection = self._connection()
        try:
            with translated():
                connection.execute(_BEGIN.format(mode, int(seconds * 1000), int(WAIT_SECONDS * 1000)).encode())
                result = work(PostgresTransaction(connection))
            try:
                connection.execute("COMMIT")
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                if isinstance(error, _ROLLED_BACK):
                    raise _error(error) from error
                raise CommitUnknown(result) from error
        except BaseException:
            self._reset(connection)
            raise
        return result

    def _export(self, work: Work[T]) -> T:
        return self._alone(work, _SNAPSHOT)

    def _fill(self, work: Work[T]) -> T:
        return self._alone(work, _WRITING)

    @contextmanager
    def _apart_for_rehearsal(self) -> Iterator[Transaction]:
        with translated(), self._connected() as connection:
            try:
                yield self._begun(connection, _WRITING)
            finally:
                connection.rollback()

    def _alter(self, alteration: Alteration) -> None:
        def work(tx: Transaction) -> None:
            if alteration.is_due(tx):
                alteration.prepare(tx)
                alteration.apply(tx)

        self._alone(work, _WRITING)

    def earlier_processes(self, tx: Transaction) -> list[str]:
        """Return descriptions of the connections that earlier versions have opened, which use the same connection name.

        Connections that were idle for 150 seconds do not count: a pooler keeps connections of ended processes. A
        running service uses each of its connections at least once a minute.
        """
        rows = tx.all(_EARLIER, name=self._name, seconds=_QUIET_SECONDS)
        return [f"an earlier version on {host or 'this machine'} (PostgreSQL process {pid})" for host, pid in rows]

    def _interrupt(self) -> None:
        for connection in list(self._apart):
            connection.cancel()

    def lanes(self) -> Iterable[Lane]:
        """Return the pools of connections."""
        return self._lanes.values()

    def _alone(self, work: Work[T], mode: str) -> T:
        with translated(), self._connected() as connection:  # the context commits, unless an error is raised
            self._apart.add(connection)
            try:
                return work(self._begun(connection, mode))
            finally:
                self._apart.discard(connection)

    def _begun(self, connection: psycopg.Connection[Row], mode: str) -> PostgresTransaction:
        """Begin a transaction of unlimited length."""
        connection.execute(f"SET TRANSACTION {mode}".encode())
        connection.execute("SET LOCAL statement_timeout = 0")
        return PostgresTransaction(connection)

    def _connection(self) -> psycopg.Connection[Row]:
        """Return the connection of this thread, and open it if necessary."""
        connection: psycopg.Connection[Row] | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._connected(autocommit=True)
            self._local.connection = connection
            self._connections.add(connection)
        return connection

    def _connected(self, *, autocommit: bool = False) -> psycopg.Connection[Row]:
        try:
            connection = psycopg.connect(**self._parameters, autocommit=autocommit, prepare_threshold=None)
            if self._prepare and autocommit:
                pid = connection.execute("SELECT pg_backend_pid()").fetchall()[0][0]
                if pid == connection.info.backend_pid:
                    connection.prepare_threshold = 5
                else:  # a pooler may run each transaction on another connection, which has other prepared statements
                    self._prepare = False
                    _log.info("the database is behind a connection pooler: prepared statements are off")
        except psycopg.Error as error:
            reason = next((reason for pattern, reason in _REFUSALS if pattern.search(str(error))), None)
            if not self._has_warned:
                text = _USER.sub(r"\1 ...", " ".join(str(error).split())) if reason is None else reason
                _log.warning("cannot connect to the database: %s", text)
            self._has_warned = True
            if reason is not None:
                raise DatabaseUnavailable(reason) from error
            raise Disconnected("The database does not respond") from error
        self._has_warned = False
        return connection

    def _reset(self, connection: psycopg.Connection[Row]) -> None:
        """Roll back; if this fails, close the connection."""
        try:
            connection.execute("ROLLBACK")
        except psycopg.Error:
            with suppress(psycopg.Error):
                connection.close()
            self._connections.discard(connection)
            self._local.connection = None

    async def close(self) -> None:
        """Wait for running transactions, and close all connections."""
        for lane in self._lanes.values():
            await lane.close()
        for connection in self._connections:
            connection.close()


class PostgresTransaction(Transaction):
    """A transaction on this thread's connection."""

    def __init__(self, connection: psycopg.Connection[Row]) -> None:
        self._connection = connection
        self._now: int | None = None

    @property
    def now(self) -> int:
        """Time of the transaction by the clock of the database, in microseconds since the epoch."""
        if self._now is None:
            self._now = int(self.all(f"SELECT {_NOW}")[0][0])
        return self._now

    def record(self, change: bytes, schema: int) -> None:
        """Insert a row into `changes`; raise `Outdated` if the database has another schema."""
        sql = f"INSERT INTO changes (id, at) SELECT :id, {_NOW} FROM meta WHERE :schema IN (0, schema) RETURNING at"
        row = self.first(sql, id=change, schema=schema)
        if row is None:
            raise Outdated
        self._now = int(row[0])

    def all(self, sql: str, **values: Any) -> list[Row]:
        """Return all rows of a statement."""
        with translated():
            rows = self._connection.execute(_statement(sql), values).fetchall()
        self.note(sql, len(rows))
        return rows

    def planned(self, sql: str, **values: Any) -> list[Row]:
        """Return all rows of a statement, which is planned for these values."""
        with translated():
            return self._connection.execute(_statement(sql), values, prepare=False).fetchall()

    def run(self, sql: str, **values: Any) -> int:
        """Execute a statement and return the number of rows that it changed."""
        with translated():
            changed = self._connection.execute(_statement(sql), values).rowcount
        return self.note(sql, changed)

    def batches(self, sql: str, size: int) -> Iterator[list[Row]]:
        """Yield all rows in lists of at most `size`, with a cursor on the server."""
        with translated(), self._connection.cursor("batches") as cursor:
            cursor.execute(_statement(sql))
            while rows := cursor.fetchmany(size):
                yield rows

    def load(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Insert many rows into a table with COPY."""
        copying = f"COPY {table} ({', '.join(columns)}) FROM STDIN"
        with translated(), self._connection.cursor() as cursor, cursor.copy(copying.encode()) as copied:
            for row in rows:
                copied.write_row(row)
        self.note(f"INSERT INTO {table}", 1)

    def many(self, sql: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Execute a statement once for each row of values."""
        with translated(), self._connection.cursor() as cursor:
            cursor.executemany(_statement(sql), rows)
            self.note(sql, cursor.rowcount)


@lru_cache(maxsize=1024)
def _statement(sql: str) -> bytes:
    """Return the statement with the placeholders that psycopg uses."""
    return _PLACEHOLDER.sub(r"%(\1)s", sql.replace("%", "%%")).encode()


@contextmanager
def translated() -> Iterator[None]:
    """Translate PostgreSQL's errors to errors of this package, whose messages never contain the database URL."""
    try:
        yield
    except psycopg.Error as error:
        raise _error(error) from error
    except UnicodeEncodeError:
        raise InvalidInput(UNSTORABLE) from None


def _error(error: psycopg.Error) -> Exception:
    if isinstance(error, errors.UniqueViolation):
        return UniqueViolation(f"The database already has a row with this key: {error.diag.constraint_name}")
    if isinstance(error, errors.ForeignKeyViolation):
        return ForeignKeyViolation(
            f"Another row in the database is missing or still refers to this one: {error.diag.constraint_name}"
        )
    if isinstance(error, psycopg.DataError) and error.sqlstate is None:  # psycopg itself refuses text with NUL
        return InvalidInput(UNSTORABLE)
    if isinstance(error, _ROLLED_BACK):
        return Transient("The database is locked by other transactions")
    if isinstance(error, errors.QueryCanceled):
        return DatabaseUnavailable("The database is too slow: a statement timed out")
    if isinstance(error, errors.UndefinedTable | errors.InvalidSchemaName):  # also while a server is being restored
        return DatabaseUnavailable(
            "The database has no tables of Protoslice: restore it, or run `protoslice database upgrade` for a new one"
        )
    if isinstance(error, errors.DiskFull):
        return StorageFull("The disk of the database is full: make room on it")
    if isinstance(
        error, errors.InvalidPassword | errors.InvalidAuthorizationSpecification | errors.InsufficientPrivilege
    ):
        return StorageDenied(
            "Access to the database was denied: check user, password and privileges in PROTOSLICE_DATABASE"
        )
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return Disconnected("The database does not respond")
    return error


def _parameters(url: str) -> tuple[dict[str, Any], bool]:
    """Return the parameters of libpq for `url`, and True if statements may be prepared."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query.replace("+", "%2B"), keep_blank_values=True))  # in libpq, + is not a space
    prepare = options.pop("prepare", "on")
    if prepare not in {"on", "off"}:
        raise InvalidInput("Invalid PROTOSLICE_DATABASE: prepare= must be 'on' or 'off'")
    ours = {
        "connect_timeout": _CONNECT_SECONDS,
        "target_session_attrs": "read-write",
        "tcp_user_timeout": int(STATEMENT_SECONDS * 2000),
        "application_name": "protoslice",
    }
    try:
        given = conninfo_to_dict(urlunsplit(parts._replace(query=urlencode(options, quote_via=quote))))
    except psycopg.ProgrammingError:  # the message of libpq may contain the password
        raise InvalidInput(
            "Invalid PROTOSLICE_DATABASE: PostgreSQL's client cannot parse it; check options and percent-encoding"
        ) from None
    return ours | given, prepare == "on"
