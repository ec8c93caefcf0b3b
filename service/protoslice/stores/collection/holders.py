"""Holders of an attempt: manifests that name its objects, of stores and of unexpired tombstones."""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from itertools import compress

from protoslice.concurrency.gather import map_concurrently
from protoslice.errors import Conflict, IntegrityError, NotFound
from protoslice.storage import ObjectKey, ObjectStat, Storage
from protoslice.stores.catalog.claims import Claims
from protoslice.stores.catalog.manifests import is_retired, withdraw
from protoslice.stores.catalog.removed import tombstone_of
from protoslice.stores.layout import keys
from protoslice.stores.layout.references import Reference
from protoslice.stores.manifest import Manifest

_log = logging.getLogger(__name__)


class UnreadableManifest(Exception):
    """An unreadable manifest, which might need any object that a reference of its store is beside."""

    def __init__(self, key: ObjectKey) -> None:
        super().__init__(key.text)
        self.key = key.text


@dataclass(frozen=True, slots=True)
class _Found:
    manifest: Manifest
    stat: ObjectStat

    @property
    def is_store(self) -> bool:
        return self.stat.key.segments[0] == keys.STORES.text


class Holders:
    """Reader of the manifests that hold an attempt; `expired` are keys of tombstones that hold nothing."""

    def __init__(self, storage: Storage, expired: Collection[ObjectKey]) -> None:
        self._storage = storage
        self._expired = expired
        self._claims = Claims(storage)

    async def of_attempt(self, attempt: str, *, mend: bool) -> list[Manifest]:
        """Manifests that name objects of `attempt`; with `mend`, those that lack some are mended first.

        Found by the references in the attempt, which are older than their manifests. `UnreadableManifest` when a
        manifest is damaged.
        """
        there = [item.key async for item in self._storage.iterate(keys.OBJECTS / attempt)]
        stores = sorted({Reference.parse(key).store for key in there if keys.is_reference(key)})
        found = [each for some in await map_concurrently(self._of_store, stores) for each in some]
        holding = [each for each in found if attempt in each.manifest.attempts]
        if mend and not {key for each in holding for key in each.manifest.keys_in(attempt)} <= {k.text for k in there}:
            holding = [each for each in holding if not (each.is_store and await self._mended(each))]
        return [each.manifest for each in holding]

    async def of_store(self, store_id: str) -> list[Manifest]:
        """Manifests of a store and of its unexpired tombstones."""
        return [each.manifest for each in await self._of_store(store_id)]

    async def mend(self, store_id: str) -> None:
        """Withdraw a store that lacks objects which the claim of their attempt does not allow.

        Its writer died before it saw that it was too late, and nobody was told of the store. One that has lost objects
        otherwise still has its claims, and stays, since a sender of the same content mends it.
        """
        for each in await self._of_store(store_id):
            if each.is_store:
                await self._mended(each)

    async def _mended(self, found: _Found) -> bool:
        """True when the manifest was withdrawn; `mend` says why."""
        manifest, attempts = found.manifest, sorted(found.manifest.attempts)
        over = await map_concurrently(lambda each: self._claims.is_over(each, manifest.names_in(each)), attempts)
        for attempt in compress(attempts, over):
            if not manifest.keys_in(attempt) <= await self._listed(attempt):
                with suppress(Conflict, NotFound):  # replaced or removed meanwhile
                    await withdraw(self._storage, manifest, found.stat.etag)
                    _log.warning(
                        "store %s is no longer available: garbage collection deleted data during its upload; "
                        "upload it again",
                        manifest.id,
                    )
                    return True
        return False

    async def _listed(self, attempt: str) -> set[str]:
        return {item.key.text async for item in self._storage.iterate(keys.OBJECTS / attempt)}

    async def _of_store(self, store_id: str) -> list[_Found]:
        found: list[_Found | None] = []
        with suppress(NotFound):
            found.append(await self._read(keys.store(store_id)))
        # Tombstones second: a store removed in between leaves one that this listing shows.
        buried = [item async for item in self._storage.iterate(keys.REMOVED / store_id)]
        found += await map_concurrently(self._read, [item.key for item in buried if item.key not in self._expired])
        return [each for each in found if each is not None]

    async def _read(self, key: ObjectKey) -> _Found | None:
        """Manifest of a store or a tombstone; None when it was removed or withdrawn."""
        try:
            found = await self._storage.get(key)
            if key.segments[0] == keys.STORES.text:
                return None if is_retired(found.data) else _Found(Manifest.decode(found.data), found.stat)
            return _Found(tombstone_of(key, found.data).manifest, found.stat)
        except NotFound:
            return None
        except IntegrityError:
            raise UnreadableManifest(key) from None
