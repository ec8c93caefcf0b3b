"""Threads for work that would hold up the event loop: short calls, and long work in slices, in lanes of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

__all__ = ["SLICE", "Worker"]

T = TypeVar("T")

_INLINE: Final = 32 << 10
"""JSON of this many bytes takes the loop less time than a thread takes to answer."""

SLICE: Final = 8 << 20
"""About as many bytes as one slice of long work reads."""
_END: Final = object()


class Worker:
    """A few threads, and the loop they may call back. Half of the threads are free of long work at any time."""

    def __init__(self, threads: int) -> None:
        self.loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="protoslice-work")
        self._lanes = asyncio.Semaphore(max(1, threads // 2))

    async def run(self, call: Callable[[], T]) -> T:
        """The result of `call`, made in a thread; for calls that are short."""
        return await self.loop.run_in_executor(self._pool, call)

    async def sized(self, weight: int, call: Callable[[], T]) -> T:
        """The result of `call`, which works on about `weight` bytes of JSON: made in a thread when they are many."""
        return call() if weight <= _INLINE else await self.run(call)

    async def bulk(self, call: Callable[[], T]) -> T:
        """The result of `call`, one slice of long work, made in a thread. Slices wait for each other, in turn.

        A slice whose caller is cancelled before it begins never begins; one under way keeps its lane until its end.
        """
        await self._lanes.acquire()
        try:
            begun = self._pool.submit(call)
        except BaseException:
            self._lanes.release()
            raise
        begun.add_done_callback(self._ended)
        return await asyncio.wrap_future(begun)

    async def steps(self, work: Iterator[T]) -> AsyncGenerator[T, None]:
        """Each thing that `work` gives, made as a slice of its own. No slice begins that nobody waits for."""
        while True:
            made: object = await self.bulk(lambda: next(work, _END))
            if made is _END:
                return
            yield made  # type: ignore[misc]

    def wait_for(self, work: Coroutine[object, object, T]) -> T:
        """The result of `work`, done on the loop; for calls from a thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    async def close(self) -> None:
        """Take no more calls, and wait for those under way."""
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)

    def _ended(self, _: Future[T]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self._lanes.release)
