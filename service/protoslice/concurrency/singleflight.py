"""Making things once, however many ask for them at the same time, and keeping the last ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from protoslice.concurrency.lru import LruCache

__all__ = ["CachedFlight", "SingleFlight"]

K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True)
class _Making(Generic[V]):
    """Work under way, and how many callers wait for its result."""

    task: asyncio.Task[V]
    waiting: int = 0


class SingleFlight(Generic[K, V]):
    """Concurrent callers for a key share one task; results are not cached."""

    def __init__(self, *, stops: bool = False) -> None:
        """With `stops`, a task that no caller waits for any more is cancelled; else it runs to its end."""
        self._stops = stops
        self._making: dict[K, _Making[V]] = {}

    async def get(self, key: K, make: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """The result of `make`, or of the call for `key` that is under way."""
        making = self._making.get(key)
        if making is None:
            making = self._making[key] = _Making(asyncio.create_task(make()))
            making.task.add_done_callback(lambda done: self._made(key, done))
        making.waiting += 1
        try:
            return await asyncio.shield(making.task)
        finally:
            making.waiting -= 1
            if self._stops and not making.waiting and not making.task.done():
                making.task.cancel()
                self._drop(key, making.task)  # the next caller begins anew

    async def idle(self) -> None:
        """Wait until nothing is being made, whatever comes of it."""
        while self._making:
            await asyncio.gather(*(making.task for making in self._making.values()), return_exceptions=True)

    def _made(self, key: K, done: asyncio.Task[V]) -> None:
        self._drop(key, done)
        if not done.cancelled():
            done.exception()  # callers are told; that none waits any more is no fault

    def _drop(self, key: K, task: asyncio.Task[V]) -> None:
        if (making := self._making.get(key)) is not None and making.task is task:
            del self._making[key]


class CachedFlight(Generic[K, V]):
    """The things asked for last, up to a number of them and of bytes: each is made once while it is kept."""

    def __init__(self, *, most: int, room: int, stops: bool = False) -> None:
        """`stops` is that of `SingleFlight`."""
        self._recent: LruCache[K, V] = LruCache(most=most, room=room)
        self._once: SingleFlight[K, V] = SingleFlight(stops=stops)

    async def get(self, key: K, make: Callable[[], Coroutine[Any, Any, tuple[V, int]]]) -> V:
        """What is kept under `key`, else what `make` gives: the thing, and about how many bytes it takes to keep it."""
        found = self._recent.get(key)
        return found if found is not None else await self._once.get(key, lambda: self._made(key, make))

    async def _made(self, key: K, make: Callable[[], Coroutine[Any, Any, tuple[V, int]]]) -> V:
        value, weight = await make()
        self._recent.put(key, value, weight)
        return value
