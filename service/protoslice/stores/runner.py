"""Threads for work that would hold up the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

__all__ = ["Worker"]

T = TypeVar("T")

_INLINE: Final = 32 << 10
"""JSON of this many bytes takes the loop less time than a thread takes to answer."""


class Worker:
    """A few threads, and the loop they may call back."""

    def __init__(self, threads: int) -> None:
        self.loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="protoslice-work")

    async def run(self, call: Callable[[], T]) -> T:
        """The result of `call`, made in a thread."""
        return await self.loop.run_in_executor(self._pool, call)

    async def sized(self, weight: int, call: Callable[[], T]) -> T:
        """The result of `call`, which works on about `weight` bytes of JSON: made in a thread when they are many."""
        return call() if weight <= _INLINE else await self.run(call)

    def wait_for(self, work: Coroutine[object, object, T]) -> T:
        """The result of `work`, done on the loop; for calls from a thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    async def close(self) -> None:
        """Take no more calls, and wait for those under way."""
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)
