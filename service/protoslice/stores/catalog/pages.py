"""Pages of stores, at a cost that depends on the page and not on the number of stores."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from types import MappingProxyType

from protoslice.concurrency.gather import WINDOW, both, map_concurrently
from protoslice.errors import IntegrityError, NotFound
from protoslice.facts import Store
from protoslice.storage import Storage
from protoslice.stores.catalog.manifests import Manifests
from protoslice.stores.catalog.tags import StoredTag, Tags
from protoslice.stores.layout.indexes import Indexes, check_cursor, place_in_time, store_at
from protoslice.stores.manifest import Manifest
from protoslice.stores.paging import PageBudget, ResultPage

TAGS_SHOWN = 100
"""Tags shown with a store, at most; `Tags.of` pages through all of them."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Entry:
    """Entry of a list: a store, and its place in time or the tag by which it is listed."""

    store: str
    cursor: str
    tags: Mapping[str, StoredTag] = field(default_factory=dict)
    """Tags of the page, by name, which were read to find its stores."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """Listed store as it was found, with the first of its tags."""

    entry: _Entry
    size: int
    """Bytes of the manifest; 0 when there is none that can be read."""
    manifest: Manifest | None
    """Manifest; None when it is long too, and read once there is room for it."""
    tags: ResultPage[StoredTag]


class StorePages:
    """Listings of the stores in one storage."""

    def __init__(self, storage: Storage, manifests: Manifests, tags: Tags) -> None:
        self._indexes = Indexes(storage)
        self._manifests = manifests
        self._tags = tags

    async def get(self, store_id: str, tag: StoredTag | None = None) -> Store:
        """The store as the API shows it, with up to `TAGS_SHOWN` tags; `tag` is one that was read just now."""
        known = {tag.name: tag} if tag is not None else {}
        return _shown(*await both(lambda: self._manifests.get(store_id), lambda: self._tags_of(store_id, known)))

    async def described(self, manifest: Manifest, known: Mapping[str, StoredTag] = MappingProxyType({})) -> Store:
        """The store of a manifest that was read just now, as were the tags `known`; see `get`."""
        return _shown(manifest, await self._tags_of(manifest.id, known))

    async def page(self, *, tag: str | None, type: str | None, limit: int, cursor: str | None) -> ResultPage[Store]:
        """A page of stores, newest first, filtered by `type`.

        With `tag`, a prefix of tag names: the stores of those tags in the order of the names, each at its first. Such a
        page may hold fewer stores than there is room for, or none, and yet be followed by another.
        """
        while True:
            page = await (self._by_time(type, limit, cursor) if tag is None else self._by_tag(tag, limit, cursor))
            seen = await self._fitting(page.items, limit)
            found = [info for info in await map_concurrently(lambda each: self._listed(each, tag, type), seen) if info]
            cursor = page.next if len(seen) == len(page.items) else page.items[len(seen) - 1].cursor
            # Pages by tags may go on empty: their stores are shown at other tags, or have other types.
            if found or cursor is None or tag is not None:
                return ResultPage(found, cursor)

    async def newest(self, limit: int) -> Sequence[str]:
        """Ids of stores, newest first, by the index alone; some may be gone, or be there in a moment."""
        page = await self._indexes.newest(type=None, limit=limit, cursor=None)
        return list(dict.fromkeys(map(store_at, page.items)))

    async def _by_time(self, type: str | None, limit: int, cursor: str | None) -> ResultPage[_Entry]:
        page = await self._indexes.newest(type=type, limit=limit, cursor=check_cursor(cursor))
        return ResultPage([_Entry(store_at(place), place) for place in page.items], page.next)

    async def _by_tag(self, prefix: str, limit: int, cursor: str | None) -> ResultPage[_Entry]:
        page = await self._tags.beginning_with(prefix, limit=limit, cursor=cursor)
        tags = {tag.name: tag for tag in page.items}
        firsts = {tag.store: tag for tag in reversed(page.items)}
        return ResultPage(
            [_Entry(tag.store, tag.name, tags) for tag in page.items if firsts[tag.store] is tag], page.next
        )

    async def _fitting(self, entries: Sequence[_Entry], limit: int) -> Sequence[_Seen]:
        """The first of `entries`, as many as fit on a page."""
        room, fitting = PageBudget(limit), list[_Seen]()
        for at in range(0, len(entries), WINDOW):
            seen = await map_concurrently(self._seen, entries[at : at + WINDOW])
            fitting += takewhile(lambda each: room.takes(each.size), seen)
            if len(fitting) < at + len(seen):
                break
        return fitting

    async def _seen(self, entry: _Entry) -> _Seen:
        try:
            (size, manifest), tags = await both(
                lambda: self._manifests.peek(entry.store), lambda: self._tags_of(entry.store, entry.tags)
            )
            return _Seen(entry, size, manifest, tags)
        except NotFound:
            pass
        except IntegrityError:
            _log.exception("the store %s is left out of a list", entry.store)
        return _Seen(entry, 0, None, ResultPage(()))

    async def _listed(self, seen: _Seen, prefix: str | None, type: str | None) -> Store | None:
        """The store of an entry; None when it is gone, damaged, or listed elsewhere."""
        manifest, cursor = seen.manifest, seen.entry.cursor
        try:
            if manifest is None and seen.size:
                manifest = await self._manifests.get(seen.entry.store)
        except NotFound:
            return None
        except IntegrityError:
            _log.exception("the store %s is left out of a list", seen.entry.store)
        if manifest is None:
            return None
        if prefix is None:
            return _shown(manifest, seen.tags) if place_in_time(manifest) == cursor else None
        fits = type in {None, manifest.shown_type} and await self._first(seen, prefix) in {cursor, None}
        return _shown(manifest, seen.tags) if fits else None

    async def _first(self, seen: _Seen, prefix: str) -> str | None:
        """The first tag of a store by which it is listed; None when all have gone since."""
        if seen.tags.next is not None:
            return await self._tags.first_of(seen.entry.store, prefix)
        return min((tag.name for tag in seen.tags.items if tag.name.startswith(prefix)), default=None)

    async def _tags_of(self, store_id: str, known: Mapping[str, StoredTag]) -> ResultPage[StoredTag]:
        return await self._tags.of(store_id, limit=TAGS_SHOWN, known=known)


def _shown(manifest: Manifest, tags: ResultPage[StoredTag]) -> Store:
    return manifest.as_store(sorted(tag.name for tag in tags.items))
