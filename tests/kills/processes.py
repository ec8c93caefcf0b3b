"""The services, collectors, databases, buckets and proxies that are killed, and the three profiles of them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import httpx
import psycopg
from tests.deployment.nginx.front import Nginx, free_port, wait_for
from tests.support.buckets import BUCKET, Gateway
from tests.support.postgres import TestServer
from tests.support.serve import ServiceProcess, service_process

from protoslice.database import connect
from protoslice.errors import ProtosliceError
from protoslice.storage import Storage, open_storage
from protoslice.stores.collection import collect_garbage

ROOT: Final = Path(__file__).resolve().parents[2]
PROFILES: Final = ("sqlite", "postgresql", "site")
GRACE_SECONDS: Final = 3.0
"""The seconds for which collectors let a removed store be restored; the service's setting is at least ten minutes."""
DELAY_SECONDS: Final = 4.0
"""The seconds after which collectors delete the bytes of dropped rows."""
_DOWN_SECONDS: Final = 1.5
_READY_SECONDS: Final = 60
_GATEWAY: Final = ROOT / ".make/versitygw-v1.8.0"
_PASSED_ON: Final = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
"""Environment variables that replicas receive too, so that a changed copy of the package can be tried."""


class Rows(ABC):
    """Direct access to a database's rows, without the service."""

    def __init__(self, url: str) -> None:
        self.url = url

    @abstractmethod
    def all(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement."""

    @abstractmethod
    def run(self, *statements: str) -> None:
        """Commit statements in one transaction."""

    def integrity_problems(self) -> list[object]:
        """Return the faults that the database finds in itself."""
        return []


class PostgresRows(Rows):
    """Rows in PostgreSQL."""

    def all(self, sql: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url) as connection:
            return connection.execute(sql.encode()).fetchall()

    def run(self, *statements: str) -> None:
        with psycopg.connect(self.url) as connection:
            for sql in statements:
                connection.execute(sql.encode())

    def terminate_backends(self, random: Random) -> int:
        """Terminate about half of the connections of replicas and collectors; return their number."""
        found = self.all("SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'protoslice/%'")
        pids = [pid for (pid,) in found if random.random() < 0.5]
        self.run(*(f"SELECT pg_terminate_backend({pid})" for pid in pids))
        return len(pids)


class SqliteRows(Rows):
    """Rows in a SQLite file."""

    def all(self, sql: str) -> list[tuple[Any, ...]]:
        with closing(self._connection()) as connection:
            return connection.execute(sql).fetchall()

    def run(self, *statements: str) -> None:
        with closing(self._connection()) as connection, connection:
            for sql in statements:
                connection.execute(sql)

    def integrity_problems(self) -> list[object]:
        found = self.all("PRAGMA integrity_check") + self.all("PRAGMA foreign_key_check")
        return [problem for problem in found if problem != ("ok",)]

    def _connection(self) -> sqlite3.Connection:
        return sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=30)


@dataclass(frozen=True, slots=True)
class Place:
    """The storage and the database of a service."""

    storage: str
    database: str
    options: Mapping[str, str] = field(default_factory=dict)

    def open(self) -> Storage:
        """Open the storage without the service."""
        return open_storage(self.storage, self.options)


class Replica:
    """A service that is killed over and over, and its current address."""

    def __init__(self, place: Place, port: int = 0) -> None:
        self._port = port
        self._settings = _PASSED_ON | {
            "PROTOSLICE_STORAGE": place.storage,
            "PROTOSLICE_STORAGE_OPTIONS": json.dumps(dict(place.options)),
            "PROTOSLICE_DATABASE": place.database,
            "PROTOSLICE_AUTH": "open",
            "PROTOSLICE_TRUSTED_PROXIES": "127.0.0.0/8",
            "PROTOSLICE_UPLOAD_CHECKPOINT_BYTES": "256KiB",
            "PROTOSLICE_LOG_LEVEL": "error",
        }
        self._life = ExitStack()
        self.service = self._started()

    def _started(self) -> ServiceProcess:
        return self._life.enter_context(service_process("--port", str(self._port), settings=self._settings))

    @property
    def url(self) -> str:
        """The address of the process."""
        return self.service.url

    def kill(self) -> None:
        """End the process as `kill -9` does, and start another."""
        self.service.running.kill()
        self.service.running.wait()
        self._life.close()
        self.service = self._started()

    def close(self) -> None:
        """End the process."""
        self._life.close()


class Collector:
    """A process that collects continuously, with a short grace and a short delay, and is killed over and over."""

    def __init__(self, place: Place, log: Path) -> None:
        self._command = [sys.executable, "-m", "tests.kills", "--collect", place.storage, place.database]
        self._command.append(json.dumps(dict(place.options)))
        self._log = log
        self._start()

    def _start(self) -> None:
        with self._log.open("a") as log:
            self._process = subprocess.Popen(self._command, cwd=ROOT, stdout=log)

    def kill(self) -> None:
        """End the process as `kill -9` does, and start another."""
        self.close()
        self._start()

    def close(self) -> None:
        """End the process as `kill -9` does."""
        ended = self._process.poll()
        self._process.kill()
        self._process.wait()
        if ended not in {None, -signal.SIGKILL}:
            raise AssertionError(f"a collector ended with status {ended} before it was killed")

    def counts(self) -> list[int]:
        """Return how many stores were purged, objects dropped, and objects' bytes deleted."""
        lines = [line.split() for line in self._log.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return [sum(map(int, column)) for column in zip(*lines, strict=True)] or [0, 0, 0]


async def collect_for_ever(storage: str, database: str, options: str) -> None:
    """Collect until the process is killed, and print the counts of each collection."""
    place = Place(storage, database, json.loads(options))
    rows, files = connect(database, "memory://"), place.open()
    while True:
        with suppress(ProtosliceError):  # the next collection does the work
            found = await collect_garbage(files, rows, grace_seconds=GRACE_SECONDS, delay_seconds=DELAY_SECONDS)
            print(found.stores, found.objects, found.deleted, flush=True)
        await asyncio.sleep(0.5)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault for the processes, and its share of all faults; it returns how many processes it hit."""

    name: str
    weight: float
    cause: Callable[[Random], int]


@dataclass(slots=True)
class Processes:
    """All processes of a profile."""

    place: Place
    rows: Rows
    replicas: list[Replica]
    collectors: list[Collector]
    faults: list[Fault]
    front: str | None = None
    """The address of a proxy, through which all clients connect."""
    access_log: Path | None = None

    def url(self, random: Random) -> str:
        """Return an address for a client."""
        return self.front or random.choice(self.replicas).url

    def sent_twice(self) -> set[str]:
        """Return methods and paths that the proxy sent to a second replica, because the first gave no answer."""
        lines = self.access_log.read_text().splitlines() if self.access_log else []
        return {line.split('"')[1] for line in lines if ", " in line}

    def wait_until_ready(self) -> None:
        """Return once all replicas accept requests."""
        for replica in self.replicas:
            wait_for(lambda url=replica.url: _is_ready(url), _READY_SECONDS)  # type: ignore[misc]

    def close(self) -> None:
        """End replicas and collectors; databases, buckets and proxies run until the end of `started`."""
        with ExitStack() as life:
            for replica in self.replicas:
                life.callback(replica.close)
            for collector in self.collectors:
                life.callback(collector.close)


def _is_ready(url: str) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(f"{url}/readyz", timeout=5).status_code == 200
    return False


@contextmanager
def started(profile: str, folder: Path, server: TestServer, replicas: int) -> Iterator[Processes]:
    """Start all processes of a profile.

    `sqlite` and `postgresql` share a folder. `site` is the site of `docker/compose.s3.yaml`: nginx in front of replicas
    over a bucket and PostgreSQL.
    """
    with ExitStack() as life:
        site = profile == "site"
        more: dict[str, _Restarted] = {}
        if profile == "sqlite":
            place = Place((folder / "storage").as_uri(), f"sqlite:///{folder / 'catalog.sqlite'}")
        elif profile == "postgresql":
            place = Place((folder / "storage").as_uri(), server.new_catalogue())
        else:
            assert _GATEWAY.exists(), "build the gateway first: `sh tools/programs.sh versitygw` does, with Go"
            (folder / "bucket").mkdir()
            gateway = more["bucket"] = Gateway(str(_GATEWAY), folder / "bucket")
            _run(life, gateway)
            place = Place(f"s3://{BUCKET}/", server.new_catalogue(), gateway.options)
        processes = Processes(
            place,
            SqliteRows(place.database) if profile == "sqlite" else PostgresRows(place.database),
            [Replica(place, free_port() if site else 0) for _ in range(replicas)],
            [Collector(place, folder / f"collector-{n}.log") for n in range(2)],
            [],
        )
        life.callback(processes.close)
        if site:
            first, second = (replica.service.server.port for replica in processes.replicas)
            front = more["nginx"] = Nginx("nginx-replicas.conf", folder, first, other=second)
            _run(life, front)
            processes.front, processes.access_log = f"http://127.0.0.1:{front.port}", folder / "access.log"
            more["postgresql"] = _Postgres(server)
        processes.faults = list(_faults(processes, more))
        yield processes


def _faults(processes: Processes, more: Mapping[str, _Restarted]) -> Iterator[Fault]:
    rows = processes.rows

    def expire(_: Random) -> int:
        rows.run("UPDATE objects SET unpublished = 0 WHERE unpublished IS NOT NULL")
        return 1

    yield Fault("replicas", 4, lambda random: _kill(random.choice(processes.replicas)))
    yield Fault("collectors", 1.5, lambda random: _kill(random.choice(processes.collectors)))
    yield Fault("expiries", 1, expire)
    if isinstance(rows, PostgresRows):
        yield Fault("backends", 3.5, rows.terminate_backends)
    for name, part in more.items():
        yield Fault(name, 3, lambda _, part=part: _restart(part))  # type: ignore[misc]


def _kill(process: Replica | Collector) -> int:
    process.kill()
    return 1


class _Postgres:
    """The database server, which loses no committed data when it is killed."""

    def __init__(self, server: TestServer) -> None:
        self._server = server

    def start(self) -> None:
        """Start the server; it refuses to start while processes of the killed server are left."""

        def is_started() -> bool:
            with suppress(subprocess.CalledProcessError):
                self._server.start()
                return True
            return False

        wait_for(is_started)

    def end(self, how: signal.Signals) -> None:
        """Kill the server's first process by `kill -9`."""
        assert how is signal.SIGKILL
        self._server.kill()


_Restarted = Gateway | Nginx | _Postgres


def _run(life: ExitStack, part: Gateway | Nginx) -> None:
    part.start()
    life.callback(part.end, signal.SIGTERM)


def _restart(part: _Restarted) -> int:
    part.end(signal.SIGKILL)
    time.sleep(_DOWN_SECONDS)
    part.start()
    return 1
