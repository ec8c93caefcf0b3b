"""Thread pool of bounded size for blocking calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from protoslice.errors import StorageUnavailable

WORKERS: Final = 16

T = TypeVar("T")


class Threads:
    """Thread pool for blocking calls; callers beyond the number of threads wait."""

    def __init__(self, workers: int = WORKERS) -> None:
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="protoslice-storage")

    async def run(self, call: Callable[[], T]) -> T:
        """Result of `call`, run in a thread; `StorageUnavailable` after `close`.

        Cancellation ends the wait, not a call that has begun.
        """
        try:
            waiting = asyncio.get_running_loop().run_in_executor(self._pool, call)
        except RuntimeError:
            raise StorageUnavailable("this storage has been closed") from None
        return await waiting

    async def close(self) -> None:
        """Refuse new calls and wait for those under way, which may hold descriptors."""
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)
