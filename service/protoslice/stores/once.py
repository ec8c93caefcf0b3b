"""Making things once, however many ask for them at the same time, and keeping the last ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from protoslice.stores.recent import Recent

__all__ = ["Kept", "Once"]

K = TypeVar("K")
V = TypeVar("V")


class Once(Generic[K, V]):
    """What is being made, by key. Nothing is kept of what has been made."""

    def __init__(self) -> None:
        self._making: dict[K, asyncio.Task[V]] = {}

    async def get(self, key: K, make: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """What `make` gives, or another call for `key` that has not ended yet. Who stops waiting does not stop it."""
        making = self._making.get(key)
        if making is None:
            making = self._making[key] = asyncio.create_task(make())
            making.add_done_callback(lambda done: self._made(key, done))
        return await asyncio.shield(making)

    async def idle(self) -> None:
        """Wait until nothing is being made, whatever comes of it."""
        while self._making:
            await asyncio.gather(*self._making.values(), return_exceptions=True)

    def _made(self, key: K, done: asyncio.Task[V]) -> None:
        del self._making[key]
        if not done.cancelled():
            done.exception()  # whoever waits is told; that nobody does any more is no fault


class Kept(Generic[K, V]):
    """The things asked for last, up to a number of them and of bytes: each is made once while it is kept."""

    def __init__(self, *, most: int, room: int) -> None:
        self._recent: Recent[K, V] = Recent(most=most, room=room)
        self._once: Once[K, V] = Once()

    async def get(self, key: K, make: Callable[[], Coroutine[Any, Any, tuple[V, int]]]) -> V:
        """What is kept under `key`, else what `make` gives: the thing, and about how many bytes it takes to keep it."""
        found = self._recent.get(key)
        return found if found is not None else await self._once.get(key, lambda: self._made(key, make))

    async def _made(self, key: K, make: Callable[[], Coroutine[Any, Any, tuple[V, int]]]) -> V:
        value, weight = await make()
        self._recent.put(key, value, weight)
        return value
