"""External objects: registered by URI, read by range, pinned to an entity tag and size."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from protoslice.catalog.manifest import ObjectLocation
from protoslice.concurrency.executor import Worker
from protoslice.errors import Conflict, NotFound, SourceDenied, StorageDenied
from protoslice.serving.options import StoreOptions
from protoslice.serving.stored import CHANGED, StoredObject
from protoslice.storage import ObjectKey, Storage
from protoslice.storage.sources import allowed, check_prefixes, open_source
from protoslice.storage.wrappers import InterceptedStorage, LateCallLimit
from protoslice.uris import parse_root

T = TypeVar("T")


class ExternalObjects:
    """Storages of external objects, restricted to the operator's prefixes and networks."""

    def __init__(self, options: StoreOptions) -> None:
        check_prefixes(options.register_prefixes)
        self._options = options
        self._storages: dict[str, Storage] = {}

    async def close(self) -> None:
        """Close the opened storages."""
        while self._storages:
            await self._storages.popitem()[1].close()

    async def open(self, stored: ObjectLocation, worker: Worker) -> StoredObject:
        """Open an external object; `Conflict` when it is missing or has another entity tag or size."""
        storage, key = self.place(stored.uri or "")
        try:
            stat = await storage.stat(key)
        except NotFound as error:
            raise Conflict(CHANGED) from error
        if (stat.etag, stat.size) != (stored.etag, stored.size):
            raise Conflict(CHANGED)
        # Without an open file, so that a replaced file is noticed at the next read.
        return StoredObject(storage, key, stored, None, None, worker)

    def canonical(self, uri: str) -> str:
        """The canonical form of a URI; raises unless an allowed prefix covers it."""
        return allowed(uri, self._options.register_prefixes).uri

    def place(self, uri: str) -> tuple[Storage, ObjectKey]:
        """The storage of a URI, and the key there; raises unless an allowed prefix covers it."""
        options = self._options
        place = allowed(uri, options.register_prefixes)
        storage = self._storages.get(place.root)
        if storage is None:
            storage = open_source(
                place.root,
                options.register_options.get(parse_root(place.root).scheme),
                networks=options.register_networks,
                prefixes=options.register_prefixes,
            )
            if not storage.abilities.open_file:
                storage = LateCallLimit(storage, options.late_calls)
            storage = self._storages[place.root] = _Source(storage)
        return storage, place.key


class _Source(InterceptedStorage):
    """Source of registered objects, whose refusals are its owner's and not those of the service's storage."""

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        try:
            return await call()
        except StorageDenied as error:
            raise SourceDenied(f"Cannot read the source of a registered object: {error.message}") from None
