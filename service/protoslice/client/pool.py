"""Pool of daemon threads, which a program can leave without waiting.

Executors of the standard library make a program wait at its end, however long a silent service keeps their threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

__all__ = ["DaemonPool"]

_GRACE_SECONDS: Final = 1.0
"""Seconds that `end` waits for threads; later ones are left alone."""

T = TypeVar("T")


class _Job(Generic[T]):
    """Work and the future of its result."""

    def __init__(self, work: Callable[[], T], coming: Future[T]) -> None:
        self._work = work
        self._coming = coming

    def run(self) -> None:
        """Run the work, unless it was cancelled."""
        if not self._coming.set_running_or_notify_cancel():
            return
        try:
            self._coming.set_result(self._work())
        except BaseException as error:  # raised again by the future's `result`
            self._coming.set_exception(error)
            del self  # else the error, its traceback and this frame keep each other alive, with all the work's data


class DaemonPool:
    """Pool of at most `size` threads, each started on demand.

    The end of the pool drops work that has not begun.
    """

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._threads: list[Thread] = []
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._ended = False

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Future of `work`; cancelled work that has not begun never runs."""
        coming: Future[T] = Future()
        self._jobs.put(_Job(work, coming).run)
        if len(self._threads) < self._size:
            self._threads.append(Thread(target=self._work, name=self._name, daemon=True))
            self._threads[-1].start()
        return coming

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if not self._ended:
                job()
            del job  # releases its result while waiting for the next job

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.end()

    def end(self) -> None:
        """Drop work that has not begun and end the threads; a thread still busy after a second is left alone."""
        self._ended = True
        for _ in self._threads:
            self._jobs.put(None)
        end = time.monotonic() + _GRACE_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
