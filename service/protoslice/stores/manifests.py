"""The manifests in a storage: found, published, removed. A store is there exactly when its manifest is."""

from __future__ import annotations

from collections.abc import Sequence

from protoslice.errors import Conflict, IntegrityError, InvalidInput, NotFound, StorageUnavailable
from protoslice.storage import ObjectKey, ObjectStat, Storage
from protoslice.stores import keys
from protoslice.stores.model import Manifest
from protoslice.stores.paths import is_id
from protoslice.stores.recent import Recent

__all__ = ["Manifests", "behind", "cursor_of"]

TRIES = 8
"""How often something is looked at again that others keep changing meanwhile."""


CACHED_BYTES = 16 << 20
"""How much of them is kept, as they are written: some ten thousand manifests of usual size."""
_MOST = 1 << 20


class Manifests:
    """Manifests by id, cached by entity tag: another replica may have removed a store, and taken it in again."""

    def __init__(self, storage: Storage, *, cached_bytes: int = CACHED_BYTES) -> None:
        self._storage = storage
        self._cache: Recent[str, tuple[str, Manifest]] = Recent(most=_MOST, room=cached_bytes)

    async def get(self, store_id: str) -> Manifest:
        """The manifest of a store; `NotFound` when there is no such store."""
        for _ in range(TRIES):
            try:
                return await self.content(await self._storage.stat(keys.store(store_id)))
            except NotFound:
                self._cache.drop(store_id)
                raise NotFound(f"there is no store {store_id}") from None
            except Conflict:
                continue  # taken in anew since it was looked at
        raise StorageUnavailable(f"the store {store_id} keeps changing")

    async def content(self, stat: ObjectStat) -> Manifest:
        """The manifest that lies there; `Conflict` when it is another by now."""
        store_id = stat.key.segments[-1]
        cached = self._cache.get(store_id)
        if cached is not None and cached[0] == stat.etag:
            return cached[1]
        manifest = Manifest.decode(await self._storage.get_range(stat.key, 0, stat.size, if_etag=stat.etag))
        if manifest.id != store_id:
            raise IntegrityError(f"the manifest of store {store_id} is that of another store")
        self._cache.put(store_id, (stat.etag, manifest), stat.size)
        return manifest

    async def publish(self, manifest: Manifest) -> Manifest:
        """Make the store, in one step; the manifest that is there now, which may be an older one of the same store."""
        for _ in range(TRIES):
            try:
                await self._storage.put_if_absent(keys.store(manifest.id), manifest.encode())
                return manifest
            except Conflict:
                try:
                    return await self.get(manifest.id)
                except NotFound:
                    continue  # removed meanwhile: there is room now
        raise StorageUnavailable(f"the store {manifest.id} keeps changing")

    async def remove(self, store_id: str) -> None:
        """Remove a store, in one step. What its manifest said is kept, so that its objects are until nobody reads."""
        key = keys.store(store_id)
        try:
            content = await self._storage.get_range(key, 0, (await self._storage.stat(key)).size)
        except NotFound:
            raise NotFound(f"there is no store {store_id}") from None
        await self._storage.put_if_absent(keys.new_removed(), content)
        await self._storage.delete(key)
        self._cache.drop(store_id)

    async def starting_with(self, prefix: str) -> str:
        """The one id that begins so."""
        page = await self._storage.list(keys.STORES, after=keys.store(prefix), limit=2)
        found = [item.key.segments[-1] for item in page.items if item.key.segments[-1].startswith(prefix)]
        if len(found) > 1:
            raise InvalidInput(f"{prefix!r} is the beginning of several ids: give more of it")
        if not found:
            raise NotFound(f"there is no store whose id begins with {prefix!r}")
        return found[0]

    async def newest(self) -> Sequence[ObjectStat]:
        """All stores, newest first."""
        found: list[ObjectStat] = []
        after: ObjectKey | None = None
        while True:
            page = await self._storage.list(keys.STORES, after=after)
            found.extend(page.items)
            after = page.after
            if after is None:
                return sorted(found, key=_place)


def _place(stat: ObjectStat) -> tuple[int, str]:
    """Where a store stands in a list, whatever else is in it."""
    return -round(stat.modified.timestamp() * 1_000_000), stat.key.segments[-1]


def cursor_of(stat: ObjectStat) -> str:
    """A cursor to go on behind this store, even if it is removed."""
    time, store_id = _place(stat)
    return f"{-time:x}-{store_id}"


def behind(stats: Sequence[ObjectStat], cursor: str | None) -> Sequence[ObjectStat]:
    """What comes behind the store that `cursor` was made for."""
    if cursor is None:
        return stats
    time, _, store_id = cursor.partition("-")
    try:
        place = (-int(time, 16), store_id)
    except ValueError:
        place = (0, "")
    if not is_id(store_id):
        raise InvalidInput("this cursor was not given by this service")
    return [stat for stat in stats if _place(stat) > place]
