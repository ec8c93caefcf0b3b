"""What was used last, up to a number of things and of bytes."""

from __future__ import annotations

from typing import Generic, TypeVar

__all__ = ["LruCache"]

K = TypeVar("K")
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """Things by key; those not used for longest are let go of when there are too many, or they weigh too much."""

    def __init__(self, *, most: int, room: int) -> None:
        self._most = most
        self._room = room
        self._weight = 0
        self._kept: dict[K, tuple[V, int]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: K) -> V | None:
        """What is kept under `key`, which stands last then."""
        kept = self._kept.pop(key, None)
        if kept is None:
            return None
        self._kept[key] = kept
        return kept[0]

    def put(self, key: K, value: V, weight: int) -> None:
        """Keep `value`, which takes `weight` bytes; something that weighs more than there is room for is not kept."""
        self.drop(key)
        if weight > self._room:
            return
        self._kept[key] = value, weight
        self._weight += weight
        while self._weight > self._room or len(self._kept) > self._most:
            self.drop(next(iter(self._kept)))

    def drop(self, key: K) -> None:
        """Keep nothing under `key`."""
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._weight -= kept[1]
