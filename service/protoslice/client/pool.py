"""Threads that work side by side, and that nobody has to wait for who wants to leave.

The executors of the standard library are waited for when a program ends, however long a silent service keeps them.
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
"""What is left of their work they may take so long to drop, until they are left to themselves."""

T = TypeVar("T")


class _Job(Generic[T]):
    """Work, and where its result goes."""

    def __init__(self, work: Callable[[], T], coming: Future[T]) -> None:
        self._work = work
        self._coming = coming

    def run(self) -> None:
        """Do the work, unless it was cancelled."""
        if not self._coming.set_running_or_notify_cancel():
            return
        try:
            self._coming.set_result(self._work())
        except BaseException as error:  # whoever asks for the result is to know
            self._coming.set_exception(error)
            del self  # else the error, its traceback and this frame hold each other, and all that the work held


class DaemonPool:
    """At most `size` threads, each begun when there is work for it. At the end, work that is not begun is dropped."""

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._threads: list[Thread] = []
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._ended = False

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """The result of `work`, once a thread has done it; `work` that is cancelled before is left out."""
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
            del job  # what it came to is others' while this waits for the next

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.end()

    def end(self) -> None:
        """Drop work that is not begun, and end the threads; one that takes long over its work is left to itself."""
        self._ended = True
        for _ in self._threads:
            self._jobs.put(None)
        end = time.monotonic() + _GRACE_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
