"""The results of costly work, which are cached within limits and computed once for all waiting callers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True)
class _Making(Generic[V]):
    """A running task, and the number of callers that wait for its result."""

    task: asyncio.Task[V]
    cancellable: bool
    waiting: int = 0


class SingleFlight(Generic[K, V]):
    """A table of running tasks: concurrent callers with the same key share one task. Results are not cached."""

    def __init__(self) -> None:
        self._making: dict[K, _Making[V]] = {}

    async def get(self, key: K, make: Callable[[], Coroutine[Any, Any, V]], *, cancellable: bool = False) -> V:
        """Return the result of the running task for `key`; if there is none, start a task that runs `make`.

        A `cancellable` task is cancelled when its last caller stops waiting. Any other task runs to its end.
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
                self._drop(key, making.task)  # the next caller then starts a new task

    async def idle(self) -> None:
        """Wait until no task is running; ignore the errors of tasks."""
        while self._making:
            await asyncio.gather(*(making.task for making in self._making.values()), return_exceptions=True)

    def _made(self, key: K, done: asyncio.Task[V]) -> None:
        self._drop(key, done)
        if not done.cancelled():
            done.exception()  # marks the error as read for asyncio: without callers, a failure is no problem

    def _drop(self, key: K, task: asyncio.Task[V]) -> None:
        if (making := self._making.get(key)) is not None and making.task is task:
            del self._making[key]


class LruCache(Generic[K, V]):
    """A cache of at most `most` entries and `room` bytes, which evicts the least recently used entries.

    The newest entry remains even if it is too large. Otherwise, each request would compute the most costly result
    again.
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
        """The total weight of all entries in bytes."""
        return self._weight

    def values(self) -> Iterator[V]:
        """Return all values, with the most recently used last."""
        return (value for value, _ in self._kept.values())

    def get(self, key: K) -> V | None:
        """Return the value of `key`, which becomes the most recently used value, or None if there is no value."""
        kept = self._kept.pop(key, None)
        if kept is None:
            return None
        self._kept[key] = kept
        return kept[0]

    def put(self, key: K, value: V, weight: int) -> None:
        """Insert `value`, which has `weight` bytes, under `key`."""
        self.drop(key)
        self._kept[key] = value, weight
        self._weight += weight
        while len(self._kept) > 1 and (self._weight > self._room or len(self._kept) > self._most):
            self.drop(next(iter(self._kept)))

    def drop(self, key: K) -> None:
        """Remove the entry of `key` if there is one."""
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._weight -= kept[1]


Key = tuple[Hashable, ...]
"""The key of a result: its owner, such as the row of a store, then its kind, then parameters."""
_ENTRY: Final = 1 << 10
"""Approximate number of bytes of memory that a result takes in addition to its weight."""


class Results:
    """A cache of results by key, limited to `max_bytes` in total, which evicts the least recently used results.

    The newest result of each kind is evicted only together with all results of its owner. The owner that was used
    last is never evicted, even if its results are too large. Otherwise, each request would compute the most costly
    result again.
    """

    def __init__(self, max_bytes: int) -> None:
        self.weight = 0
        """Approximate number of bytes of all results."""
        self._max_bytes = max_bytes
        self._kept: dict[Key, tuple[Any, int]] = {}
        self._keys: dict[Hashable, set[Key]] = {}
        """Keys of the cached results, by owner."""
        self._newest: dict[Key, Key] = {}
        """Key of the newest result of each owner and kind."""
        self._used: dict[Key, None] = {}
        """Entries that can be evicted, with the most recently used last.

        An entry is an owner, as `(owner,)`, or the key of a result that is not the newest of its kind.
        """
        self._making: SingleFlight[Key, Any] = SingleFlight()
        self._alone = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, key: Key) -> Any:
        """Return the cached result of `key` or None; count this as a use of the result and of its owner."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        if key in self._used:
            self._use(key)
        self._use(key[:1])
        return kept[0]

    def put(self, key: Key, value: object, weight: int) -> None:
        """Cache `value`, which has `weight` bytes, as the newest result of its kind."""
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
        """Return the cached result of `key`, or compute it with `make`, which also returns its size in bytes.

        The size may be approximate. Concurrent callers with the same key share the work. `cancellable` work is
        cancelled when its last caller stops waiting. If `alone` is True, the work needs much memory, and no other
        such work runs at the same time.
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
