"""Indexes: small objects whose keys answer a question by one listing, derived from manifests and tags.

An entry is written before the record it belongs to, and ignored unless that record agrees. So entries left by a crash
are garbage, and all of `indexes/` can be rebuilt from `stores/` and `tags/`.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress

from protoslice.concurrency.gather import map_concurrently
from protoslice.errors import Conflict, IntegrityError, InvalidInput, NotFound, ProtosliceError
from protoslice.storage import ObjectKey, ObjectStat, Storage
from protoslice.stores.layout import keys
from protoslice.stores.manifest import Manifest
from protoslice.stores.paging import ResultPage

_CURSOR = re.compile(r"[0-9a-f]{14}-[0-9a-f]{64}")
_END_OF_TIME = 1 << 56


def place_in_time(manifest: Manifest) -> str:
    """Last key segment of a store's index entries, which sorts newer stores first."""
    return f"{_END_OF_TIME - round(manifest.created.timestamp() * 1_000_000):014x}-{manifest.id}"


def entries_of(manifest: Manifest) -> tuple[ObjectKey, ...]:
    """Keys of a store's entries by time and, for a store with a root, by type and time."""
    place, type_name = place_in_time(manifest), manifest.shown_type
    return (keys.BY_TIME / place, *([keys.by_type(type_name) / place] if type_name is not None else []))


def store_at(place: str) -> str:
    """Store id in the last segment of an index entry."""
    return place.partition("-")[2]


def check_cursor(cursor: str | None) -> str | None:
    """`cursor` unchanged; `InvalidInput` unless it is None or the last segment of an index entry."""
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
        owner = manifest.attempt.encode()
        await map_concurrently(lambda key: self._write(key, owner), (*entries_of(manifest), *references))

    async def _write(self, key: ObjectKey, owner: bytes) -> None:
        """Write an entry; an existing one is overwritten with the new owner."""
        try:
            # Nearly every entry is new, and creating takes no lock of a directory, as replacing does.
            await self._storage.put_if_absent(key, owner)
        except Conflict:
            await self._storage.put(key, owner)

    async def drop(self, manifest: Manifest) -> None:
        """Delete a store's index entries, ignoring storage errors: what remains is garbage."""
        with suppress(ProtosliceError):
            await map_concurrently(self._storage.delete, entries_of(manifest))

    async def newest(self, *, type: str | None, limit: int, cursor: str | None) -> ResultPage[str]:
        """A page of last segments of index entries, newest store first; of all stores or those of a type."""
        folder = keys.BY_TIME if type is None else keys.by_type(type)
        page = await self._storage.list(folder, after=None if cursor is None else folder / cursor, limit=limit)
        places = [item.key.segments[-1] for item in page.items]
        return ResultPage(places, places[-1] if page.after is not None and places else None)

    @asynccontextmanager
    async def tagged(self, store_id: str, name: str, late_after: float) -> AsyncIterator[None]:
        """Context in which a tag is set: writes its index entry before, and again after `late_after` seconds."""
        begun = asyncio.get_running_loop().time()
        await self.add_tag(store_id, name)
        yield
        # A collector may have deleted the old entry because no tag agreed with it yet.
        if asyncio.get_running_loop().time() - begun > late_after:
            await self.add_tag(store_id, name)

    async def add_tag(self, store_id: str, name: str) -> None:
        """Write the index entry of a tag, with random content so that each write changes its entity tag."""
        await self._storage.put(keys.by_store(store_id, name), secrets.token_hex(8).encode())

    async def tags(self, store_id: str, *, limit: int, cursor: str | None) -> ResultPage[str]:
        """A page of names of tags that may point at a store, in the order of their keys."""
        folder = keys.BY_STORE / store_id
        page = await self._storage.list(
            folder, after=None if cursor is None else keys.by_store(store_id, cursor), limit=limit
        )
        names = [keys.name_of(item.key) for item in page.items]
        return ResultPage(names, names[-1] if page.after is not None and names else None)
