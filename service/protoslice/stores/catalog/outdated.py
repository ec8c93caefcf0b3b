"""Small records that nothing agrees with any more: index entries, tags of stores that are gone, removal marks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

from protoslice.errors import Conflict, IntegrityError, NotFound
from protoslice.storage import ObjectKey, ObjectStat, Storage
from protoslice.stores.catalog.claims import RENEW_SECONDS, Claims
from protoslice.stores.catalog.named_records import is_removal_mark
from protoslice.stores.catalog.needed import Needed, UnreadableManifest, manifest_at
from protoslice.stores.catalog.tags import StoredTag, Tags
from protoslice.stores.layout import keys
from protoslice.stores.layout.indexes import owner_of

__all__ = ["SETTLED_SECONDS", "Outdated"]

SETTLED_SECONDS: Final = 2 * RENEW_SECONDS
"""The youngest age of a tag's entry, a removal mark or a probe that a collector removes, however small its grace.

No claim protects those. A writer of a tag that takes longer than half of this enters it once more.
"""


class Outdated:
    """Finds and removes such records in one storage, by what its manifests need."""

    def __init__(self, storage: Storage, needed: Needed, *, before: float, settled: float) -> None:
        self._storage = storage
        self._needed = needed
        self._before = before
        self._settled = settled
        self._claims = Claims(storage)
        self._tags = Tags(storage)

    async def remove(self) -> None:
        """Remove all of them."""
        async for item in self._entries():
            await self._storage.delete(item.key)
        async for item in self._entries_of_tags():
            await self._remove_unless_changed(item)
        async for item in self._marks():
            await self._remove_unless_changed(item)

    async def is_over(self, item: ObjectStat) -> bool:
        """Whether the attempt that wrote an index entry, or the note of a store, can never become a store any more.

        That rests on the claim of the attempt alone: a writer publishes nothing under a doomed claim.
        """
        attempt = await owner_of(self._storage, item)
        if attempt is None:  # written by a program that did not say
            return item.modified.timestamp() < self._settled
        return await self._claims.is_over(attempt)

    async def _entries(self) -> AsyncIterator[ObjectStat]:
        for folder in (keys.BY_TIME, keys.BY_TYPE):
            async for item in self._storage.iterate(folder):
                old = item.modified.timestamp() < self._before  # a younger one costs no look at its claim
                if old and item.key not in self._needed.entries and await self.is_over(item):
                    yield item

    async def _entries_of_tags(self) -> AsyncIterator[ObjectStat]:
        async for item in self._storage.iterate(keys.BY_STORE):
            if item.modified.timestamp() < self._settled and not await self._is_set(item.key):
                yield item

    async def _is_set(self, entry: ObjectKey) -> bool:
        """Whether a tag points at the store that has an entry for it, as a damaged tag may. Removes dangling tags."""
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
        """Whether a store is there, or was removed within the grace: its remover has its tags in hand."""
        if store in self._needed.stores or store in self._needed.removed:
            return True
        try:
            _, manifest = await manifest_at(self._storage, await self._storage.stat(keys.store(store)))
        except NotFound:
            return False
        except UnreadableManifest:
            return True
        return manifest is not None

    async def _untie(self, tag: StoredTag) -> None:
        """Remove a tag that a broken removal left; `Conflict` when somebody has set it anew since."""
        with suppress(NotFound):
            await self._tags.delete(tag.name, if_match=tag.etag)

    async def _marks(self) -> AsyncIterator[ObjectStat]:
        # A manifest that was taken back stays where nothing is deleted on a condition: a store may come to its place.
        conditional = self._storage.abilities.conditional_delete
        for folder in (keys.TAGS, keys.SCHEMAS, *([keys.STORES] if conditional else [])):
            async for item in self._storage.iterate(folder):
                if item.modified.timestamp() < self._settled and is_removal_mark(item):
                    yield item

    async def _remove_unless_changed(self, item: ObjectStat) -> None:
        """Remove a record unless it was written anew since it was listed.

        Without conditional deletes, one that is written between the look and the deletion goes too: such a storage
        offers nothing better.
        """
        with suppress(Conflict, NotFound):
            if self._storage.abilities.conditional_delete:
                await self._storage.delete(item.key, if_etag=item.etag)
            elif (await self._storage.stat(item.key)).etag == item.etag:
                await self._storage.delete(item.key)
