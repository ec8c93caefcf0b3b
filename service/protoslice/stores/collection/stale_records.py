"""Stale small records: index entries, tags of removed stores, removal marks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

from protoslice.concurrency.gather import each_concurrently
from protoslice.errors import Conflict, IntegrityError, NotFound
from protoslice.storage import ObjectKey, ObjectStat, Storage
from protoslice.stores.catalog.claims import RENEW_SECONDS, Claims
from protoslice.stores.catalog.files import FilesByDigest
from protoslice.stores.catalog.named_records import is_removal_mark
from protoslice.stores.catalog.tags import StoredTag, Tags
from protoslice.stores.collection.census import Census, TagCensus
from protoslice.stores.collection.holders import Holders, UnreadableManifest
from protoslice.stores.layout import keys
from protoslice.stores.layout.indexes import entries_of, owner_of, store_at
from protoslice.stores.manifest import STORE

SETTLED_SECONDS: Final = 2 * RENEW_SECONDS
"""Age in seconds below which no tag entry, removal mark or probe is collected, whatever the grace is.

No claim protects those. A writer of a tag that takes longer than half of this writes the entry again.
"""


_MARKED: Final = (ObjectKey("artifacts"), keys.REPOSITORIES, keys.HISTORIES)
"""Folders of rooms above whose records leave marks too."""


class StaleRecords:
    """Removes stale small records of one storage; reads only those that listings make suspicious."""

    def __init__(self, storage: Storage, census: Census, holders: Holders, *, before: float, settled: float) -> None:
        self._storage = storage
        self._census = census
        self._holders = holders
        self._before = before
        self._settled = settled
        self._claims = Claims(storage)
        self._tags = Tags(storage)
        self._files = FilesByDigest(storage)
        self.tags = 0
        """Tags that `remove` met."""

    async def remove(self) -> None:
        """Delete all stale index entries, entries of tags, and removal marks."""
        tags = await TagCensus.of(self._storage)
        self.tags = len(tags)
        await each_concurrently(self._remove_entry, self._entries())
        await each_concurrently(self._remove_entry_of_file, self._entries_of_files())
        await each_concurrently(self._remove_entry_of_tag, self._entries_of_tags(tags))
        await each_concurrently(self._remove_unless_changed, self._marks(tags))

    async def is_over(self, item: ObjectStat) -> bool:
        """True when the attempt that wrote an index entry or a reference can no longer become a store.

        Decided by the claim of the attempt alone: a writer publishes nothing that the claim does not allow.
        """
        attempt = await owner_of(self._storage, item)
        if attempt is None:  # entries of older versions do not name their attempt
            return item.modified.timestamp() < self._settled
        return await self._claims.is_over(attempt, {STORE})

    async def _entries(self) -> AsyncIterator[ObjectStat]:
        """Entries by time and by type that a store's only place in time does not explain."""
        for folder in (*([keys.BY_TIME] if self._census.is_astray else []), keys.BY_TYPE):
            async for item in self._storage.iterate(folder):
                old = item.modified.timestamp() < self._before
                if old and not self._census.is_current(item.key.segments[-1]):
                    yield item

    async def _remove_entry(self, item: ObjectStat) -> None:
        try:
            manifests = await self._holders.of_store(store_at(item.key.segments[-1]))
        except UnreadableManifest:
            return
        if not any(item.key in entries_of(manifest) for manifest in manifests) and await self.is_over(item):
            await self._storage.delete(item.key)

    async def _entries_of_files(self) -> AsyncIterator[ObjectStat]:
        """Entries of files that came with no present store."""
        async for item in self._storage.iterate(keys.BY_FILE):
            if item.modified.timestamp() < self._before and not self._census.is_current(item.key.segments[-1]):
                yield item

    async def _remove_entry_of_file(self, item: ObjectStat) -> None:
        if await self._files.is_over(item):
            await self._storage.delete(item.key)

    async def _entries_of_tags(self, tags: TagCensus) -> AsyncIterator[ObjectStat]:
        """Entries of missing tags, of missing stores, and of tags with several entries, good or not."""
        repeated = set[str]()
        async for item in self._storage.iterate(keys.BY_STORE):
            name, old = item.key.segments[-1], item.modified.timestamp() < self._settled
            count = tags.see(name)
            if count > 1:
                repeated.add(name)
            elif old and not (count and self._census.has(item.key.segments[-2])):
                yield item
        if repeated:
            async for item in self._storage.iterate(keys.BY_STORE):
                if item.key.segments[-1] in repeated and item.modified.timestamp() < self._settled:
                    yield item

    async def _remove_entry_of_tag(self, item: ObjectStat) -> None:
        if not await self._is_set(item.key):
            await self._remove_unless_changed(item)

    async def _is_set(self, entry: ObjectKey) -> bool:
        """True when the tag of an entry points at the entry's store, or is damaged. Removes dangling tags."""
        store, name = entry.segments[-2], keys.name_of(entry)
        try:
            tag = await self._tags.get(name)
            if tag.store != store:
                return False
            if await self._is_store(store):
                return True
            await self._untie(tag)
            return False
        except NotFound:
            return False
        except (IntegrityError, Conflict):
            return True

    async def _is_store(self, store: str) -> bool:
        """True when a store exists or its tombstone is within the grace period.

        Its remover deals with the tags.
        """
        try:
            return bool(await self._holders.of_store(store))
        except UnreadableManifest:
            return True

    async def _untie(self, tag: StoredTag) -> None:
        """Remove the tag of an interrupted removal; `Conflict` when it has been set anew since."""
        with suppress(NotFound):
            await self._tags.delete(tag.name, if_match=tag.etag)

    async def _marks(self, tags: TagCensus) -> AsyncIterator[ObjectStat]:
        # Without conditional deletes the others stay: deleting one could hit what was written in its place, and no
        # order of other calls prevents that, as a delete may take effect long after it was sent.
        conditional = self._storage.abilities.conditional_delete
        for item in (*tags.marks, *(self._census.marks if conditional else [])):
            if item.modified.timestamp() < self._settled:
                yield item
        for folder in (keys.SCHEMAS, *(_MARKED if conditional else ())):
            async for item in self._storage.iterate(folder):
                if item.modified.timestamp() < self._settled and is_removal_mark(item):
                    yield item

    async def _remove_unless_changed(self, item: ObjectStat) -> None:
        """Delete a record unless it was rewritten since the listing.

        Without conditional deletes, a write between the check and the deletion is lost: such a storage offers nothing
        better.
        """
        with suppress(Conflict, NotFound):
            if self._storage.abilities.conditional_delete:
                await self._storage.delete(item.key, if_etag=item.etag)
            elif (await self._storage.stat(item.key)).etag == item.etag:
                await self._storage.delete(item.key)
