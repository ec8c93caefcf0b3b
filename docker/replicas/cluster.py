"""Two replicas behind nginx over a bucket and PostgreSQL, as in `docker/compose.s3.yaml`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.bucket import BUCKET, Gateway, options_of
from tests.deployment.nginx.front import Nginx, free_port, listening, wait_for
from tests.support.postgres import TestServer, running_postgres

GATEWAY = Path(__file__).parents[2] / ".make" / "versitygw-v1.8.0"


@dataclass
class Replica:
    """`protoslice serve` at a port of its own."""

    endpoint: str
    database: str
    log: Path
    port: int = field(default_factory=free_port)
    running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and return when it listens."""
        environment = {
            "PATH": os.environ["PATH"],
            "PROTOSLICE_STORAGE": f"s3://{BUCKET}/",
            "PROTOSLICE_DATABASE": self.database,
            "PROTOSLICE_STORAGE_OPTIONS": json.dumps(options_of(self.endpoint)),
            "PROTOSLICE_AUTH": "open",
            "PROTOSLICE_TRUSTED_PROXIES": "127.0.0.0/8",
            "PROTOSLICE_LOG_LEVEL": "error",
        }
        command = [sys.executable, "-m", "protoslice.cli", "serve", "--port", str(self.port)]
        with self.log.open("ab") as log:
            self.running = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        wait_for(lambda: listening(self.port))

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it by a signal."""
        assert self.running is not None
        self.running.send_signal(how)
        self.running.wait(60)


class Postgres:
    """The database server, which loses nothing that was committed when it is killed."""

    def __init__(self, server: TestServer) -> None:
        self._server = server

    def start(self) -> None:
        """Start it, and return when it answers; it refuses to start while processes of the killed one are left."""

        def started() -> bool:
            with suppress(subprocess.CalledProcessError):
                self._server.start()
                return True
            return False

        wait_for(started)

    def end(self, how: signal.Signals) -> None:
        """End it as a signal to its first process does."""
        assert how is signal.SIGKILL
        self._server.kill()


class Part(Protocol):
    """What can be killed and started again."""

    def start(self) -> None: ...

    def end(self, how: signal.Signals) -> None: ...


@dataclass
class Site:
    """Address of nginx, and all that is behind it."""

    url: str
    replicas: list[Replica]
    parts: dict[str, Part]


@contextmanager
def site(folder: Path) -> Iterator[Site]:
    """A running site; its bucket is empty."""
    assert GATEWAY.exists(), "build the gateway first: `make replicas` does, with Go"
    bucket = folder / "bucket"
    bucket.mkdir()
    gateway = Gateway(str(GATEWAY), bucket)
    with ExitStack() as stack:
        server = stack.enter_context(running_postgres())
        database = server.new_catalogue()
        replicas = [Replica(gateway.endpoint, database, folder / f"replica-{number}.log") for number in (1, 2)]
        front = Nginx("nginx-replicas.conf", folder, replicas[0].port, other=replicas[1].port)
        started: tuple[Part, ...] = (gateway, *replicas, front)
        for part in started:
            part.start()
            stack.callback(part.end, signal.SIGTERM)
        parts: dict[str, Part] = {
            "replica 1": replicas[0], "replica 2": replicas[1], "nginx": front, "PostgreSQL": Postgres(server),
            "bucket": gateway,
        }  # fmt: skip
        yield Site(f"http://127.0.0.1:{front.port}", replicas, parts)
