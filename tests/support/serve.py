"""Ways to start a service: an application without a socket, a server in a thread, `protoslice serve` in a process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.live import LiveServer, live_server

from protoslice.server.app import Application, create_app
from protoslice.server.settings import Settings
from protoslice.server.transport.protocol import Answerer
from protoslice.server.transport.run import uvicorn_config

PEAK = "VmHWM"
RESIDENT = "VmRSS"
RESET_PEAK = "5"


@asynccontextmanager
async def open_app(**settings: Any) -> AsyncIterator[Application]:
    """Open an application over memory, without a socket; `tests.support.asgi.ask` sends it requests."""
    app = create_app(Settings(**{"storage": "memory://", "space_watermark_bytes": 0, **settings}))
    app.middleware_stack = app.build_middleware_stack()
    await app.services.open()
    try:
        yield app
    finally:
        await app.services.close()


@contextmanager
def serve(*, app: Application | None = None, answerer: Answerer | None = None, **settings: Any) -> Iterator[LiveServer]:
    """Serve `app`, or a new application with these settings, in a thread; over memory if they name no storage."""
    app = app or create_app(Settings(**{"storage": "memory://", **settings}))
    with live_server(uvicorn_config(app, app.services.settings, answerer=answerer)) as live:
        yield live


@dataclass(frozen=True, slots=True)
class ServiceProcess:
    """A running service."""

    running: subprocess.Popen[str]
    server: LiveServer
    log: Path
    """Path of the process's standard error."""

    @property
    def url(self) -> str:
        """The address, without a slash at the end."""
        return self.server.url

    def forget_peak(self) -> None:
        """Count the peak of resident memory from here on."""
        for pid in self._family():
            with suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text(RESET_PEAK)

    def peak(self) -> int:
        """The most bytes that were resident since the peak was forgotten: of the service and of its workers."""
        return sum(_bytes(pid, PEAK) for pid in self._family())

    def resident(self) -> int:
        """Bytes that are resident now: of the service and of its workers."""
        return sum(_bytes(pid, RESIDENT) for pid in self._family())

    def _family(self) -> list[int]:
        """The process and its children."""
        pid = self.running.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return [pid, *map(int, children.split())]


@contextmanager
def service_process(*arguments: str, settings: Mapping[str, str] | None = None) -> Iterator[ServiceProcess]:
    """`protoslice serve` on a free port of the loopback; `settings` are variables of the environment."""
    command = [sys.executable, "-m", "protoslice.cli", "serve", "--port", "0", *arguments]
    with tempfile.NamedTemporaryFile("w", suffix=".log") as log:
        running = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env={"PATH": os.environ["PATH"], **(settings or {})}
        )
        try:
            yield ServiceProcess(running, _address(running, Path(log.name)), Path(log.name))
        finally:
            running.terminate()
            try:
                running.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                running.kill()
                running.communicate()


def _address(running: subprocess.Popen[str], log: Path) -> LiveServer:
    assert running.stdout is not None
    line = running.stdout.readline().strip()
    if not line.startswith("http://"):
        raise RuntimeError(f"the service did not start: {log.read_text()}")
    host, _, port = line.removeprefix("http://").rpartition(":")
    return LiveServer(host.strip("[]"), int(port))


def _bytes(pid: int, what: str) -> int:
    """Bytes that the system tells of a process; 0 for one that is gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(what):
                return int(line.split()[1]) << 10
    return 0
