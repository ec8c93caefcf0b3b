"""Stale small records: index entries, tags of removed stores, removal marks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

from protoslice.concurrency.gather import each_concurrently, map_concurrently
from protoslice.errors import Conflict, IntegrityError, NotFound
from protoslice.storage import ObjectKey, ObjectStat, Storage, unquote
from protoslice.stores.catalog.claims import RENEW_SECONDS, Claims
from protoslice.stores.catalog.files import FilesByDigest
from protoslice.stores.catalog.piece_index import store_of
from protoslice.stores.catalog.tags import StoredTag, Tags
from protoslice.stores.collection.census import Census, TagCensus
from protoslice.stores.collection.holders import Holders, UnreadableManifest
from protoslice.stores.layout import keys
from protoslice.stores.layout.indexes import IndexEntry, Indexes, is_mark, owner_of, place_in_time
from protoslice.stores.manifest import STORE

SETTLED_SECONDS: Final = 2 * RENEW_SECONDS
"""Age in seconds below which no tag entry, removal mark or probe is collected, whatever the grace is.

No claim protects those. A writer of a tag that takes longer than half of this writes the entry again.
"""


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
        tags = await TagCensus.of(self._storage, self._census.borne)
        self.tags = len(tags)
        await each_concurrently(self._remove_entry, self._entries())
        await each_concurrently(self._remove_mark_by_tag, self._marks_by_tags())
        await each_concurrently(self._remove_entry_of_file, self._entries_of_files())
        await each_concurrently(self._remove_entry_of_piece, self._entries_of_pieces())
        await each_concurrently(self._remove_entry_of_tag, self._entries_of_tags(tags))
        await each_concurrently(self._note, self._unnoted(tags))
        await each_concurrently(self._remove_unless_changed, self._marks(tags))
        await each_concurrently(self._remove_mark_of_store, self._marks_of_stores())

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
                if old and not self._census.is_current(IndexEntry.parse(item.key).place):
                    yield item

    async def _remove_entry(self, item: ObjectStat) -> bool:
        """Delete an entry or a mark that is over, unless a manifest is at its place; True when deleted."""
        entry = IndexEntry.parse(item.key)
        try:
            manifests = await self._holders.of_store(entry.store)
        except UnreadableManifest:
            return False
        if any(place_in_time(manifest) == entry.place for manifest in manifests) or not await self.is_over(item):
            return False
        # Entries go before their mark.
        if is_mark(item.key):
            for each in await self._beside(item.key):
                await self._remove_entry(each)
            if await self._beside(item.key):
                return False
        await self._storage.delete(item.key)
        return True

    async def _beside(self, mark: ObjectKey) -> list[ObjectStat]:
        """The entry that a mark is about, if it is there."""
        page = await self._storage.list(ObjectKey("/".join(mark.segments[:-1])), after=mark, limit=1)
        return [each for each in page.items if IndexEntry.parse(each.key).place == IndexEntry.parse(mark).place]

    async def _marks_by_tags(self) -> AsyncIterator[ObjectStat]:
        """Marks of stores that are not at the place where they were made."""
        async for item in self._storage.iterate(keys.BY_NAME):
            place = item.key.segments[-1].rpartition("!")[2]
            if item.modified.timestamp() < self._settled and not self._census.is_current(place):
                yield item

    async def _remove_mark_by_tag(self, item: ObjectStat) -> None:
        """Delete the mark of a store that is over, once the tag does not say that it is there."""
        quoted, _, place = item.key.segments[-1].rpartition("!")
        tag = await self._tags.get_or_none(unquote(quoted))
        if (tag is None or tag.made is None or tag.made.place != place) and await self.is_over(item):
            await self._storage.delete(item.key)

    async def _entries_of_files(self) -> AsyncIterator[ObjectStat]:
        """Entries of files that came with no present store."""
        async for item in self._storage.iterate(keys.BY_FILE):
            if item.modified.timestamp() < self._before and not self._census.is_current(item.key.segments[-1]):
                yield item

    async def _remove_entry_of_file(self, item: ObjectStat) -> None:
        if await self._files.is_over(item):
            await self._storage.delete(item.key)

    async def _entries_of_pieces(self) -> AsyncIterator[ObjectStat]:
        """Entries of pieces of stores that no longer exist."""
        async for item in self._storage.iterate(keys.BY_PIECE):
            if item.modified.timestamp() < self._settled and not self._census.has(store_of(item.key.segments[-1])):
                yield item

    async def _remove_entry_of_piece(self, item: ObjectStat) -> None:
        store = store_of(item.key.segments[-1])
        # Behind the table: where that is, a store that comes again is found by its entries.
        if not await self._is_store(store) and not (await self._storage.list(keys.DERIVED / store, limit=1)).items:
            await self._remove_unless_changed(item)

    async def _entries_of_tags(self, tags: TagCensus) -> AsyncIterator[ObjectStat]:
        """Entries of missing tags, of stores unmarked or gone, and of tags with several, good or not."""
        repeated = set[str]()
        async for item in self._storage.iterate(keys.BY_STORE):
            name, old = item.key.segments[-1], item.modified.timestamp() < self._settled
            count = tags.see(name)
            if count > 1:
                repeated.add(name)
            elif old and not (count and self._census.is_looked_at(item.key.segments[-2])):
                yield item
        if repeated:
            async for item in self._storage.iterate(keys.BY_STORE):
                if item.key.segments[-1] in repeated and item.modified.timestamp() < self._settled:
                    yield item

    async def _remove_entry_of_tag(self, item: ObjectStat) -> None:
        store, name = item.key.segments[-2], keys.name_of(item.key)
        if not await self._is_set(store, name):
            await self._remove_unless_changed(item)
        elif not self._census.is_looked_at(store):
            # A store that came again, with a tag that its removal left or that was set too late to be seen there.
            with suppress(UnreadableManifest):
                await map_concurrently(Indexes(self._storage).mark, await self._holders.of_store(store))

    async def _unnoted(self, tags: TagCensus) -> AsyncIterator[ObjectStat]:
        """Old tags without an entry: each came so late that its entry had been collected."""
        if tags.has_unseen:
            async for item in self._storage.iterate(keys.TAGS):
                if item.modified.timestamp() < self._settled and tags.is_unseen(item.key.segments[-1]):
                    yield item

    async def _note(self, item: ObjectStat) -> None:
        """Remove a tag that points at nothing; note another one where its store looks for it."""
        tag = await self._tags.get_or_none(keys.name_of(item.key))
        if tag is not None and await self._is_set(tag.store, tag.name):
            with suppress(UnreadableManifest):
                for manifest in await self._holders.of_store(tag.store):
                    await Indexes(self._storage).add_tag(manifest, tag.name)

    async def _is_set(self, store: str, name: str) -> bool:
        """True when a tag points at a store, or is damaged. Removes dangling tags."""
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
        """Old marks in the place of removed tags."""
        # Without conditional deletes the others stay: deleting one could hit what was written in its place, and no
        # order of other calls prevents that, as a delete may take effect long after it was sent.
        for item in tags.marks:
            if item.modified.timestamp() < self._settled:
                yield item

    async def _marks_of_stores(self) -> AsyncIterator[ObjectStat]:
        """Old marks in the place of manifests, where they can go."""
        for item in self._census.marks if self._storage.abilities.conditional_delete else []:
            if item.modified.timestamp() < self._settled:
                yield item

    async def _remove_mark_of_store(self, item: ObjectStat) -> None:
        # The mark of a removal stays as long as the removal can be taken back, and tags may be left of it.
        if not await self._is_store(item.key.segments[-1]):
            await self._remove_unless_changed(item)

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
