"""Event loop in a daemon thread, for callers that block."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")


class Background:
    """Event loop that starts with the first call and runs until the process ends; threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        # A forked child has no thread of the parent, and perhaps a lock that nobody will release.
        os.register_at_fork(after_in_child=self._forget)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Result of the coroutine `work`; an interrupt of the caller cancels the coroutine. Blocks."""
        begun = asyncio.run_coroutine_threadsafe(work, self._started())
        try:
            return begun.result()
        except BaseException:
            begun.cancel()
            raise

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="protoslice-background", daemon=True).start()
            return self._loop

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._loop = None


BACKGROUND: Final = Background()
"""The loop of this process."""
