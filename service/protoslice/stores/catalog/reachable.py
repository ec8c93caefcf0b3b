"""Garbage collection roots: all manifests, and the objects, attempts and index entries that they need."""

from __future__ import annotations

from protoslice.errors import Conflict, IntegrityError, NotFound
from protoslice.storage import ObjectKey, ObjectStat, Storage
from protoslice.stores.catalog.manifests import is_retired
from protoslice.stores.catalog.removed import tombstone_of
from protoslice.stores.layout import keys
from protoslice.stores.layout.indexes import entries_of
from protoslice.stores.manifest import Manifest

__all__ = ["ReachableObjects", "UnreadableManifest", "manifest_at"]


class UnreadableManifest(Exception):
    """An unreadable manifest, which might need any object."""

    def __init__(self, key: ObjectKey) -> None:
        super().__init__(key.text)
        self.key = key.text


class ReachableObjects:
    """Objects, attempts and index entries named by all manifests, including those in unexpired tombstones."""

    def __init__(self, storage: Storage, expired: set[ObjectKey]) -> None:
        self.stores: dict[str, Manifest] = {}
        self.removed: set[str] = set()
        """The ids of stores removed within the grace, which may have been sent again since."""
        self.attempts: set[str] = set()
        self.keys: set[str] = set()
        self.entries: set[ObjectKey] = set()
        """Keys of index entries, by time and by type."""
        self._storage = storage
        self._expired = expired
        """Keys of tombstones older than the grace period, which are ignored."""
        self._read: dict[ObjectKey, tuple[str, Manifest | None]] = {}

    async def read(self) -> None:
        """Read all manifests; those of an earlier `read` are fetched again only if their entity tags changed."""
        self.stores, self.removed, self.attempts, self.keys, self.entries = {}, set(), set(), set(), set()
        before, self._read = self._read, {}
        # Stores before tombstones: a store removed in between leaves a tombstone that the second listing shows.
        for folder in (keys.STORES, keys.REMOVED):
            async for item in self._storage.iterate(folder):
                if item.key not in self._expired:
                    known = before.get(item.key)
                    same = known is not None and known[0] == item.etag
                    read = known if known is not None and same else await manifest_at(self._storage, item)
                    self._read[item.key] = read
                    self._add(item.key, read[1])

    def etag(self, store_id: str) -> str:
        """Entity tag that the manifest of one of `stores` was read with."""
        return self._read[keys.store(store_id)][0]

    def _add(self, key: ObjectKey, manifest: Manifest | None) -> None:
        if manifest is None:
            return
        if key.segments[0] == keys.STORES.text:
            self.stores[manifest.id] = manifest
        else:
            self.removed.add(manifest.id)
        self.attempts |= manifest.attempts
        self.keys |= manifest.keys
        self.entries.update(entries_of(manifest))


async def manifest_at(storage: Storage, item: ObjectStat) -> tuple[str, Manifest | None]:
    """Entity tag and manifest of a listed object; the manifest is None when it was removed or withdrawn."""
    try:
        while True:
            try:
                data = await storage.get_range(item.key, 0, item.size, if_etag=item.etag)
                break
            except Conflict:
                item = await storage.stat(item.key)  # replaced by another copy of the same store
        if item.key.segments[0] == keys.STORES.text:
            return item.etag, None if is_retired(data) else Manifest.decode(data)
        return item.etag, tombstone_of(item.key, data).manifest
    except NotFound:
        return item.etag, None  # removed, which left a tombstone that is listed next
    except IntegrityError:
        raise UnreadableManifest(item.key) from None
