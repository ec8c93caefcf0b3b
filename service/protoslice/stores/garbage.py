"""Collecting what no store needs: broken uploads and removed stores. Never what a reader may be reading."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass

from protoslice.errors import IntegrityError, NotFound
from protoslice.storage import ObjectKey, ObjectStat, Storage
from protoslice.stores import keys
from protoslice.stores.model import Manifest

__all__ = ["GRACE_SECONDS", "GarbageReport", "collect_garbage"]

GRACE_SECONDS = 86400.0
"""Younger than this, an upload may still be under way, and a removed store may still be read."""


@dataclass(frozen=True, slots=True)
class GarbageReport:
    """What a collection did."""

    objects: int = 0
    bytes: int = 0
    stores: int = 0
    """Removed stores whose objects are gone now."""
    leftovers: int = 0
    """Things that broken writers of the storage had left."""


async def collect_garbage(
    storage: Storage, *, grace_seconds: float = GRACE_SECONDS, clock: Callable[[], float] = time.time
) -> GarbageReport:
    """Remove objects of uploads that no store has come of, and of stores removed, once they are older than the grace.

    Marks first and sweeps then: an upload that finishes meanwhile is younger than the grace, so it is out of reach.
    """
    before = clock() - grace_seconds
    expired = [item async for item in _all(storage, keys.REMOVED) if item.modified.timestamp() < before]
    needed = await _needed(storage, {item.key for item in expired})
    if needed is None:
        # A manifest that cannot be read might need anything: leave everything until somebody has looked.
        return GarbageReport(leftovers=await storage.collect_garbage(grace_seconds))
    objects = size = 0
    async for item in _all(storage, keys.OBJECTS):
        attempt = item.key.segments[1]
        if attempt in needed or keys.began_at(attempt) >= before or item.modified.timestamp() >= before:
            continue
        await storage.delete(item.key)
        objects, size = objects + 1, size + item.size
    alive = {item.key.segments[-1] async for item in _all(storage, keys.STORES)}
    async for item in _all(storage, keys.DERIVED):
        if item.key.segments[1] not in alive and item.modified.timestamp() < before:
            await storage.delete(item.key)
            objects, size = objects + 1, size + item.size
    for item in expired:
        await storage.delete(item.key)
    return GarbageReport(objects, size, len(expired), await storage.collect_garbage(grace_seconds))


async def _needed(storage: Storage, expired: set[ObjectKey]) -> set[str] | None:
    """The uploads whose objects are needed; none when that can't be told."""
    needed = set()
    for folder in (keys.STORES, keys.REMOVED):
        async for item in _all(storage, folder):
            if item.key in expired:
                continue
            # Gone since it was listed: removed, which left a tombstone that is listed next.
            with suppress(NotFound):
                try:
                    needed.add(Manifest.decode(await storage.get_range(item.key, 0, item.size)).attempt)
                except IntegrityError:
                    return None
    return needed


async def _all(storage: Storage, folder: ObjectKey) -> AsyncIterator[ObjectStat]:
    after: ObjectKey | None = None
    while True:
        page = await storage.list(folder, after=after)
        for item in page.items:
            yield item
        after = page.after
        if after is None:
            return
