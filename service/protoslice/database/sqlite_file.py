"""The file of a SQLite database: its connections, locks and errors, and the detection of a replaced file."""

from __future__ import annotations

import fcntl
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeAlias

from protoslice.database.transactions import (
    UNSTORABLE,
    ForeignKeyViolation,
    Transient,
    UniqueViolation,
)
from protoslice.errors import (
    DatabaseUnavailable,
    IntegrityError,
    InvalidInput,
    StorageDenied,
    StorageError,
    StorageFull,
    Unsupported,
)
from protoslice.local_files import private_folder

_Identity: TypeAlias = tuple[int, int]
"""Device and inode, which identify a file."""


BUSY_MILLISECONDS: Final = 2000


LOG_BYTES: Final = 16 << 20
"""Size in bytes from which on the writer shortens the log; SQLite itself never does this while reads overlap."""


_NETWORK: Final = re.compile(
    r"nfs\d?|cifs|smb\w*|ceph|glusterfs|lustre|afs|beegfs|gpfs"
    r"|fuse\.(sshfs|s3fs|gcsfuse|rclone|glusterfs|ceph|juicefs|mount-s3|blobfuse2?)"
)


_ESCAPED: Final = re.compile(r"\\([0-7]{3})")
"""Escape sequence for a space or another special character in `/proc/self/mounts`."""


class Connection(sqlite3.Connection):
    """A connection with the identities of the log files that it has open.

    These files must remain in place until the connection is closed.
    """

    logs: tuple[_Identity | None, ...] = ()


class DatabaseFile:
    """The file of a database and the files of its log; the database file is created if it is missing."""

    def __init__(self, path: Path) -> None:
        private_folder(path.parent)
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        self.path = path
        self._name = str(path)
        """The path as text, which is faster: the files are checked before each transaction."""
        self._opened = _identity(path)
        self.is_log_lost = False
        self.writing: Connection | None = None
        """The connection that writes, or None; it is set to None before the connection is closed."""
        self.when_lost: Callable[[], None] = lambda: None
        """Function that is called once, when files of the log are found missing."""

    def check(self, connection: Connection | None = None) -> None:
        """Raise `DatabaseUnavailable` if a file was removed or replaced, since commits to it would be lost.

        The log files must be the files that `connection` has open, or the writing connection if `connection` is None.
        Once log files are missing, every check fails, and nothing is read or written any more.
        """
        if _identity(self._name) != self._opened:
            raise DatabaseUnavailable(
                "The database file was removed or replaced while it was open: put it back. To use another file, first "
                "stop the service and delete the file that ends in -wal"
            )
        held = connection or self.writing
        is_missing = held is not None and not self.is_log_lost and _logs(self._name) != held.logs
        if is_missing and held in {connection, self.writing}:  # a connection that was just closed misses nothing
            self.is_log_lost = True
            self.when_lost()
        if self.is_log_lost:
            raise DatabaseUnavailable(
                f"{self.path.name}-wal or {self.path.name}-shm was removed or replaced while the database was open: "
                "restart all processes of the service, and leave these files where they are"
            )

    def log_bytes(self) -> int:
        """Return the size in bytes of the log, or 0 if there is no log."""
        with suppress(OSError):
            return os.stat(self.path.with_name(self.path.name + "-wal")).st_size
        return 0

    def rescue(self, connection: Connection) -> bool:
        """Write the rest of a removed log, which is still open, into the database; return True on success.

        If a new log is in its place, return False: the new log may belong to another process, which must not be
        disturbed.
        """
        log = _logs(self.path)[0]
        if log not in {None, connection.logs[0]}:
            return False
        try:
            return bool(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0)
        except sqlite3.Error:
            return False


def _identity(path: str | Path) -> _Identity | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _logs(path: str | Path) -> tuple[_Identity | None, ...]:
    return _identity(f"{path}-wal"), _identity(f"{path}-shm")


def close_connection(connection: sqlite3.Connection | None, lock: int) -> None:
    """Close a connection while no other process writes: closing the last connection writes a checkpoint."""
    if connection is not None:
        with suppress(sqlite3.Error), exclusive(lock):
            connection.close()


def connect(path: Path, *, durable: bool = True) -> Connection:
    """Return a new connection, which has already opened the log."""
    connection = sqlite3.connect(
        uri(path), uri=True, isolation_level=None, check_same_thread=False, cached_statements=256, factory=Connection
    )
    set_up(connection, durable=durable)
    connection.execute("SELECT 1 FROM sqlite_master")  # opens the log
    connection.logs = _logs(path)
    return connection


def uri(path: Path) -> str:
    """Return the URI with which SQLite opens an existing file, but does not create one."""
    return f"{path.absolute().as_uri()}?mode=rw"


def set_up(connection: sqlite3.Connection, *, durable: bool) -> None:
    """Set the options of a new connection."""
    synchronous = f"synchronous = {'FULL' if durable else 'OFF'}"
    busy, limit = f"busy_timeout = {BUSY_MILLISECONDS}", f"journal_size_limit = {LOG_BYTES}"
    for pragma in (busy, "journal_mode = WAL", limit, synchronous, "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}")


def openers(path: Path) -> list[tuple[int, str]]:
    """Return the id and name of each other process on this machine that visibly has a file open."""
    wanted, found = os.stat(path), list[tuple[int, str]]()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if process.name != str(os.getpid()) and any(
                os.path.samestat(os.stat(each), wanted) for each in (process / "fd").iterdir()
            ):
                found.append((int(process.name), (process / "comm").read_text().strip()))
    return sorted(found)


@contextmanager
def exclusive(file: int) -> Iterator[None]:
    """Hold the exclusive lock of a file while the context lasts."""
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


@contextmanager
def translated() -> Iterator[None]:
    """Translate SQLite's errors to errors of this package."""
    try:
        yield
    except sqlite3.Error as error:
        raise _error(error) from error
    except UnicodeEncodeError:
        raise InvalidInput(UNSTORABLE) from None


_FULL: Final = "The disk of the database is full: make room on it"


_ERRORS: Final[Mapping[int, Callable[[str], Exception]]] = {
    sqlite3.SQLITE_CONSTRAINT_UNIQUE: UniqueViolation,
    sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY: UniqueViolation,
    sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY: ForeignKeyViolation,
    sqlite3.SQLITE_IOERR_SHMSIZE: lambda _: StorageFull(_FULL),
}


_PRIMARY_ERRORS: Final[Mapping[int, Callable[[], Exception]]] = {
    sqlite3.SQLITE_BUSY: lambda: Transient("The database is locked by another program"),
    sqlite3.SQLITE_FULL: lambda: StorageFull(_FULL),
    sqlite3.SQLITE_INTERRUPT: lambda: DatabaseUnavailable("The database is too slow: a statement ran out of time"),
    sqlite3.SQLITE_CORRUPT: lambda: IntegrityError("The database file is damaged: restore it from a backup"),
    sqlite3.SQLITE_NOTADB: lambda: IntegrityError(
        "The database file is not an SQLite database: restore it from a backup"
    ),
    sqlite3.SQLITE_READONLY: lambda: StorageDenied("The database file is read-only: check the owner of its folder"),
    sqlite3.SQLITE_CANTOPEN: lambda: StorageDenied("The database file cannot be opened: check the owner of its folder"),
}


def _error(error: sqlite3.Error) -> Exception:
    code: int | None = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return error
    if code in _ERRORS:
        return _ERRORS[code](str(error))
    if code & 0xFF in _PRIMARY_ERRORS:
        return _PRIMARY_ERRORS[code & 0xFF]()
    if isinstance(error, sqlite3.OperationalError) and code & 0xFF == sqlite3.SQLITE_IOERR:
        return StorageError(f"The database cannot be read or written: {error}")
    return error


def refuse_network(path: Path, mounts: Path = Path("/proc/self/mounts")) -> None:
    """Raise `Unsupported` if a path is on a network file system, where SQLite can lose data."""
    kind, longest = "", -1
    with suppress(OSError):
        folder = path.parent.resolve()
        for line in mounts.read_text().splitlines():
            _, point, found, *_ = line.split(" ")
            point = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), point)
            if folder.is_relative_to(point) and len(point) >= longest:
                kind, longest = found, len(point)
    if _NETWORK.fullmatch(kind):
        raise Unsupported(
            f"{path} is on a network file system ({kind}), where SQLite can lose data: "
            "set PROTOSLICE_DATABASE to a file on a local disk or to PostgreSQL"
        )
