"""Collecting what no store needs: broken uploads and removed stores. Never what a reader may be reading."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from protoslice.errors import IntegrityError, NotFound
from protoslice.storage import ObjectKey, ObjectStat, Storage
from protoslice.storage.probe import FOLDER as PROBES
from protoslice.stores import keys
from protoslice.stores.listing import everything
from protoslice.stores.model import Manifest
from protoslice.stores.uploads.records import end_uploads

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
    unreadable: str | None = None
    """The key of a manifest that could not be read, for which reason no object was removed."""


async def collect_garbage(
    storage: Storage,
    *,
    grace_seconds: float = GRACE_SECONDS,
    dry_run: bool = False,
    clock: Callable[[], float] = time.time,
) -> GarbageReport:
    """Remove objects of uploads that no store has come of, and of stores removed, once they are older than the grace.

    Marks first and sweeps then: an upload that finishes meanwhile has written something within the grace, so it is
    out of reach. With no grace at all nobody may be uploading. A dry run removes nothing, and tells nothing of what
    only the storage itself knows as left over.
    """
    moment = clock()
    before = moment - grace_seconds
    # Before the manifests: an upload that is a store by the time they are read has been counted here.
    uploads = await end_uploads(storage, moment=_time(moment), before=_time(before), dry_run=dry_run)
    expired = [item async for item in everything(storage, keys.REMOVED) if _is_old(item, before)]
    try:
        needed = await _needed(storage, {item.key for item in expired})
    except _Unreadable as error:
        # It might need anything: leave everything until somebody has looked.
        leftovers = 0 if dry_run else await storage.collect_garbage(grace_seconds)
        return GarbageReport(leftovers=leftovers, unreadable=error.key)
    dropped = [item async for item in _unneeded(storage, needed | uploads, before)]
    dropped += [item async for item in _underived(storage, before)]
    probes = [item async for item in everything(storage, PROBES) if _is_old(item, before)]
    leftovers = len(probes)
    if not dry_run:
        for item in (*dropped, *expired, *probes):
            await storage.delete(item.key)
        leftovers += await storage.collect_garbage(grace_seconds)
    return GarbageReport(len(dropped), sum(item.size for item in dropped), len(expired), leftovers)


class _Unreadable(Exception):
    """A manifest that cannot be read."""

    def __init__(self, key: ObjectKey) -> None:
        super().__init__(key.text)
        self.key = key.text


async def _unneeded(storage: Storage, needed: set[str], before: float) -> AsyncIterator[ObjectStat]:
    """The objects of uploads that no store needs, and that have not got on for as long as the grace."""
    attempt, objects = "", list[ObjectStat]()
    async for item in everything(storage, keys.OBJECTS):
        if item.key.segments[1] != attempt:
            for found in _stale(attempt, objects, before):
                yield found
            attempt, objects = item.key.segments[1], []
        if attempt not in needed:
            objects.append(item)
    for found in _stale(attempt, objects, before):
        yield found


def _stale(attempt: str, objects: list[ObjectStat], before: float) -> list[ObjectStat]:
    """The objects of an attempt, if none of them is young: the next file of a long upload may be on its way."""
    return objects if keys.began_at(attempt) < before and all(_is_old(item, before) for item in objects) else []


async def _underived(storage: Storage, before: float) -> AsyncIterator[ObjectStat]:
    """What was made from stores that are gone."""
    alive = {item.key.segments[-1] async for item in everything(storage, keys.STORES)}
    async for item in everything(storage, keys.DERIVED):
        if item.key.segments[1] not in alive and _is_old(item, before):
            yield item


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _is_old(item: ObjectStat, before: float) -> bool:
    return item.modified.timestamp() < before


async def _needed(storage: Storage, expired: set[ObjectKey]) -> set[str]:
    """The uploads whose objects are needed."""
    needed: set[str] = set()
    for folder in (keys.STORES, keys.REMOVED):
        async for item in everything(storage, folder):
            if item.key in expired:
                continue
            # Gone since it was listed: removed, which left a tombstone that is listed next.
            with suppress(NotFound):
                try:
                    needed |= Manifest.decode(await storage.get_range(item.key, 0, item.size)).attempts
                except IntegrityError:
                    raise _Unreadable(item.key) from None
    return needed
