"""Blocking calls off the event loop, a bounded number at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from protoslice.errors import StorageUnavailable

WORKERS: Final = 16

T = TypeVar("T")


class Threads:
    """A few threads for blocking calls; more callers than threads wait their turn."""

    def __init__(self, workers: int = WORKERS) -> None:
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="protoslice-storage")

    async def run(self, call: Callable[[], T]) -> T:
        """The result of `call`; cancelling stops the waiting, not a call that has begun."""
        try:
            waiting = asyncio.get_running_loop().run_in_executor(self._pool, call)
        except RuntimeError:
            raise StorageUnavailable("this storage has been closed") from None
        return await waiting

    async def close(self) -> None:
        """Take no more calls, and wait for those under way: they may hold descriptors."""
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)
