"""Garbage collection of abandoned uploads and removed stores, without disturbing readers."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, fields
from typing import Final

from protoslice.catalog import Database
from protoslice.catalog.derived import DerivedRecords
from protoslice.catalog.kept_files import kept_bytes, purge_kept_files
from protoslice.catalog.repositories import NamesOfStores
from protoslice.concurrency.gather import map_concurrently
from protoslice.storage import ObjectStat, Storage
from protoslice.storage.probe import FOLDER as PROBES
from protoslice.stores.collection.census import Census
from protoslice.stores.collection.holders import Holders
from protoslice.stores.collection.stale_records import SETTLED_SECONDS, StaleRecords
from protoslice.stores.collection.sweeper import Sweeper
from protoslice.stores.collection.tally import StorageTally
from protoslice.stores.layout import keys
from protoslice.stores.quotas.ledger import Ledgers
from protoslice.stores.uploads.records import UploadRecords

GRACE_SECONDS = 86400.0
"""Default grace period in seconds: younger uploads may be under way, removed stores still read."""
_STORES: Final = 1000
"""Stores that one statement asks about."""


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
    """Key of a damaged manifest, for which the objects that it may need were left; else None."""
    there: StorageTally | None = None
    """Counts of what is there now; None after a dry run."""

    def __add__(self, other: GarbageReport) -> GarbageReport:
        """The counts of both collections, and the first damaged manifest."""
        counts = {
            each.name: getattr(self, each.name) + getattr(other, each.name)
            for each in fields(self)
            if each.name not in {"unreadable", "there"}
        }
        there = None if self.there is None or other.there is None else self.there + other.there
        return GarbageReport(**counts, unreadable=self.unreadable or other.unreadable, there=there)


async def collect_garbage(
    storage: Storage,
    database: Database,
    space: str,
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
    ledgers = Ledgers(storage)
    ledger = await ledgers.read_if_sound()
    # Uploads before manifests: an upload that becomes a store in between was counted as alive here.
    records = UploadRecords(database, space)
    uploads = await records.end(moment=moment, before=before, dry_run=dry_run)
    removed = [item async for item in storage.iterate(keys.REMOVED) if _is_old(item, before)]
    census = await Census.of(storage)
    expired = await _unneeded(database, space, census, removed)
    holders = Holders(storage, {item.key for item in expired})
    outdated = StaleRecords(storage, census, holders, before=before, settled=settled)
    sweeper = Sweeper(storage, census, holders, outdated, records, before=before, dry_run=dry_run)
    await sweeper.sweep(uploads)
    underived = [item async for item in _underived(storage, census, before)]
    probes = [item async for item in storage.iterate(PROBES) if _is_old(item, settled)]
    leftovers = len(probes)
    if not dry_run:
        await map_concurrently(storage.delete, [item.key for item in (*underived, *expired, *probes)])
        await _remove_underived(DerivedRecords(database, space), census, before)
        await purge_kept_files(database, space, before)
        await outdated.remove()
        leftovers += await storage.collect_garbage(grace_seconds)
    there = None
    if not dry_run:
        kept = await kept_bytes(database, space)
        there = StorageTally(len(census), outdated.tags, sweeper.listed_bytes - sweeper.bytes + kept)
        await ledgers.recount(ledger, there.stored_bytes, there.stores, moment)
    objects, size = sweeper.objects + len(underived), sweeper.bytes + sum(item.size for item in underived)
    return GarbageReport(objects, size, len(expired), leftovers, sweeper.unreadable, there)


async def _unneeded(
    database: Database, space: str, census: Census, tombstones: Sequence[ObjectStat]
) -> list[ObjectStat]:
    """Tombstones but for those of stores at which a name was pointed since, and that are still gone.

    Such a name keeps its store until it is restored.
    """
    names, found = NamesOfStores(database, space), list[ObjectStat]()
    for start in range(0, len(tombstones), _STORES):
        some = tombstones[start : start + _STORES]
        removed = {item.key.segments[1]: item.modified.timestamp() for item in some}
        named = await names.named_since(removed)
        found += [item for item in some if census.has(item.key.segments[1]) or item.key.segments[1] not in named]
    return found


async def _underived(storage: Storage, census: Census, before: float) -> AsyncIterator[ObjectStat]:
    """Old derived facts of stores that no longer exist."""
    async for item in storage.iterate(keys.DERIVED):
        if not census.has(item.key.segments[1]) and _is_old(item, before):
            yield item


async def _remove_underived(derived: DerivedRecords, census: Census, before: float) -> None:
    """Remove old derived facts, in the database, of stores that no longer exist."""
    after = ""
    while stores := await derived.stores(after, _STORES, before=before):
        if gone := [store for store in stores if not census.has(store)]:
            await derived.remove(gone)
        after = stores[-1]


def _is_old(item: ObjectStat, before: float) -> bool:
    return item.modified.timestamp() < before
