"""Garbage collection of abandoned uploads and removed stores, without disturbing readers."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from protoslice.concurrency.gather import map_concurrently
from protoslice.errors import Conflict, NotFound
from protoslice.storage import ObjectKey, ObjectStat, Storage
from protoslice.storage.probe import FOLDER as PROBES
from protoslice.stores.catalog.claims import Claim, Claims
from protoslice.stores.catalog.manifests import withdraw
from protoslice.stores.catalog.reachable import ReachableObjects, UnreadableManifest
from protoslice.stores.catalog.stale_records import SETTLED_SECONDS, StaleRecords
from protoslice.stores.layout import keys
from protoslice.stores.uploads.records import end_uploads

__all__ = ["GRACE_SECONDS", "GarbageReport", "collect_garbage"]

_log = logging.getLogger(__name__)

GRACE_SECONDS = 86400.0
"""Default grace period in seconds: younger uploads may be under way, removed stores still read."""


@dataclass(frozen=True, slots=True)
class GarbageReport:
    """Counts of a garbage collection."""

    objects: int = 0
    bytes: int = 0
    stores: int = 0
    """Tombstones deleted: removed stores whose objects are gone."""
    leftovers: int = 0
    """Leftovers of interrupted writers of the storage itself, and probe objects."""
    unreadable: str | None = None
    """Key of an unreadable manifest, because of which no object was removed; else None."""


@dataclass(slots=True)
class _Candidates:
    """Objects that no manifest needed at the time of the listing."""

    abandoned: dict[str, list[ObjectStat]] = field(default_factory=dict)
    """All objects of attempts without a store, by attempt."""
    superfluous: list[ObjectStat] = field(default_factory=list)
    """Unneeded objects in attempts of which stores need other objects."""
    missing: set[str] = field(default_factory=set)
    """Keys that manifests name and the listing does not show."""


async def collect_garbage(
    storage: Storage,
    *,
    grace_seconds: float = GRACE_SECONDS,
    dry_run: bool = False,
    clock: Callable[[], float] = time.time,
) -> GarbageReport:
    """Delete objects of abandoned uploads and removed stores that are older than the grace period.

    The grace period serves slow uploads and readers of removed stores. Safety of stores and their index entries does
    not depend on it but on claims. A dry run deletes nothing, and does not count leftovers that only the storage knows.
    """
    moment = clock()
    before = moment - grace_seconds
    settled = min(before, moment - SETTLED_SECONDS)
    # Uploads before manifests: an upload that becomes a store in between was counted as alive here.
    uploads = await end_uploads(storage, moment=_time(moment), before=_time(before), dry_run=dry_run)
    expired = [item async for item in storage.iterate(keys.REMOVED) if _is_old(item, before)]
    needed = ReachableObjects(storage, {item.key for item in expired})
    outdated = StaleRecords(storage, needed, before=before, settled=settled)
    try:
        await needed.read()
        found = await _candidates(storage, needed, uploads, before)
        if not dry_run:
            await _withdraw(storage, needed, found.missing)
            found = await _decided(storage, found, needed)
    except UnreadableManifest as error:
        # An unreadable manifest might need any object: delete none until an operator has looked.
        leftovers = 0 if dry_run else await storage.collect_garbage(grace_seconds)
        return GarbageReport(leftovers=leftovers, unreadable=error.key)
    dropped = [item for items in found.abandoned.values() for item in items]
    dropped += [item for item in found.superfluous if not keys.is_reference(item.key) or await outdated.is_over(item)]
    dropped += [item async for item in _underived(storage, needed, before)]
    probes = [item async for item in storage.iterate(PROBES) if _is_old(item, settled)]
    leftovers = len(probes)
    if not dry_run:
        # Claims last: while objects of an attempt exist, its doomed claim must be there too.
        for item in (*sorted(dropped, key=lambda item: item.key.segments[-1] == "claim"), *expired, *probes):
            await storage.delete(item.key)
        await outdated.remove()
        leftovers += await storage.collect_garbage(grace_seconds)
    content = [item for item in dropped if not _is_note(item.key)]
    return GarbageReport(len(content), sum(item.size for item in content), len(expired), leftovers)


async def _candidates(storage: Storage, needed: ReachableObjects, uploads: set[str], before: float) -> _Candidates:
    """Old objects, and whole attempts, that neither a manifest nor an upload needs; and what is missing.

    Made from one listing; objects written later are left to the next collection.
    """
    found = _Candidates(missing=set(needed.keys))
    async for attempt, objects in _attempts(storage):
        found.missing.difference_update(item.key.text for item in objects)
        if attempt in uploads:
            continue
        if attempt in needed.attempts:
            found.superfluous += [item for item in objects if _is_old(item, before) and _is_unnamed(item.key, needed)]
        # One young object protects its attempt: the next file of a long upload may be on its way.
        elif keys.began_at(attempt) < before and all(_is_old(item, before) for item in objects):
            found.abandoned[attempt] = objects
    return found


async def _withdraw(storage: Storage, needed: ReachableObjects, missing: set[str]) -> None:
    """Withdraw stores without objects, left by writers that died before they saw that they were too late.

    Nobody was told of such a store: its claim would have been looked at before. A store that has lost objects
    otherwise still has its claim, and stays, since a sender of the same content mends it.
    """
    claims = Claims(storage)
    attempts = sorted({key.split("/")[1] for key in missing})
    gone = dict(zip(attempts, await map_concurrently(claims.is_over, attempts), strict=True))
    for store_id, manifest in [*needed.stores.items()] if any(gone.values()) else []:
        if any(gone.get(attempt) for attempt in manifest.attempts) and not missing.isdisjoint(manifest.keys):
            with suppress(Conflict, NotFound):  # replaced or removed meanwhile
                await withdraw(storage, store_id, needed.etag(store_id))
                _log.warning("the store %s is withdrawn: its upload was collected before it was complete", store_id)


async def _decided(storage: Storage, found: _Candidates, needed: ReachableObjects) -> _Candidates:
    """Candidates that no writer can need any more; reads `needed` again after condemning their claims."""
    claims = Claims(storage)
    condemned = [claim for claim in await map_concurrently(claims.condemn, found.abandoned) if claim is not None]
    if condemned:
        # Writers now see the condemned claims, so manifests read from here on decide.
        await needed.read()
    # An upload may have begun since the listing of uploads; its record is written first.
    uploads = await _uploads_among(storage, {*found.abandoned, *(item.key.segments[1] for item in found.superfluous)})

    async def decide(claim: Claim) -> str | None:
        if claim.attempt in needed.attempts or claim.attempt in uploads:
            await claims.revive(claim)
            return None
        return claim.attempt if await claims.doom(claim) else None

    doomed = [attempt for attempt in await map_concurrently(decide, condemned) if attempt is not None]
    unneeded = [item for item in _unnamed(found.superfluous, needed) if item.key.segments[1] not in uploads]
    return _Candidates({attempt: found.abandoned[attempt] for attempt in doomed}, unneeded)


async def _uploads_among(storage: Storage, attempts: Iterable[str]) -> set[str]:
    """Attempts that have an upload record, that is, are resumable uploads."""

    async def upload(attempt: str) -> str | None:
        with suppress(NotFound):
            await storage.stat(keys.upload(attempt))
            return attempt
        return None

    return {attempt for attempt in await map_concurrently(upload, sorted(attempts)) if attempt is not None}


def _unnamed(items: Iterable[ObjectStat], needed: ReachableObjects) -> list[ObjectStat]:
    """Objects that `needed` does not name, in attempts that stores still need."""
    return [item for item in items if item.key.segments[1] in needed.attempts and _is_unnamed(item.key, needed)]


def _is_unnamed(key: ObjectKey, needed: ReachableObjects) -> bool:
    if keys.is_reference(key):
        store = needed.stores.get(keys.store_of_reference(key))
        return store is None or key.segments[1] not in store.attempts
    return key.segments[-1] != "claim" and key.text not in needed.keys


async def _attempts(storage: Storage) -> AsyncIterator[tuple[str, list[ObjectStat]]]:
    """Each attempt with its objects, from one listing."""
    attempt, objects = "", list[ObjectStat]()
    async for item in storage.iterate(keys.OBJECTS):
        if item.key.segments[1] != attempt:
            if objects:
                yield attempt, objects
            attempt, objects = item.key.segments[1], []
        objects.append(item)
    if objects:
        yield attempt, objects


async def _underived(storage: Storage, needed: ReachableObjects, before: float) -> AsyncIterator[ObjectStat]:
    """Old artifacts of stores that no longer exist."""
    async for item in storage.iterate(keys.DERIVED):
        if item.key.segments[1] not in needed.stores and _is_old(item, before):
            yield item


def _is_note(key: ObjectKey) -> bool:
    """True for a claim or a reference, which hold no content of an upload."""
    return key.segments[-1] == "claim" or keys.is_reference(key)


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _is_old(item: ObjectStat, before: float) -> bool:
    return item.modified.timestamp() < before
