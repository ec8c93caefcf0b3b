"""Collecting what no store needs: broken uploads and removed stores. Never what a reader may be reading."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from protoslice.errors import Conflict, IntegrityError, NotFound
from protoslice.storage import ObjectKey, ObjectStat, Storage
from protoslice.storage.probe import FOLDER as PROBES
from protoslice.stores.catalog.claims import Claim, Claims
from protoslice.stores.catalog.manifests import is_retired
from protoslice.stores.catalog.named_records import is_removal_mark
from protoslice.stores.catalog.removed import tombstone_of
from protoslice.stores.catalog.tags import Tags
from protoslice.stores.layout import keys
from protoslice.stores.layout.indexes import entries_of
from protoslice.stores.layout.listing import everything, side_by_side
from protoslice.stores.manifest import Manifest
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


@dataclass(slots=True)
class _Needed:
    """What the manifests of stores, and of stores removed within the grace, name."""

    attempts: set[str] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)
    stores: dict[str, Manifest] = field(default_factory=dict)


class _Unreadable(Exception):
    """A manifest that cannot be read."""

    def __init__(self, key: ObjectKey) -> None:
        super().__init__(key.text)
        self.key = key.text


async def collect_garbage(
    storage: Storage,
    *,
    grace_seconds: float = GRACE_SECONDS,
    dry_run: bool = False,
    clock: Callable[[], float] = time.time,
) -> GarbageReport:
    """Remove objects of uploads that no store has come of, and of stores removed, once they are older than the grace.

    The grace is for uploads that get on slowly and for readers of removed stores. That no store loses an object does
    not rest on it but on the claims of attempts. A dry run removes nothing, and does not tell what only the storage
    itself knows as left over.
    """
    moment = clock()
    before = moment - grace_seconds
    # Before the manifests: an upload that is a store by the time they are read has been counted here.
    uploads = await end_uploads(storage, moment=_time(moment), before=_time(before), dry_run=dry_run)
    expired = [item async for item in everything(storage, keys.REMOVED) if _is_old(item, before)]
    spared = {item.key for item in expired}
    try:
        needed = await _needed(storage, spared)
        abandoned = await _abandoned(storage, needed, uploads, before)
        if abandoned and not dry_run:
            doomed, needed = await _doomed(storage, abandoned, spared)
            abandoned = {attempt: abandoned[attempt] for attempt in doomed}
    except _Unreadable as error:
        # It might need anything: leave everything until somebody has looked.
        leftovers = 0 if dry_run else await storage.collect_garbage(grace_seconds)
        return GarbageReport(leftovers=leftovers, unreadable=error.key)
    dropped = [item for items in abandoned.values() for item in items]
    dropped += [item async for item in _superfluous(storage, needed, uploads, before)]
    dropped += [item async for item in _underived(storage, needed, before)]
    probes = [item async for item in everything(storage, PROBES) if _is_old(item, before)]
    leftovers = len(probes)
    if not dry_run:
        # Claims last: as long as an object of an attempt is there, so is what says that the attempt is doomed.
        for item in (*sorted(dropped, key=lambda item: item.key.segments[-1] == "claim"), *expired, *probes):
            await storage.delete(item.key)
        await _remove_outdated(storage, needed, before)
        leftovers += await storage.collect_garbage(grace_seconds)
    content = [item for item in dropped if not _is_note(item.key)]
    return GarbageReport(len(content), sum(item.size for item in content), len(expired), leftovers)


async def _needed(storage: Storage, expired: set[ObjectKey]) -> _Needed:
    """Read all manifests but the `expired` ones."""
    needed = _Needed()
    async for item in everything(storage, keys.STORES):
        manifest = await _read(storage, item)
        if manifest is not None:
            needed.stores[manifest.id] = manifest
            needed.attempts |= manifest.attempts
            needed.keys |= manifest.keys
    async for item in everything(storage, keys.REMOVED):
        manifest = await _read(storage, item) if item.key not in expired else None
        if manifest is not None:
            needed.attempts |= manifest.attempts
            needed.keys |= manifest.keys
    return needed


async def _read(storage: Storage, item: ObjectStat) -> Manifest | None:
    """The manifest that is there; None when it is gone since it was listed, or when it was taken back."""
    try:
        while True:
            try:
                data = await storage.get_range(item.key, 0, item.size, if_etag=item.etag)
                break
            except Conflict:
                item = await storage.stat(item.key)  # replaced by a copy of the same store
        if item.key.segments[0] == keys.STORES.text:
            return None if is_retired(data) else Manifest.decode(data)
        return tombstone_of(item.key, data).manifest
    except NotFound:
        return None  # removed, which left a tombstone that is listed next
    except IntegrityError:
        raise _Unreadable(item.key) from None


async def _abandoned(
    storage: Storage, needed: _Needed, uploads: set[str], before: float
) -> dict[str, list[ObjectStat]]:
    """The objects of attempts that no manifest and no upload needs, and that have not got on since `before`."""
    found: dict[str, list[ObjectStat]] = {}
    async for attempt, objects in _attempts(storage):
        free = attempt not in uploads and attempt not in needed.attempts and keys.began_at(attempt) < before
        # With a young object none of them goes: the next file of a long upload may be on its way.
        if free and all(_is_old(item, before) for item in objects):
            found[attempt] = objects
    return found


async def _doomed(storage: Storage, attempts: Iterable[str], expired: set[ObjectKey]) -> tuple[list[str], _Needed]:
    """Those of `attempts` that no writer can need any more, and what the manifests name by now."""
    claims = Claims(storage)
    condemned = [claim for claim in await side_by_side(claims.condemn, attempts) if claim is not None]
    # Once more, now that writers are told: the claims say why.
    needed = await _needed(storage, expired)

    async def decide(claim: Claim) -> str | None:
        if claim.attempt in needed.attempts:
            await claims.spare(claim)
            return None
        return claim.attempt if await claims.doom(claim) else None

    return [attempt for attempt in await side_by_side(decide, condemned) if attempt is not None], needed


async def _superfluous(
    storage: Storage, needed: _Needed, uploads: set[str], before: float
) -> AsyncIterator[ObjectStat]:
    """Objects that nothing names, in attempts of which stores need others."""
    async for attempt, objects in _attempts(storage):
        if attempt in needed.attempts and attempt not in uploads:
            for item in objects:
                if _is_old(item, before) and _is_unnamed(item.key, needed):
                    yield item


def _is_unnamed(key: ObjectKey, needed: _Needed) -> bool:
    if keys.is_reference(key):
        store = needed.stores.get(keys.store_of_reference(key))
        return store is None or key.segments[1] not in store.attempts
    return key.segments[-1] != "claim" and key.text not in needed.keys


async def _attempts(storage: Storage) -> AsyncIterator[tuple[str, list[ObjectStat]]]:
    """The attempts that have objects, with these."""
    attempt, objects = "", list[ObjectStat]()
    async for item in everything(storage, keys.OBJECTS):
        if item.key.segments[1] != attempt:
            if objects:
                yield attempt, objects
            attempt, objects = item.key.segments[1], []
        objects.append(item)
    if objects:
        yield attempt, objects


async def _remove_outdated(storage: Storage, needed: _Needed, before: float) -> None:
    """Remove entries of indexes that nothing agrees with, and what is left of removed records."""
    conditional = storage.abilities.conditional_delete
    async for item in _outdated(storage, needed, before):
        with suppress(Conflict):  # written anew since it was listed
            await (storage.delete(item.key, if_etag=item.etag) if conditional else storage.delete(item.key))


async def _outdated(storage: Storage, needed: _Needed, before: float) -> AsyncIterator[ObjectStat]:
    entries = {key for manifest in needed.stores.values() for key in entries_of(manifest)}
    for folder in (keys.BY_TIME, keys.BY_TYPE):
        async for item in everything(storage, folder):
            if _is_old(item, before) and item.key not in entries:
                yield item
    tags = Tags(storage)
    async for item in everything(storage, keys.BY_STORE):
        if _is_old(item, before) and not await _is_set(tags, item.key):
            yield item
    # A manifest that was taken back stays where nothing is deleted on a condition: a store may come to its place.
    marked = (keys.TAGS, keys.SCHEMAS, *([keys.STORES] if storage.abilities.conditional_delete else []))
    for folder in marked:
        async for item in everything(storage, folder):
            if _is_old(item, before) and is_removal_mark(item):
                yield item


async def _is_set(tags: Tags, entry: ObjectKey) -> bool:
    """Whether a tag points at the store that has an entry for it; a damaged tag may."""
    try:
        return (await tags.get(keys.name_of(entry))).store == entry.segments[-2]
    except NotFound:
        return False
    except IntegrityError:
        return True


async def _underived(storage: Storage, needed: _Needed, before: float) -> AsyncIterator[ObjectStat]:
    """What was made from stores that are gone."""
    async for item in everything(storage, keys.DERIVED):
        if item.key.segments[1] not in needed.stores and _is_old(item, before):
            yield item


def _is_note(key: ObjectKey) -> bool:
    """Whether an object holds nothing of an upload: a claim, or the note of a store."""
    return key.segments[-1] == "claim" or keys.is_reference(key)


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _is_old(item: ObjectStat, before: float) -> bool:
    return item.modified.timestamp() < before
