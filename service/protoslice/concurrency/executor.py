"""Thread pools: an `Executor` for each storage that blocks, and one `Worker` for computations on stores.

The pools are separate because a thread of the worker may wait for a storage (`Worker.wait_for`). In a shared pool,
such threads could occupy all threads that the storage needs. The client uses a `DaemonPool`, whose threads do not
delay the end of a program.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from time import thread_time
from typing import Final, TypeVar

from protoslice.concurrency import Job
from protoslice.errors import StorageUnavailable

T = TypeVar("T")

_INLINE: Final = 32 << 10
"""Largest number of bytes for which the event loop itself is faster than a thread."""

SLICE: Final = 8 << 20
"""Approximate number of bytes that one slice of long work reads."""
_END: Final = object()


class Spent:
    """The processor time that threads of workers have used, in seconds."""

    def __init__(self) -> None:
        self.seconds = 0.0


_SPENT: ContextVar[Spent | None] = ContextVar("spent", default=None)


@contextmanager
def counted_work() -> Iterator[Spent]:
    """Count the processor time of workers for this task, and for tasks that this task starts."""
    spent = Spent()
    token = _SPENT.set(spent)
    try:
        yield spent
    finally:
        _SPENT.reset(token)


def _counted(call: Callable[[], T]) -> Callable[[], T]:
    spent = _SPENT.get()
    if spent is None:
        return call

    def counted() -> T:
        began = thread_time()
        try:
            return call()
        finally:
            spent.seconds += thread_time() - began

    return counted


class Executor:
    """A pool of `threads` threads for blocking calls; further calls wait for a free thread."""

    def __init__(self, threads: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"protoslice-{name}")

    async def run(self, call: Callable[[], T]) -> T:
        """Return the result of `call`, which runs in a thread; raise `StorageUnavailable` after `close`.

        A cancelled caller stops waiting, but a call that has begun continues.
        """
        try:
            waiting = asyncio.get_running_loop().run_in_executor(self._pool, call)
        except RuntimeError:
            raise StorageUnavailable("The storage is closed") from None
        return await waiting

    async def close(self) -> None:
        """Refuse new calls, and wait for running calls, which may use file descriptors."""
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)

    def abandon(self) -> None:
        """Refuse new calls, but do not wait for running calls, which may never end."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class Worker(Executor):
    """A pool of threads that may call the event loop.

    Long work uses at most half of the threads, but at least one, so that short calls find a free thread.
    """

    def __init__(self, threads: int) -> None:
        super().__init__(threads, "work")
        self.loop = asyncio.get_running_loop()
        self._lanes = asyncio.Semaphore(max(1, threads // 2))

    async def run(self, call: Callable[[], T]) -> T:
        """Return the result of `call` as `Executor.run` does, and count its processor time."""
        return await super().run(_counted(call))

    async def run_if_large(self, weight: int, call: Callable[[], T]) -> T:
        """Return the result of `call`, which handles about `weight` bytes; use a thread only for many bytes."""
        return call() if weight <= _INLINE else await self.run(call)

    async def run_long(self, call: Callable[[], T]) -> T:
        """Return the result of `call`, a slice of long work, which runs in a thread; slices take turns.

        If the caller is cancelled before its slice starts, the slice never runs. A started slice runs to its end.
        """
        await self._lanes.acquire()
        try:
            begun = self._pool.submit(_counted(call))
        except BaseException:
            self._lanes.release()
            raise
        begun.add_done_callback(self._ended)
        return await asyncio.wrap_future(begun)

    async def iterate(self, work: Iterator[T]) -> AsyncGenerator[T, None]:
        """Yield the items of the iterator `work`; each item is computed in a thread when the caller needs it."""
        while True:
            made: object = await self.run_long(lambda: next(work, _END))
            if made is _END:
                return
            yield made  # type: ignore[misc]

    async def finish(self, job: Job[T]) -> T:
        """Return the result of `job`, whose slices run in threads and take turns, as in `run_long`."""

        def run() -> StopIteration | None:
            try:
                next(job)
            except StopIteration as end:
                return end
            return None

        while (end := await self.run_long(run)) is None:
            pass
        found: T = end.value
        return found

    def wait_for(self, work: Coroutine[object, object, T]) -> T:
        """Run the coroutine `work` on the event loop, and return its result; callers must be in a thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def _ended(self, _: Future[T]) -> None:
        with suppress(RuntimeError):  # the loop is already closed
            self.loop.call_soon_threadsafe(self._lanes.release)
