"""Pages of stores, at a cost that depends on the page and not on the number of stores."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from types import MappingProxyType

from protoslice.concurrency.gather import WINDOW, both, map_concurrently
from protoslice.concurrency.singleflight import SingleFlight
from protoslice.errors import IntegrityError, NotFound
from protoslice.facts import Store
from protoslice.storage import Storage
from protoslice.stores.catalog.manifests import Manifests
from protoslice.stores.catalog.tags import StoredTag, Tags
from protoslice.stores.layout.indexes import IndexEntry, Indexes, MarkedTags, check_cursor, place_in_time
from protoslice.stores.manifest import Manifest
from protoslice.stores.paging import PageBudget, ResultPage

TAGS_SHOWN = 100
"""Tags shown with a store, at most; `Tags.of` pages through all of them."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Listed:
    """Store of a list, and its place in time or the tag by which it is listed."""

    store: str
    cursor: str
    tags: Mapping[str, StoredTag] = field(default_factory=dict)
    """Tags of the page, by name, which were read to find its stores."""
    borne: tuple[str, ...] | None = None
    """Tags with which the store was sent; None for a store that is to be looked at in full."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """Listed store as it was found, with the first of its tags."""

    entry: _Listed
    size: int
    """Bytes of the manifest or of the facts in its place; 0 when there are none that can be read."""
    manifest: Manifest | None
    """Manifest; None when it is long too, and read once there is room for it."""
    tags: ResultPage[StoredTag]
    made: Store | None = None
    """Store as it was made, as one of its tags has it, in place of the manifest."""


class _TagReads:
    """Tags read for one page, each once: stores may have been sent with the same ones."""

    def __init__(self, tags: Tags) -> None:
        self._tags = tags
        self._reads: SingleFlight[str, StoredTag | None] = SingleFlight(stops=True)
        self._read: dict[str, StoredTag | None] = {}

    async def get(self, name: str) -> StoredTag | None:
        """The tag called `name`; None when there is none that can be read."""
        if name not in self._read:
            self._read[name] = await self._reads.get(name, lambda: self._tags.get_or_none(name))
        return self._read[name]


class StorePages:
    """Listings of the stores in one storage."""

    def __init__(self, storage: Storage, manifests: Manifests, tags: Tags) -> None:
        self._indexes = Indexes(storage)
        self._manifests = manifests
        self._tags = tags
        self._long_reads = asyncio.Lock()

    async def get(self, store_id: str, tag: StoredTag | None = None) -> Store:
        """The store as the API shows it, with up to `TAGS_SHOWN` tags; `tag` is one that was read just now."""
        known = {tag.name: tag} if tag is not None else {}
        manifest, later = await both(
            lambda: self._manifests.get(store_id), lambda: self._tags.later(store_id, TAGS_SHOWN)
        )
        return _shown(manifest, await self._tags_of(manifest, known, later))

    async def outline(self, store_id: str) -> Store:
        """The store without its tags, by one read; long manifests are read one at a time."""
        _, manifest = await self._manifests.peek(store_id)
        if manifest is None:
            async with self._long_reads:
                manifest = await self._manifests.get(store_id)
        return manifest.as_store(())

    async def lasting(self, manifest: Manifest) -> Sequence[StoredTag]:
        """Up to `TAGS_SHOWN` tags of a store, by its manifest read just now; `NotFound` if objects may go.

        A tag that was set after the claims had been held spares the look at them.
        """
        tags = (await self._tags_of(manifest, {})).items
        if not any(tag.shows_lasting(manifest) for tag in tags):
            await self._manifests.check_lasting(manifest)
        return tags

    async def described(self, manifest: Manifest, known: Mapping[str, StoredTag] = MappingProxyType({})) -> Store:
        """The store of a manifest that was read just now, as were the tags `known`; see `get`."""
        return _shown(manifest, await self._tags_of(manifest, known))

    async def page(self, *, tag: str | None, type: str | None, limit: int, cursor: str | None) -> ResultPage[Store]:
        """A page of stores, newest first, filtered by `type`.

        With `tag`, a prefix of tag names: the stores of those tags in the order of the names, each at its first. Such a
        page may hold fewer stores than there is room for, or none, and yet be followed by another.
        """
        while True:
            page = await (self._by_time(type, limit, cursor) if tag is None else self._by_tag(tag, limit, cursor))
            seen = await self._fitting(page.items, limit, _TagReads(self._tags))
            found = [info for info in await map_concurrently(lambda each: self._listed(each, tag, type), seen) if info]
            cursor = page.next if len(seen) == len(page.items) else page.items[len(seen) - 1].cursor
            # Pages by tags may go on empty: their stores are shown at other tags, or have other types.
            if found or cursor is None or tag is not None:
                return ResultPage(found, cursor)

    async def _by_time(self, type: str | None, limit: int, cursor: str | None) -> ResultPage[_Listed]:
        page = await self._indexes.newest(type=type, limit=limit, cursor=check_cursor(cursor))
        return ResultPage([_listed_at(entry) for entry in page.items], page.next)

    async def _by_tag(self, prefix: str, limit: int, cursor: str | None) -> ResultPage[_Listed]:
        page, marked = await self._tags.beginning_with(prefix, limit=limit, cursor=cursor)
        tags = {tag.name: tag for tag in page.items}
        firsts = {tag.store: tag for tag in reversed(page.items)}
        return ResultPage(
            [
                _Listed(tag.store, tag.name, tags, _borne_by(tag, marked))
                for tag in page.items
                if firsts[tag.store] is tag
            ],
            page.next,
        )

    async def _fitting(self, entries: Sequence[_Listed], limit: int, reads: _TagReads) -> Sequence[_Seen]:
        """The first of `entries`, as many as fit on a page."""
        room, fitting = PageBudget(limit), list[_Seen]()
        for at in range(0, len(entries), WINDOW):
            seen = await map_concurrently(lambda entry: self._seen(entry, reads), entries[at : at + WINDOW])
            fitting += takewhile(lambda each: room.takes(each.size), seen)
            if len(fitting) < at + len(seen):
                break
        return fitting

    async def _seen(self, entry: _Listed, reads: _TagReads) -> _Seen:
        try:
            return await (self._looked_at(entry) if entry.borne is None else self._as_made(entry, entry.borne, reads))
        except NotFound:
            pass
        except IntegrityError:
            _log.exception("store %s is unreadable and was left out of a list", entry.store)
        return _Seen(entry, 0, None, ResultPage(()))

    async def _looked_at(self, entry: _Listed) -> _Seen:
        """The store of an entry by its manifest, with all of its tags."""
        (size, manifest), later = await both(
            lambda: self._manifests.peek(entry.store), lambda: self._tags.later(entry.store, TAGS_SHOWN)
        )
        borne = (manifest.tags if manifest is not None else None) or ()
        tags = await self._tags.of(entry.store, borne, limit=TAGS_SHOWN, known=entry.tags, later=later)
        return _Seen(entry, size, manifest, tags)

    async def _as_made(self, entry: _Listed, borne: Sequence[str], reads: _TagReads) -> _Seen:
        """The store of an entry that bears no mark: it exists if a tag set by its upload says so."""
        read = await map_concurrently(reads.get, [name for name in borne if name not in entry.tags])
        known = (entry.tags[name] for name in borne if name in entry.tags)
        tags = [tag for tag in (*read, *known) if tag is not None and tag.store == entry.store]
        for tag in tags:
            if tag.made is not None and entry.cursor in {tag.made.place, tag.name}:
                return _Seen(entry, tag.weight, None, ResultPage(tags[:TAGS_SHOWN]), tag.made.store)
        size, manifest = await self._manifests.peek(entry.store)
        return _Seen(entry, size, manifest, ResultPage(tags[:TAGS_SHOWN]))

    async def _listed(self, seen: _Seen, prefix: str | None, type: str | None) -> Store | None:
        """The store of an entry; None when it is gone, damaged, or listed elsewhere."""
        manifest, cursor = seen.manifest, seen.entry.cursor
        if seen.made is not None:
            tags = sorted(tag.name for tag in seen.tags.items)
            first = next((name for name in tags if prefix is not None and name.startswith(prefix)), None)
            fits = prefix is None or (first == cursor and type in {None, seen.made.type})
            return replace(seen.made, tags=tuple(tags)) if fits else None
        try:
            if manifest is None and seen.size:
                manifest = await self._manifests.get(seen.entry.store)
                seen = replace(seen, tags=await self._tags_of(manifest, seen.entry.tags))
        except NotFound:
            return None
        except IntegrityError:
            _log.exception("the store %s is unreadable and was left out of a list", seen.entry.store)
        if manifest is None:
            return None
        if prefix is None:
            return _shown(manifest, seen.tags) if place_in_time(manifest) == cursor else None
        fits = type in {None, manifest.shown_type} and await self._first(seen, manifest, prefix) in {cursor, None}
        return _shown(manifest, seen.tags) if fits else None

    async def _first(self, seen: _Seen, manifest: Manifest, prefix: str) -> str | None:
        """The first tag of a store by which it is listed; None when all have gone since."""
        if seen.tags.next is not None:
            return await self._tags.first_of(manifest.id, manifest.tags or (), prefix)
        return min((tag.name for tag in seen.tags.items if tag.name.startswith(prefix)), default=None)

    async def _tags_of(
        self, manifest: Manifest, known: Mapping[str, StoredTag], later: ResultPage[str] | None = None
    ) -> ResultPage[StoredTag]:
        return await self._tags.of(manifest.id, manifest.tags or (), limit=TAGS_SHOWN, known=known, later=later)


def _listed_at(entry: IndexEntry) -> _Listed:
    return _Listed(entry.store, entry.place, borne=None if entry.is_marked else entry.tags)


def _borne_by(tag: StoredTag, marked: MarkedTags) -> tuple[str, ...] | None:
    """Tags that the store of a tag was sent with; None for a store that is to be looked at in full."""
    made = tag.made
    return made.borne if made is not None and tag.is_prompt and not marked.has(tag.name, made.place) else None


def _shown(manifest: Manifest, tags: ResultPage[StoredTag]) -> Store:
    return manifest.as_store(sorted(tag.name for tag in tags.items))
