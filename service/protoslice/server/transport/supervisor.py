"""Worker processes that serve one listening socket. A supervisor starts, replaces and ends them.

The supervisor forks before it has any thread, so that it replaces a dead worker within milliseconds. All workers accept
from one queue of connections. When a worker dies, other workers accept the waiting connections. The supervisor passes
signals on to each worker through a pipe, so that a signal to the whole group counts once. A worker sees the end of the
pipe if the supervisor is killed.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_PATIENCE: Final = 3
"""The number of signals after which the supervisor kills its workers."""
_YOUNG_SECONDS: Final = 1.0
"""The age in seconds of a young worker. If a young worker dies, a pause of this length precedes its replacement."""
_CLOSED: Final = b"t"
_OPEN: Final = b"o"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerLink:
    """The link of a worker to its supervisor and to the other workers."""

    number: int
    workers: int
    folder: Path
    """The private directory that all workers share."""
    control_fd: int
    """The descriptor that receives a byte for each signal to the supervisor.

    The end of its data means that the supervisor died.
    """
    started_fd: int
    """The descriptor to which the worker writes one byte, the mode of access, when it serves."""

    def report_started(self, *, closed: bool) -> None:
        """Report to the supervisor that this worker serves, and whether requests need a token."""
        with suppress(OSError):
            os.write(self.started_fd, _CLOSED if closed else _OPEN)
        os.close(self.started_fd)


@dataclass(frozen=True, slots=True)
class _Running:
    """A worker that was started: its number, its pipes, and its start time."""

    number: int
    control_fd: int
    started_fd: int
    since: float


class Supervisor:
    """The supervisor. It starts `workers` processes that call `serve`, and replaces them until a signal."""

    def __init__(
        self,
        workers: int,
        serve: Callable[[WorkerLink], None],
        *,
        on_ready: Callable[..., None],
        on_signal: Callable[[], None],
    ) -> None:
        """Call `on_ready(closed=…)` once all workers serve, and `on_signal` for each signal that ends the service."""
        self._count = workers
        self._serve = serve
        self._on_ready = on_ready
        self._on_signal = on_signal
        self._running: dict[int, _Running] = {}
        self._signals: list[int] = []
        self._closed = True
        self._folder = Path()

    def run(self) -> None:
        """Run the workers.

        In the supervisor, return when all workers have ended. If a signal arrived, end this process by that signal
        instead. In a worker, return when the worker has served. Raise `SystemExit` with the status of a worker that
        cannot start.
        """
        own = os.getpid()
        self._folder = Path(tempfile.mkdtemp(prefix="protoslice-"))
        handlers = {number: signal.signal(number, self._signalled) for number in _SIGNALS}
        try:
            link = self._start() or self._watch()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            if os.getpid() == own:
                shutil.rmtree(self._folder, ignore_errors=True)
        if link is not None:
            self._serve(link)
        elif self._signals:
            _end_by(self._signals[0])

    def _start(self) -> WorkerLink | None:
        """Start all workers.

        The first worker starts alone, so that a storage that cannot be opened is reported once.
        """
        for number in range(self._count):
            link = self._spawn(number)
            if link is not None:
                return link
            self._await_start(number)
        if not self._signals:
            self._on_ready(closed=self._closed)
        return None

    def _await_start(self, number: int) -> None:
        """Wait until the worker serves. Raise `SystemExit` if the worker ends first, unless a signal has arrived."""
        pid, worker = next(item for item in self._running.items() if item[1].number == number)
        started = os.read(worker.started_fd, 1)
        self._closed = started != _OPEN
        if started or self._signals:
            return
        _, status = os.waitpid(pid, 0)
        self._forget(pid)
        self.signal_workers()
        while self._running:
            self._forget(os.waitpid(-1, 0)[0])
        sys.exit(max(1, os.waitstatus_to_exitcode(status)))

    def _watch(self) -> WorkerLink | None:
        """Replace workers that end, until a signal.

        In a worker, return its link. In the supervisor, return None when all workers have ended.
        """
        while self._running:
            pid, status = os.waitpid(-1, 0)
            ended = self._forget(pid)
            if ended is None or self._signals:
                continue
            _log.error("worker %d stopped (%s), starting a new one", ended.number, _explained(status))
            if time.monotonic() - ended.since < _YOUNG_SECONDS:
                time.sleep(_YOUNG_SECONDS)
            link = self._spawn(ended.number)
            if link is not None:
                return link
        return None

    def _spawn(self, number: int) -> WorkerLink | None:
        """Fork a worker unless a signal has arrived. In the worker, return its link; in the supervisor, return None."""
        with _without_signals():
            if self._signals:
                return None
            (control_read, control_write), (started_read, started_write) = os.pipe(), os.pipe()
            pid = os.fork()
            if pid:
                os.close(control_read)
                os.close(started_write)
                self._running[pid] = _Running(number, control_write, started_read, time.monotonic())
                return None
            os.close(control_write)
            os.close(started_read)
            for other in list(self._running):
                self._forget(other)
            return WorkerLink(number, self._count, self._folder, control_read, started_write)

    def _forget(self, pid: int) -> _Running | None:
        worker = self._running.pop(pid, None)
        if worker is not None:
            os.close(worker.control_fd)
            os.close(worker.started_fd)
        return worker

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(number)
        self._on_signal()
        self.signal_workers()
        if len(self._signals) >= _PATIENCE:
            for pid in self._running:
                os.kill(pid, signal.SIGKILL)

    def signal_workers(self) -> None:
        """Pass a signal on to all workers, so that the workers end."""
        for worker in self._running.values():
            with suppress(OSError):
                os.write(worker.control_fd, b"x")


def _end_by(number: int) -> None:
    """End this process by the signal, as supervisors of services expect."""
    signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    signal.raise_signal(number)


def _explained(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"exit status {code}" if code >= 0 else signal.Signals(-code).name


@contextmanager
def _without_signals() -> Iterator[None]:
    """Block signals.

    A signal that arrives after a fork, but before the worker is recorded, would not reach the worker.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
