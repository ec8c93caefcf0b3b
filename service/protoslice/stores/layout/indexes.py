"""Indexes: small objects whose keys answer a question by one listing, derived from manifests and tags.

An entry is written before the record it belongs to, and ignored unless that record agrees. So entries left by a crash
are garbage, and all of `indexes/` can be rebuilt from `stores/` and `tags/`.

The key of an entry bears the tags that its store was sent with. Before the store gets other tags or is removed, a mark
is written beside the entry. A list looks at marked stores in full, and believes of others that they are as they were
made, with those of their tags whose records agree.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from protoslice.concurrency.gather import both, map_concurrently
from protoslice.errors import Conflict, IntegrityError, InvalidInput, NotFound, ProtosliceError
from protoslice.storage import ObjectKey, ObjectStat, Storage
from protoslice.storage.interface import PAGE
from protoslice.storage.keys import MAX_SEGMENT_BYTES
from protoslice.stores.layout import keys
from protoslice.stores.manifest import Manifest
from protoslice.stores.paging import ResultPage

_CURSOR = re.compile(r"[0-9a-f]{14}-[0-9a-f]{64}")
_END_OF_TIME = 1 << 56
_PLACE: Final = 14 + 1 + 64
"""Letters of a place."""
_MARK: Final = "+"
"""Follows the place in the key of a mark; before `=`, so that a page with an entry shows its mark."""


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """Entry of an index, as its key and the mark beside it tell."""

    place: str
    tags: tuple[str, ...] | None
    """Tags that the store was sent with; None where the entry does not bear them, as in layout 2."""
    is_marked: bool = False

    @property
    def store(self) -> str:
        """Id of the store."""
        return self.place.partition("-")[2]

    @classmethod
    def parse(cls, key: ObjectKey) -> IndexEntry:
        """Entry at a key; of a mark, what the mark is about."""
        place, more = key.segments[-1][:_PLACE], key.segments[-1][_PLACE:]
        if more == _MARK:
            return cls(place, None, is_marked=True)
        return cls(place, tuple(filter(None, more.split("="))) if more.startswith("=") else None)


@dataclass(frozen=True, slots=True)
class MarkedTags:
    """Marks by tags, of one page of a listing."""

    marks: frozenset[str]
    last: str | None
    """Last mark of the page if more follow; of tags behind it nothing is known."""

    def has(self, tag: str, place: str) -> bool:
        """True where the store at `place`, which was sent with a tag, may not be as it was made."""
        mark = keys.by_name(tag, place).segments[-1]
        return mark in self.marks or (self.last is not None and mark > self.last)


def place_in_time(manifest: Manifest) -> str:
    """Beginning of the last key segment of a store's index entries, which sorts newer stores first."""
    return place_of(manifest.id, manifest.created)


def place_of(store_id: str, created: datetime) -> str:
    """Place of the store that was made then."""
    return f"{_END_OF_TIME - round(created.timestamp() * 1_000_000):014x}-{store_id}"


def borne(tags: Iterable[str]) -> tuple[str, ...]:
    """Tags of `tags` that an entry bears: as many as its key has room for, sorted."""
    room, found = MAX_SEGMENT_BYTES - _PLACE, list[str]()
    for name in dict.fromkeys(tags):
        if len(name) < room:
            room -= 1 + len(name)
            found.append(name)
    return tuple(sorted(found))


def entries_of(manifest: Manifest) -> tuple[ObjectKey, ...]:
    """Keys of a store's entries by time and, for a store with a root, by type and time."""
    tags = "" if manifest.tags is None else "=" + "=".join(manifest.tags)
    return tuple(folder / (place_in_time(manifest) + tags) for folder in _folders_of(manifest))


def marks_of(manifest: Manifest) -> tuple[ObjectKey, ...]:
    """Keys of the marks beside a store's entries, and of those by the tags that these bear."""
    place = place_in_time(manifest)
    beside = (folder / (place + _MARK) for folder in _folders_of(manifest))
    return (*beside, *(keys.by_name(name, place) for name in manifest.tags or ()))


def _folders_of(manifest: Manifest) -> tuple[ObjectKey, ...]:
    type_name = manifest.shown_type
    return (keys.BY_TIME, *([keys.by_type(type_name)] if type_name is not None else []))


def is_mark(key: ObjectKey) -> bool:
    """True for the mark beside an entry by time or type."""
    return key.segments[-1][_PLACE:] == _MARK


def check_cursor(cursor: str | None) -> str | None:
    """`cursor` unchanged; `InvalidInput` unless it is None or the place of an index entry."""
    if cursor is not None and not _CURSOR.fullmatch(cursor):
        raise InvalidInput("this cursor was not given by this service")
    return cursor


async def owner_of(storage: Storage, item: ObjectStat) -> str | None:
    """Attempt that wrote an index entry or a reference; None when the object is empty, gone or rewritten."""
    try:
        return (await storage.get_range(item.key, 0, item.size)).decode("ascii", "replace") or None
    except (NotFound, IntegrityError):  # gone or written anew, since it was listed
        return None


class Indexes:
    """Indexes of one storage."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def add(self, manifest: Manifest, references: Iterable[ObjectKey]) -> None:
        """Write a store's index entries and its `references` in the attempts it needs, before its manifest.

        Each holds the name of the attempt, whose claim tells a collector whether the entry may be deleted.
        """
        await self._write_all((*entries_of(manifest), *references), manifest.attempt.encode())

    async def _write_all(self, entries: Iterable[ObjectKey], owner: bytes) -> None:
        await map_concurrently(lambda key: self._write(key, owner), entries)

    async def _write(self, key: ObjectKey, owner: bytes) -> None:
        """Write an entry; an existing one is overwritten with the new owner."""
        try:
            # Nearly every entry is new, and creating takes no lock of a directory, as replacing does.
            await self._storage.put_if_absent(key, owner)
        except Conflict:
            await self._storage.put(key, owner)

    async def mark(self, manifest: Manifest) -> None:
        """Mark a store's entries: they say no longer how it is.

        A mark stays as long as the entry: the store may be removed by several and restored, in any order.
        """
        if manifest.tags is not None:  # else a list looks at the store in full anyway
            await self._write_all(marks_of(manifest), manifest.attempt.encode())

    async def release(self, manifest: Manifest) -> None:
        """Mark a store's entries and note the tags that they bear apart, before its manifest goes.

        Another manifest of the store may come, whose entries bear other tags.
        """
        await both(lambda: self.mark(manifest), lambda: self._note(manifest.id, manifest.tags or ()))

    async def _note(self, store_id: str, names: Iterable[str]) -> None:
        await map_concurrently(lambda name: self.note_tag(store_id, name), names)

    async def note_tag(self, store_id: str, name: str) -> None:
        """Note that a tag may point at a store."""
        # Random content: each write changes the entity tag, by which a collector knows what it has looked at.
        await self._storage.put(keys.by_store(store_id, name), secrets.token_hex(8).encode())

    async def release_all(self, store_id: str) -> Sequence[str]:
        """`release` of a store whose manifest cannot be read; the tags that its entries bear.

        Goes through both indexes, which takes a while: nothing else tells when the store was made.
        """
        found: set[str] = set()
        for folder in (keys.BY_TIME, keys.BY_TYPE):
            async for item in self._storage.iterate(folder):
                entry = IndexEntry.parse(item.key)
                if entry.store == store_id and entry.tags is not None:
                    owner = await owner_of(self._storage, item)
                    mark = ObjectKey("/".join((*item.key.segments[:-1], entry.place + _MARK)))
                    marks = (mark, *(keys.by_name(name, entry.place) for name in entry.tags))
                    await self._write_all(marks, (owner or "").encode())
                    found.update(entry.tags)
        await self._note(store_id, found)
        return sorted(found)

    async def drop(self, manifest: Manifest) -> None:
        """Delete a store's index entries, ignoring storage errors: what remains is garbage."""
        with suppress(ProtosliceError):
            await map_concurrently(self._storage.delete, entries_of(manifest))

    async def newest(self, *, type: str | None, limit: int, cursor: str | None) -> ResultPage[IndexEntry]:
        """A page of index entries, newest store first; of all stores or those of a type."""
        folder = keys.BY_TIME if type is None else keys.by_type(type)
        after = None if cursor is None else folder / f"{cursor}=~"  # behind the entry, whatever tags it bears
        while True:
            # Each entry may have a mark.
            page = await self._storage.list(folder, after=after, limit=min(2 * limit, max(limit, PAGE)))
            entries: dict[str, IndexEntry] = {}
            marked = {IndexEntry.parse(item.key).place for item in page.items if is_mark(item.key)}
            for entry in (IndexEntry.parse(item.key) for item in page.items if not is_mark(item.key)):
                entries.setdefault(entry.place, IndexEntry(entry.place, entry.tags, entry.place in marked))
            found = [*entries.values()]
            more = page.after is not None or len(found) > limit
            if found or not more:
                return ResultPage(found[:limit], found[:limit][-1].place if more else None)
            after = page.after  # marks alone, whose entries are gone

    async def marked(self, prefix: str, cursor: str | None) -> MarkedTags:
        """Marks by tags that begin with `prefix`, of which the first come behind `cursor`."""
        after = keys.before_tags(prefix, keys.BY_NAME) if cursor is None else keys.by_name(cursor, "~")
        page = await self._storage.list(keys.BY_NAME, after=after)
        marks = frozenset(item.key.segments[-1] for item in page.items)
        return MarkedTags(marks, None if page.after is None else page.after.segments[-1])

    @asynccontextmanager
    async def tagged(self, manifest: Manifest, name: str, late_after: float) -> AsyncIterator[None]:
        """Context in which a tag is set: notes it before, and again after `late_after` seconds."""
        if name in (manifest.tags or ()):  # the entries of the store bear it
            yield
            return
        begun = asyncio.get_running_loop().time()
        await self.add_tag(manifest, name)
        yield
        # A collector may have deleted the old entry because no tag agreed with it yet.
        if asyncio.get_running_loop().time() - begun > late_after:
            await self.add_tag(manifest, name)

    async def add_tag(self, manifest: Manifest, name: str) -> None:
        """Note a tag that the entries of its store do not bear, and mark these."""
        await both(lambda: self.note_tag(manifest.id, name), lambda: self.mark(manifest))

    async def renew(self, manifest: Manifest, renewed: Manifest, tags: Iterable[str]) -> None:
        """Delete entries and notes of tags that a renewed manifest does not need, in an idle storage."""
        outdated = {*entries_of(manifest), *marks_of(manifest)} - {*entries_of(renewed)}
        outdated |= {keys.by_store(renewed.id, name) for name in renewed.tags or ()}
        await map_concurrently(self._storage.delete, outdated)
        if not set(tags) <= {*(renewed.tags or ())}:
            await self.mark(renewed)

    async def tags(self, store_id: str, *, limit: int, cursor: str | None) -> ResultPage[str]:
        """A page of names of tags that were set later and may point at a store, in the order of their keys."""
        folder = keys.BY_STORE / store_id
        page = await self._storage.list(
            folder, after=None if cursor is None else keys.by_store(store_id, cursor), limit=limit
        )
        names = [keys.name_of(item.key) for item in page.items]
        return ResultPage(names, names[-1] if page.after is not None and names else None)
