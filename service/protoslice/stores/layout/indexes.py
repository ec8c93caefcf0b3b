"""Indexes: tiny objects whose keys answer a question by one listing, made from manifests and tags.

An entry is written before what it points back to, and believed only when that agrees. So whatever a crash leaves of it
is garbage, and all of `indexes/` can be made anew from `stores/` and `tags/`.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from protoslice.errors import Conflict, IntegrityError, InvalidInput, NotFound, ProtosliceError
from protoslice.storage import ObjectKey, ObjectStat, Storage
from protoslice.stores.layout import keys
from protoslice.stores.layout.listing import side_by_side
from protoslice.stores.manifest import Manifest
from protoslice.stores.paging import ResultPage

__all__ = ["Indexes", "check_cursor", "entries_of", "owner_of", "place_in_time", "store_at"]

_CURSOR = re.compile(r"[0-9a-f]{14}-[0-9a-f]{64}")
_END_OF_TIME = 1 << 56


def place_in_time(manifest: Manifest) -> str:
    """The last segment of the entries of a store: newer stores come first, as texts are compared."""
    return f"{_END_OF_TIME - round(manifest.created.timestamp() * 1_000_000):014x}-{manifest.id}"


def entries_of(manifest: Manifest) -> tuple[ObjectKey, ...]:
    """The entries of a store by time, and by type and time where it has a root."""
    place, type_name = place_in_time(manifest), manifest.shown_type
    return (keys.BY_TIME / place, *([keys.by_type(type_name) / place] if type_name is not None else []))


def store_at(place: str) -> str:
    """The id of the store at a place in time."""
    return place.partition("-")[2]


def check_cursor(cursor: str | None) -> str | None:
    """`cursor`, if it is a place in time."""
    if cursor is not None and not _CURSOR.fullmatch(cursor):
        raise InvalidInput("this cursor was not given by this service")
    return cursor


async def owner_of(storage: Storage, item: ObjectStat) -> str | None:
    """The attempt that wrote an entry of a store, or its note in an attempt; None where that says nothing."""
    try:
        return (await storage.get_range(item.key, 0, item.size)).decode("ascii", "replace") or None
    except (NotFound, IntegrityError):  # gone or written anew, since it was listed
        return None


class Indexes:
    """The indexes in one storage."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def add(self, manifest: Manifest) -> None:
        """Write the entries of a store that is published next, and references in the attempts it needs.

        All of these hold the name of the attempt, whose claim tells a collector whether they may go.
        """
        references = (keys.reference(attempt, manifest.id) for attempt in sorted(manifest.attempts))
        owner = manifest.attempt.encode()
        await side_by_side(lambda key: self._write(key, owner), (*entries_of(manifest), *references))

    async def _write(self, key: ObjectKey, owner: bytes) -> None:
        """Write an entry; one that is there already is written anew, with its owner."""
        try:
            # Nearly every entry is new, and creating takes no lock of a directory, as replacing does.
            await self._storage.put_if_absent(key, owner)
        except Conflict:
            await self._storage.put(key, owner)

    async def drop(self, manifest: Manifest) -> None:
        """Remove the entries of a store that is gone; one that cannot be removed is garbage."""
        with suppress(ProtosliceError):
            await side_by_side(self._storage.delete, entries_of(manifest))

    async def newest(self, *, type: str | None, limit: int, cursor: str | None) -> ResultPage[str]:
        """A page of places, newest first: those of all stores, or those of a type. `next` is None at the end."""
        folder = keys.BY_TIME if type is None else keys.by_type(type)
        page = await self._storage.list(folder, after=None if cursor is None else folder / cursor, limit=limit)
        places = [item.key.segments[-1] for item in page.items]
        return ResultPage(places, places[-1] if page.after is not None and places else None)

    @asynccontextmanager
    async def tagged(self, store_id: str, name: str, late_after: float) -> AsyncIterator[None]:
        """Write that a store bears a tag, which is set inside; again where that took longer than `late_after` seconds.

        A collector may have found an entry that was old, and no tag yet that agreed with it.
        """
        begun = asyncio.get_running_loop().time()
        await self.add_tag(store_id, name)
        yield
        if asyncio.get_running_loop().time() - begun > late_after:
            await self.add_tag(store_id, name)

    async def add_tag(self, store_id: str, name: str) -> None:
        """Write that a store bears a tag; no two such entries are alike."""
        await self._storage.put(keys.by_store(store_id, name), secrets.token_hex(8).encode())

    async def tags(self, store_id: str, *, limit: int, cursor: str | None) -> ResultPage[str]:
        """A page of the names of tags that may point at a store, in the order of their keys."""
        folder = keys.BY_STORE / store_id
        page = await self._storage.list(
            folder, after=None if cursor is None else keys.by_store(store_id, cursor), limit=limit
        )
        names = [keys.name_of(item.key) for item in page.items]
        return ResultPage(names, names[-1] if page.after is not None and names else None)
