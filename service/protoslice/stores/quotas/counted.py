"""Storage wrapper that counts objects and manifests of a space against its quota.

All content in the storage is written by these calls. Files and manifests in rows of the catalogue are counted where
they are written.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

from protoslice.concurrency.lru import LruCache
from protoslice.errors import Conflict, NotFound, QuotaExceeded
from protoslice.storage import ObjectKey, Storage, Writer
from protoslice.storage.interface import Buffer
from protoslice.storage.wrappers.interceptor import InterceptedStorage
from protoslice.stores.layout import keys
from protoslice.stores.quotas.room import SpaceRoom

T = TypeVar("T")

_REMEMBERED: Final = 1 << 13
"""Objects whose sizes are kept, so that a deletion by the replica that wrote one is counted at once."""


class CountedStorage(InterceptedStorage):
    """Storage of one space whose content is counted in `room`; `QuotaExceeded` when that is full."""

    def __init__(self, inner: Storage, room: SpaceRoom) -> None:
        super().__init__(inner)
        self.room = room
        self._sizes: LruCache[str, int] = LruCache(most=_REMEMBERED, room=_REMEMBERED)
        self._removed: LruCache[str, bool] = LruCache(most=_REMEMBERED, room=_REMEMBERED)

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        return await call()

    async def put_if_absent(self, key: ObjectKey, data: Buffer) -> str:
        if _is_manifest(key):
            return await self._published(key, data)
        if not is_content(key):
            return await self._inner.put_if_absent(key, data)
        size = memoryview(data).nbytes
        etag = await self._with_room(size, lambda: self._inner.put_if_absent(key, data))
        self.remember(key, size)
        return etag

    async def writer(self, key: ObjectKey) -> Writer:
        inner = await self._inner.writer(key)
        return _CountedWriter(self, key, inner) if is_content(key) else inner

    async def delete(self, key: ObjectKey, *, if_etag: str | None = None) -> None:
        await self._inner.delete(key, if_etag=if_etag)
        if _is_manifest(key):
            # Of several removals at once of one store, one counts.
            if self._removed.get(key.text) is None:
                self._removed.put(key.text, True, 1)
                self.room.give(stores=1)
            return
        size = self._sizes.get(key.text)
        if size is not None:
            self._sizes.drop(key.text)
            self.room.give(stored_bytes=size)

    def remember(self, key: ObjectKey, size: int) -> None:
        """Keep the size of an object that was written."""
        self._sizes.put(key.text, size, 1)

    async def _with_room(self, size: int, put: Callable[[], Awaitable[str]]) -> str:
        """Entity tag of an object that is put, for which there is room."""
        await self.room.take(stored_bytes=size)
        try:
            return await put()
        except Conflict:  # after any other error the object may be there
            self.room.give(stored_bytes=size)
            raise

    async def _published(self, key: ObjectKey, data: Buffer) -> str:
        try:
            await self.room.take(stores=1)
        except QuotaExceeded:
            with suppress(NotFound):  # a store that is there already takes no room
                await self._inner.stat(key)
                raise Conflict(f"an object {key} already exists") from None
            raise
        try:
            etag = await self._inner.put_if_absent(key, data)
        except Conflict:
            self.room.give(stores=1)
            raise
        self._removed.drop(key.text)
        return etag


class _CountedWriter(Writer):
    def __init__(self, storage: CountedStorage, key: ObjectKey, inner: Writer) -> None:
        self._storage = storage
        self._key = key
        self._inner = inner
        self._taken = 0

    @property
    def size(self) -> int:
        return self._inner.size

    async def write(self, piece: Buffer) -> None:
        size = memoryview(piece).nbytes
        await self._storage.room.take(stored_bytes=size)
        self._taken += size
        await self._inner.write(piece)

    async def commit(self) -> str:
        taken, self._taken = self._taken, 0  # from here on the object may be there, whatever is heard of it
        try:
            etag = await self._inner.commit()
        except Conflict:
            self._taken = taken
            raise
        self._storage.remember(self._key, taken)
        return etag

    async def abort(self) -> None:
        taken, self._taken = self._taken, 0
        self._storage.room.give(stored_bytes=taken)
        await self._inner.abort()


def is_content(key: ObjectKey) -> bool:
    """True for an object that holds content of an upload, which the quota of bytes is about."""
    return key.segments[0] == keys.OBJECTS.text and not keys.is_note(key)


def _is_manifest(key: ObjectKey) -> bool:
    return key.segments[0] == keys.STORES.text
