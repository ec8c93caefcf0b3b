"""Single flight: concurrent calls for one key share one execution."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True)
class _Making(Generic[V]):
    """Task under way, and the number of callers that wait for its result."""

    task: asyncio.Task[V]
    cancellable: bool
    waiting: int = 0


class SingleFlight(Generic[K, V]):
    """Concurrent callers for a key share one task; results are not cached."""

    def __init__(self) -> None:
        self._making: dict[K, _Making[V]] = {}

    async def get(self, key: K, make: Callable[[], Coroutine[Any, Any, V]], *, cancellable: bool = False) -> V:
        """Return the result of the task for `key` under way, or else of a new task that runs `make`.

        A `cancellable` task is cancelled when its last caller leaves; any other one runs to the end.
        """
        making = self._making.get(key)
        if making is None:
            making = self._making[key] = _Making(asyncio.create_task(make()), cancellable)
            making.task.add_done_callback(lambda done: self._made(key, done))
        making.waiting += 1
        try:
            return await asyncio.shield(making.task)
        finally:
            making.waiting -= 1
            if making.cancellable and not making.waiting and not making.task.done():
                making.task.cancel()
                self._drop(key, making.task)  # the next caller starts a new task

    async def idle(self) -> None:
        """Wait until no task is under way; errors of tasks are ignored."""
        while self._making:
            await asyncio.gather(*(making.task for making in self._making.values()), return_exceptions=True)

    def _made(self, key: K, done: asyncio.Task[V]) -> None:
        self._drop(key, done)
        if not done.cancelled():
            done.exception()  # retrieved for asyncio; without callers a failure is no fault

    def _drop(self, key: K, task: asyncio.Task[V]) -> None:
        if (making := self._making.get(key)) is not None and making.task is task:
            del self._making[key]
