"""Thread pools: an `Executor` for each storage that blocks, and one `Worker` for computations of the stores.

They are separate because a worker's thread may wait for a storage (`Worker.wait_for`): in a shared pool, such threads
could occupy all threads that the storage needs. The client uses a `DaemonPool`, whose threads do not delay the end of a
program.
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
"""Data of this size is handled faster on the loop than by a thread."""

SLICE: Final = 8 << 20
"""Approximate number of bytes that one slice of long work reads."""
_END: Final = object()


class Spent:
    """Processor time of threads of workers, in seconds."""

    def __init__(self) -> None:
        self.seconds = 0.0


_SPENT: ContextVar[Spent | None] = ContextVar("spent", default=None)


@contextmanager
def counted_work() -> Iterator[Spent]:
    """Count the work of workers for this task, and for tasks that it starts."""
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
    """Pool of `threads` threads for blocking calls; further callers wait."""

    def __init__(self, threads: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"protoslice-{name}")

    async def run(self, call: Callable[[], T]) -> T:
        """Return the result of `call`, run in a thread; raise `StorageUnavailable` after `close`.

        Cancellation ends the wait, but not a call that has begun.
        """
        try:
            waiting = asyncio.get_running_loop().run_in_executor(self._pool, call)
        except RuntimeError:
            raise StorageUnavailable("The storage is closed") from None
        return await waiting

    async def close(self) -> None:
        """Refuse new calls and wait for running ones, which may hold descriptors."""
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)

    def abandon(self) -> None:
        """Refuse new calls and leave running ones, which may hang, to their threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class Worker(Executor):
    """Pool of threads that may call the event loop.

    Long work takes at most half of the threads, and always one, so that short calls find a thread.
    """

    def __init__(self, threads: int) -> None:
        super().__init__(threads, "work")
        self.loop = asyncio.get_running_loop()
        self._lanes = asyncio.Semaphore(max(1, threads // 2))

    async def run(self, call: Callable[[], T]) -> T:
        """See `Executor.run`."""
        return await super().run(_counted(call))

    async def run_if_large(self, weight: int, call: Callable[[], T]) -> T:
        """Return the result of `call`, which handles about `weight` bytes; run it in a thread when they are many."""
        return call() if weight <= _INLINE else await self.run(call)

    async def run_long(self, call: Callable[[], T]) -> T:
        """Return the result of `call`, one slice of long work, run in a thread. Slices take turns.

        A slice whose caller is cancelled before its start never runs; a started slice keeps its lane until the end.
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
        """Yield the items of the iterator `work`; each is made by one slice when the caller asks for it."""
        while True:
            made: object = await self.run_long(lambda: next(work, _END))
            if made is _END:
                return
            yield made  # type: ignore[misc]

    async def finish(self, job: Job[T]) -> T:
        """Return the result of `job`, whose slices take turns as those of `run_long` do."""

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
        """Return the result of the coroutine `work`, run on the loop; for callers in a thread, which it blocks."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def _ended(self, _: Future[T]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self._lanes.release)
