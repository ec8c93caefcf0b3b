"""Manifests of stores, by id, in memory as long as their rows stay."""

from __future__ import annotations

from typing import Final

from protoslice.catalog.stores import StoreRow, StoreTable
from protoslice.concurrency.executor import Worker
from protoslice.concurrency.lru import LruCache
from protoslice.errors import IntegrityError, InvalidInput, NotFound
from protoslice.stores.manifest import Manifest

CACHED_BYTES: Final = 16 << 20
"""Bytes of manifests in the cache, about: some five thousand of one small file."""
_ENTRY: Final = 1000
_FILE: Final = 400
"""Bytes of memory of a cached manifest and of each of its files, beside its encoded size."""
_MOST: Final = 1 << 20


class Manifests:
    """Manifests of the stores of one space."""

    def __init__(self, table: StoreTable, worker: Worker, *, cached_bytes: int = CACHED_BYTES) -> None:
        self._table = table
        self._worker = worker
        self._cache: LruCache[str, Manifest] = LruCache(most=_MOST, room=cached_bytes)

    async def get(self, store_id: str) -> Manifest:
        """Return the manifest of a store; raise `NotFound` if it does not exist."""
        known = self._cache.get(store_id)
        row = await self._table.get(store_id, None if known is None else known.row)
        if row is None:
            self._cache.drop(store_id)
            raise NotFound(f"No store {store_id}")
        return await self.of(row)

    async def of(self, row: StoreRow) -> Manifest:
        """Return the manifest of a row; raise `IntegrityError` if it is damaged."""
        known = self._cache.get(row.digest)
        if known is not None and known.row == row.id:
            return known
        data = row.manifest
        if data is None:
            again = await self._table.get(row.digest)  # it has left the cache meanwhile
            if again is None or again.manifest is None:
                raise NotFound(f"No store {row.digest}")
            row, data = again, again.manifest
        manifest = await self._worker.sized(len(data), lambda: Manifest.decode(data, row.id))
        if manifest.id != row.digest:
            raise IntegrityError(f"the manifest of store {row.digest} belongs to another store")
        self._cache.put(row.digest, manifest, len(data) + _ENTRY + _FILE * len(manifest.files))
        return manifest

    async def starting_with(self, prefix: str) -> str:
        """Return the only store id that begins with `prefix`.

        Raise `InvalidInput` if several do, `NotFound` if none does.
        """
        found = await self._table.starting_with(prefix)
        if len(found) > 1:
            raise InvalidInput(f"Several ids start with {prefix!r}: give more digits")
        if not found:
            raise NotFound(f"No store has an id that starts with {prefix!r}")
        return found[0]

    async def whole_id(self, prefix: str) -> str:
        """Return the only id of a store, or else of a removed one, that begins with `prefix`; `NotFound`."""
        try:
            return await self.starting_with(prefix)
        except NotFound:
            return await self.removed(prefix)

    async def removed(self, prefix: str) -> str:
        """Return the only id of a removed store that begins with `prefix`; see `starting_with`."""
        found = await self._table.starting_with(prefix, removed=True)
        if len(found) > 1:
            raise InvalidInput(f"Several removed stores have ids that start with {prefix!r}: give more digits")
        if not found:
            raise NotFound(
                f"No removed store has an id that starts with {prefix!r}: garbage collection may have deleted its data"
            )
        return found[0]
