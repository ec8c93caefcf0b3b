"""LRU cache bounded by number and weight of entries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """Cache of at most `most` entries and `room` bytes, which evicts the least recently used.

    The newest entry stays, however heavy it is: what costs most to make is not made again for each request.
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
        """All values, the most recently used last."""
        return (value for value, _ in self._kept.values())

    def get(self, key: K) -> V | None:
        """Value under `key`, marked as most recently used; None when absent."""
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
