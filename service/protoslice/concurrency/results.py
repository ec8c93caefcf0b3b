"""Results of costly work: kept in a bounded cache, and computed once for all waiting callers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True)
class _Making(Generic[V]):
    """Running task, and the number of callers that wait for its result."""

    task: asyncio.Task[V]
    cancellable: bool
    waiting: int = 0


class SingleFlight(Generic[K, V]):
    """Concurrent callers for a key share one task; results are not cached."""

    def __init__(self) -> None:
        self._making: dict[K, _Making[V]] = {}

    async def get(self, key: K, make: Callable[[], Coroutine[Any, Any, V]], *, cancellable: bool = False) -> V:
        """Return the result of the running task for `key`, or else of a new task that runs `make`.

        A `cancellable` task is cancelled when its last caller leaves; any other task runs to the end.
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
        """Wait until no task is running; errors of tasks are ignored."""
        while self._making:
            await asyncio.gather(*(making.task for making in self._making.values()), return_exceptions=True)

    def _made(self, key: K, done: asyncio.Task[V]) -> None:
        self._drop(key, done)
        if not done.cancelled():
            done.exception()  # retrieved for asyncio; without callers a failure is no fault

    def _drop(self, key: K, task: asyncio.Task[V]) -> None:
        if (making := self._making.get(key)) is not None and making.task is task:
            del self._making[key]


class LruCache(Generic[K, V]):
    """Cache of at most `most` entries and `room` bytes, which evicts the least recently used.

    The newest entry stays even if it is too large, so that the most costly result is not computed for each request.
    """

    def __init__(self, *, most: int, room: int) -> None:
        self._most = most
        self._room = room
        self._weight = 0
        self._kept: dict[K, tuple[V, int]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def weight(self) -> int:
        """Weight of all entries in bytes."""
        return self._weight

    def values(self) -> Iterator[V]:
        """Return all values, the most recently used last."""
        return (value for value, _ in self._kept.values())

    def get(self, key: K) -> V | None:
        """Return the value under `key`, marked as most recently used; None when absent."""
        kept = self._kept.pop(key, None)
        if kept is None:
            return None
        self._kept[key] = kept
        return kept[0]

    def put(self, key: K, value: V, weight: int) -> None:
        """Keep `value` of `weight` bytes under `key`."""
        self.drop(key)
        self._kept[key] = value, weight
        self._weight += weight
        while len(self._kept) > 1 and (self._weight > self._room or len(self._kept) > self._most):
            self.drop(next(iter(self._kept)))

    def drop(self, key: K) -> None:
        """Remove the entry of `key`, if any."""
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._weight -= kept[1]


Key = tuple[Hashable, ...]
"""Owner of a result, such as the row of a store; its kind; and parameters."""
_ENTRY: Final = 1 << 10
"""Bytes of memory that a result takes in addition to its weight, about."""


class Results:
    """Results by key, of at most `max_bytes` bytes together; the least recently used are evicted first.

    The newest result of each kind stays as long as anything of its owner does, and the owner that was used last stays,
    even if it is too large, so that the most costly result is not computed for each request.
    """

    def __init__(self, max_bytes: int) -> None:
        self.weight = 0
        """Bytes of all results, about."""
        self._max_bytes = max_bytes
        self._kept: dict[Key, tuple[Any, int]] = {}
        self._keys: dict[Hashable, set[Key]] = {}
        """Keys of the kept results, by owner."""
        self._newest: dict[Key, Key] = {}
        """Key of the newest result of each owner and kind."""
        self._used: dict[Key, None] = {}
        """Owners, as `(owner,)`, and keys of results that are not the newest; the most recently used last."""
        self._making: SingleFlight[Key, Any] = SingleFlight()
        self._alone = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, key: Key) -> Any:
        """Return the result of `key`, and count a use of the result and of its owner; None if it is not kept."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        if key in self._used:
            self._use(key)
        self._use(key[:1])
        return kept[0]

    def put(self, key: Key, value: object, weight: int) -> None:
        """Keep `value` of `weight` bytes, as the newest result of its kind."""
        owner, kind = key[:1], key[:2]
        self._remove(key)
        former = self._newest.get(kind)
        if former is not None and former != key:
            self._use(former)
        self._newest[kind] = key
        self._kept[key] = value, _ENTRY + weight
        self._keys.setdefault(key[0], set()).add(key)
        self.weight += _ENTRY + weight
        self._use(owner)
        while self.weight > self._max_bytes and (oldest := next(iter(self._used))) != owner:
            if len(oldest) == 1:
                self.drop(oldest[0])
            else:
                self._remove(oldest)

    def drop(self, owner: Hashable) -> None:
        """Remove all results of an owner."""
        for key in [*self._keys.get(owner, ())]:
            self._newest.pop(key[:2], None)
            self._remove(key)
        self._keys.pop(owner, None)
        self._used.pop((owner,), None)

    async def get(
        self,
        key: Key,
        make: Callable[[], Coroutine[Any, Any, tuple[V, int]]],
        *,
        cancellable: bool = False,
        alone: bool = False,
    ) -> V:
        """Return the result of `key`: the kept one, or the one of `make`, which also returns its size in bytes.

        The size may be approximate. Callers of one key share the work. `cancellable` work is cancelled when its last
        caller leaves. Work that runs `alone`, because it needs much memory, runs one at a time.
        """
        found: V | None = self.find(key)
        if found is not None:
            return found
        made: V = await self._making.get(key, lambda: self._made(key, make, alone=alone), cancellable=cancellable)
        return made

    async def _made(self, key: Key, make: Callable[[], Coroutine[Any, Any, tuple[V, int]]], *, alone: bool) -> V:
        if alone:
            async with self._alone:
                value, weight = await make()
        else:
            value, weight = await make()
        self.put(key, value, weight)
        return value

    def _use(self, key: Key) -> None:
        self._used.pop(key, None)
        self._used[key] = None

    def _remove(self, key: Key) -> None:
        self._used.pop(key, None)
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._keys[key[0]].discard(key)
            self.weight -= kept[1]
