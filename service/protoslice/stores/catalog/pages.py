"""Pages of stores, newest first, at a cost that depends on the page and not on the number of stores."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress

from protoslice.concurrency.gather import map_concurrently
from protoslice.errors import Conflict, IntegrityError, NotFound
from protoslice.facts import Store
from protoslice.storage import ObjectStat, Storage
from protoslice.stores.catalog.manifests import Manifests
from protoslice.stores.catalog.tags import Tags
from protoslice.stores.layout.indexes import Indexes, check_cursor, place_in_time, store_at
from protoslice.stores.manifest import Manifest
from protoslice.stores.paging import PageBudget, ResultPage

__all__ = ["StorePages"]

TAGS_SHOWN = 100
"""Tags shown with a store, at most; `Tags.of` pages through all of them."""

_log = logging.getLogger(__name__)


class StorePages:
    """Listings of the stores in one storage."""

    def __init__(self, storage: Storage, manifests: Manifests, tags: Tags) -> None:
        self._indexes = Indexes(storage)
        self._manifests = manifests
        self._tags = tags

    async def described(self, manifest: Manifest) -> Store:
        """The store of `manifest` as the API shows it, with up to `TAGS_SHOWN` tags."""
        tags = await self._tags.of(manifest.id, limit=TAGS_SHOWN)
        return manifest.as_store(sorted(tag.name for tag in tags.items))

    async def page(self, *, tag: str | None, type: str | None, limit: int, cursor: str | None) -> ResultPage[Store]:
        """A page of stores, newest first; filtered by `tag`, a prefix of tag names, and by `type`."""
        after = check_cursor(cursor)
        if tag is not None:
            return await self._tagged(tag, type, limit, after)
        while True:
            page = await self._indexes.newest(type=type, limit=limit, cursor=after)
            items, count = await self._shown(page.items, limit)
            after = page.next if count == len(page.items) else page.items[count - 1]
            if items or after is None:
                return ResultPage(items, after)

    async def _tagged(self, prefix: str, type: str | None, limit: int, cursor: str | None) -> ResultPage[Store]:
        async def place(store_id: str) -> str | None:
            manifest = await self._manifest_or_none(store_id)
            if manifest is None or type not in {None, manifest.shown_type}:
                return None
            return place_in_time(manifest)

        tagged = {tag.store for tag in await self._tags.beginning_with(prefix)}
        places = sorted(found for found in await map_concurrently(place, sorted(tagged)) if found is not None)
        left = [each for each in places if cursor is None or each > cursor]
        items, count = await self._shown(left[:limit], limit)
        return ResultPage(items, None if count == len(left) else left[count - 1])

    async def _shown(self, places: Sequence[str], limit: int) -> tuple[Sequence[Store], int]:
        """Stores at the first of `places`, and the number of places covered until the page is full."""
        room = PageBudget(limit)
        stats = await map_concurrently(self._manifests.stat, [store_at(place) for place in places])
        count = next((n for n, stat in enumerate(stats) if not room.takes(stat.size if stat else 0)), len(places))
        found = await map_concurrently(self._listed, list(zip(places, stats, strict=True))[:count])
        return [info for info in found if info is not None], count

    async def _listed(self, seen: tuple[str, ObjectStat | None]) -> Store | None:
        """The store of an index entry; None when it is gone, damaged or indexed elsewhere by now."""
        place, stat = seen
        manifest = await self._manifest_or_none(store_at(place), stat) if stat is not None else None
        return await self.described(manifest) if manifest is not None and place_in_time(manifest) == place else None

    async def _manifest_or_none(self, store_id: str, stat: ObjectStat | None = None) -> Manifest | None:
        try:
            with suppress(Conflict):  # replaced since `stat`
                if stat is not None:
                    return await self._manifests.content(stat)
            return await self._manifests.get(store_id)
        except NotFound:
            return None
        except IntegrityError:
            _log.exception("the store %s is left out of a list", store_id)
            return None
