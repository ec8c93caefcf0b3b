"""Mutable records by name, changed by compare-and-set."""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

from protoslice.concurrency.gather import map_concurrently
from protoslice.concurrency.lru import LruCache
from protoslice.errors import Conflict, IntegrityError, InvalidInput, NotFound, ProtosliceError, StorageUnavailable
from protoslice.storage import ObjectContent, ObjectKey, ObjectStat, Storage
from protoslice.stores.envelope import seal, unseal
from protoslice.stores.layout import keys

_log = logging.getLogger(__name__)

Record = tuple[bytes, ObjectStat]

TRIES: Final = 8
_REMOVED: Final = b"removed "
"""Prefix of a removal mark; 16 random hex digits follow. Garbage collection deletes marks left behind."""
_MARK_SIZE: Final = 24
_CACHED_RECORDS: Final = 1 << 16
_CACHED_BYTES: Final = 8 << 20
_ENTRY: Final = 480
"""Bytes of a cached record beside its data, about: key, entity tag, time and their objects."""


def is_removal_mark(stat: ObjectStat) -> bool:
    """True when a listed record is a removal mark, by its size: sealed records are longer."""
    return stat.size == _MARK_SIZE


def is_removed(data: bytes) -> bool:
    """True for the content of a removal mark."""
    return data.startswith(_REMOVED)


class NamedRecords:
    """Records in one folder of a storage, cached by entity tag."""

    def __init__(self, storage: Storage, folder: ObjectKey, what: str) -> None:
        self._storage = storage
        self._folder = folder
        self._what = what
        self._cache: LruCache[ObjectKey, tuple[ObjectStat, bytes]] = LruCache(most=_CACHED_RECORDS, room=_CACHED_BYTES)

    async def read(self, key: ObjectKey) -> Record:
        """The current record at `key`; `NotFound` when it does not exist."""
        cached = self._cache.get(key)
        if cached is None:
            return self._unsealed(await self._storage.get(key))
        found = await self._storage.get_if_changed(key, cached[0].etag)
        return (cached[1], cached[0]) if found is None else self._unsealed(found)

    async def page(self, limit: int, cursor: str | None) -> tuple[list[Record], str | None]:
        """A page of records by name, and the cursor of the next page or None.

        Raises `IntegrityError` for a damaged record.
        """
        page = await self._storage.list(self._folder, after=after(self._folder, cursor), limit=limit)
        return await self.listed(page.items), page.after.segments[-1] if page.after else None

    async def listed(self, stats: tuple[ObjectStat, ...] | list[ObjectStat]) -> list[Record]:
        """Current contents of listed records, without those removed since."""

        async def current(stat: ObjectStat) -> Record | None:
            with suppress(NotFound):
                return await self._current(stat)
            return None

        return [record for record in await map_concurrently(current, stats) if record is not None]

    async def each(self) -> AsyncIterator[Record]:
        """All records by name; damaged ones are logged and skipped."""
        async for item in self._storage.iterate(self._folder):
            try:
                yield await self._current(item)
            except NotFound:
                continue
            except IntegrityError:
                _log.exception("the %s %r is unreadable and was skipped", self._what, keys.name_of(item.key))

    async def set(self, key: ObjectKey, data: bytes) -> tuple[str, bool]:
        """Create or replace a record; returns its entity tag and True when it is new."""
        sealed = seal(data)
        for left in reversed(range(TRIES)):
            try:
                return await self._storage.put_if_absent(key, sealed), True
            except Conflict:
                pass
            with suppress(Conflict, NotFound):
                there = await self._storage.get(key)
                removed = is_removed(there.data)
                # On condition, since a removal meanwhile makes the record new; the last try outdoes other writers.
                etag = there.stat.etag if removed or left else None
                return await self._storage.put(key, sealed, if_etag=etag), removed
        raise self._restless(key)

    async def create(self, key: ObjectKey, data: bytes) -> str:
        """Create a record and return its entity tag; `Conflict` when one exists.

        `data` must be unique to this call, so that a lost answer can be told from another's write.
        """
        sealed = seal(data)
        for _ in range(TRIES):
            try:
                return await self._storage.put_if_absent(key, sealed)
            except Conflict:
                pass
            try:
                found = await self._storage.get(key)
            except NotFound:
                continue  # removed since: try again
            if found.data == sealed:
                return found.stat.etag  # our own write, whose answer was lost
            if not is_removed(found.data):
                raise Conflict(f"The {self._what} {keys.name_of(key)!r} already exists")
            with suppress(Conflict):
                return await self._storage.put(key, sealed, if_etag=found.stat.etag)
        raise self._restless(key)

    async def replace(self, key: ObjectKey, data: bytes, etag: str) -> str:
        """Replace the record whose entity tag is `etag`, else `Conflict`. `data` must be unique to this call."""
        sealed = seal(data)
        try:
            return await self._storage.put(key, sealed, if_etag=etag)
        except Conflict:
            with suppress(NotFound):
                found = await self._storage.get(key)
                if found.data == sealed:
                    return found.stat.etag  # our own write, whose answer was lost
            raise Conflict(
                f"The {self._what} {keys.name_of(key)!r} was changed or removed by another request"
            ) from None

    async def remove(self, key: ObjectKey, etag: str | None) -> None:
        """Remove a record atomically; `NotFound` when it does not exist.

        With an `etag`, raises `Conflict` unless the record has that entity tag.
        """
        mark = _REMOVED + secrets.token_hex(8).encode()
        for _ in range(TRIES):
            found = await self._storage.get(key)
            if found.data == mark:  # our own write, whose answer was lost
                await self._drop_mark(key, found.stat.etag)
                return
            if is_removed(found.data):
                raise NotFound(f"No {self._what} {keys.name_of(key)!r}")
            if etag not in {None, found.stat.etag}:
                raise Conflict(f"The {self._what} {keys.name_of(key)!r} was changed by another request")
            with suppress(Conflict):
                # After a lost answer, a `Conflict` of a deletion cannot tell whose it was; a unique mark can be
                # compared.
                self._cache.drop(key)
                await self._drop_mark(key, await self._storage.put(key, mark, if_etag=found.stat.etag))
                return
        raise self._restless(key)

    async def _drop_mark(self, key: ObjectKey, etag: str) -> None:
        """Delete a removal mark where the storage has conditional deletes; a mark that stays is harmless."""
        if self._storage.abilities.conditional_delete:
            with suppress(ProtosliceError):
                await self._storage.delete(key, if_etag=etag)

    async def _current(self, stat: ObjectStat) -> Record:
        """The record listed as `stat` or its successor, unsealed; `NotFound` when it was removed."""
        cached = self._cache.get(stat.key)
        if cached is not None and cached[0].etag == stat.etag:
            return cached[1], stat
        return self._unsealed(await self._storage.get(stat.key))

    def _unsealed(self, found: ObjectContent) -> Record:
        """Data of a record, which is cached; `NotFound` for a removal mark."""
        stat = found.stat
        what = f"the {self._what} {keys.name_of(stat.key)!r}"
        if is_removed(found.data):
            raise NotFound(f"{what} was removed")
        data = unseal(found.data, what)
        self._cache.put(stat.key, (stat, data), len(data) + _ENTRY)
        return data, stat

    def _restless(self, key: ObjectKey) -> StorageUnavailable:
        return StorageUnavailable(
            f"The {self._what} {keys.name_of(key)!r} is being changed by other requests: try again"
        )


def after(folder: ObjectKey, cursor: str | None) -> ObjectKey | None:
    """Key of the last record of the page before; None on the first page, `InvalidInput` for no cursor."""
    if cursor is None:
        return None
    if "/" in cursor:
        raise InvalidInput("this cursor was not given by this service")
    return folder / cursor
