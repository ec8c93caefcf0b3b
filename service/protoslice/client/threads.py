"""A pool of daemon threads, and concurrent transfers whose bytes arrive in order.

Daemon threads do not delay the end of a program. With an executor of the standard library, a program waits at its end
for all threads, even if a service does not respond to them.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, Final, Generic, TypeVar

from protoslice.errors import InvalidInput
from protoslice.sources.source import ClosedAtEnd

_GRACE_SECONDS: Final = 1.0
"""Seconds that `close` waits for threads to end. Threads that take longer are left running."""

T = TypeVar("T")


class _Job(Generic[T]):
    """A function to run, and the future of its result."""

    def __init__(self, work: Callable[[], T], coming: Future[T]) -> None:
        self._work = work
        self._coming = coming

    def run(self) -> None:
        """Run the function, unless its future was cancelled."""
        if not self._coming.set_running_or_notify_cancel():
            return
        try:
            self._coming.set_result(self._work())
        except BaseException as error:  # raised again by the future's `result`
            self._coming.set_exception(error)
            del self  # break the reference cycle of error, traceback and frame, which would keep the data in memory

    def drop(self, error: Exception) -> None:
        """Raise `error` in the caller that waits for the result, instead of running the function."""
        if self._coming.set_running_or_notify_cancel():
            self._coming.set_exception(error)


class DaemonPool(ClosedAtEnd):
    """A pool of at most `size` daemon threads, each started on demand.

    `close` drops work that has not begun; the futures of dropped work raise `InvalidInput`.
    """

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._ended = False
        self._begin()

    def _begin(self) -> None:
        self._threads: list[Thread] = []
        self._jobs: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._lock = Lock()
        self._process = os.getpid()

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Schedule `work` and return the future of its result. If the future is cancelled early, `work` never runs.

        Raise `InvalidInput` after `close`.
        """
        coming: Future[T] = Future()
        if self._process != os.getpid():  # threads do not survive a fork
            self._begin()
        with self._lock:  # no work may be queued after `close`, because no thread would run it
            if self._ended:
                raise self._closed()
            self._jobs.put(_Job(work, coming))
            if len(self._threads) < self._size:
                self._threads.append(Thread(target=self._work, name=self._name, daemon=True))
                self._threads[-1].start()
        return coming

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run()
            del job  # release the result before waiting for the next job

    def close(self) -> None:
        """Drop work that has not begun, and end the threads. Do not wait longer than one second for busy threads."""
        with self._lock:
            self._ended = True
        with suppress(Empty):
            while (job := self._jobs.get_nowait()) is not None:
                job.drop(self._closed())
        for _ in self._threads:
            self._jobs.put(None)
        end = time.monotonic() + _GRACE_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _closed(self) -> InvalidInput:
        return InvalidInput(f"{self._name} is closed; create a new one")


Transfer = Callable[[threading.Event], Iterator[bytes]]
"""A function that yields pieces of bytes in a thread. It must end soon after the event is set."""


def in_order(transfers: Iterable[Transfer], parallel: int) -> Generator[bytes, None, None]:
    """Run transfers concurrently, and yield the pieces of one transfer after the other.

    To bound memory, at most `2 * parallel` transfers are started before their pieces are consumed. If a transfer fails,
    or the caller closes the generator, the other transfers are stopped.
    """
    waiting: deque[_PieceQueue] = deque()
    stop = threading.Event()
    with DaemonPool(parallel, "protoslice-transfer") as pool:
        try:
            for transfer in transfers:
                queue = _PieceQueue()
                pool.submit(partial(queue.fill, transfer, stop))
                waiting.append(queue)
                if len(waiting) >= 2 * parallel:
                    yield from waiting.popleft()
            while waiting:
                yield from waiting.popleft()
        finally:
            stop.set()


class _PieceQueue:
    """A queue that carries the pieces of one transfer from its thread to the consumer."""

    def __init__(self) -> None:
        self._pieces: SimpleQueue[bytes | BaseException | None] = SimpleQueue()

    def fill(self, transfer: Transfer, stop: threading.Event) -> None:
        try:
            for piece in transfer(stop):
                self._pieces.put(piece)
            self._pieces.put(None)
        except BaseException as error:  # raised again in the consumer
            self._pieces.put(error)

    def __iter__(self) -> Iterator[bytes]:
        while (piece := self._pieces.get()) is not None:
            if isinstance(piece, BaseException):
                try:
                    raise piece
                finally:
                    del piece  # avoid a reference cycle of the error and this frame
            yield piece
