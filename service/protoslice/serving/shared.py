"""Objects that the parts of the stores use: one `Shared` per process, one `Space` per space.

Every part that reads or writes in a space gets its `Space`, so that quota, audit and events cannot be bypassed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

from protoslice.catalog.derived import DerivedSources, DerivedTable
from protoslice.catalog.manifest import Manifest, ObjectLocation
from protoslice.catalog.marker import Marker, marker_of, require_owner
from protoslice.catalog.new_objects import NewObjects, Reservations
from protoslice.catalog.spaces import Quotas, SpaceTable
from protoslice.catalog.stores import StoreTable
from protoslice.catalog.syntax import is_id, is_id_prefix
from protoslice.concurrency.executor import Worker
from protoslice.concurrency.gather import both
from protoslice.concurrency.results import LruCache, Results
from protoslice.concurrency.shares import Shares
from protoslice.database import Database
from protoslice.errors import (
    Conflict,
    DatabaseUnavailable,
    NotFound,
    SourceDenied,
    StorageDenied,
    StorageFull,
    StorageUnavailable,
)
from protoslice.serving.cache import BlockCache
from protoslice.serving.finding import FilesByDigest, Manifests, ReadTags, StorePages, TagCache
from protoslice.serving.joined import open_file_objects
from protoslice.serving.opened import OpenStore, OpenStores, open_root, records_of
from protoslice.serving.schemas import Schemas
from protoslice.serving.store_options import StoreOptions
from protoslice.serving.stored import CHANGED, StoredFile, StoredObject, open_object
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
        """Open an external object; raise `Conflict` when it is missing or has another entity tag or size."""
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
        """Return the canonical form of a URI; raise `StorageDenied` unless it is below an allowed prefix."""
        return allowed(uri, self._options.register_prefixes).uri

    def place(self, uri: str) -> tuple[Storage, ObjectKey]:
        """Return the storage of a URI, and the key there.

        Raise `StorageDenied` unless the URI is below an allowed prefix.
        """
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
    """Source of registered objects; a refusal is reported as that of the object's owner."""

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        try:
            return await call()
        except StorageDenied as error:
            raise SourceDenied(f"Cannot read the source of a registered object: {error.message}") from None


READY_SECONDS = 2
"""Seconds in which a storage that is ready answers."""
READ_TAG_BYTES: Final = 2 << 20
"""Bytes of tags that were read lately, about: they are believed for a minute at most."""
_READ_TAGS: Final = 1 << 20
_PASSES: Final = 8
_PASSES_OF_CLIENT: Final = 4
_LEAST_FREE: Final = 128 << 20
"""Free bytes of a disk below which no store is taken in; removing stores needs some of them."""


class Shared:
    """Storage, database, threads and memory, which all spaces of a process share."""

    def __init__(self, storage: Storage, database: Database, options: StoreOptions) -> None:
        self.storage = storage
        self.database = database
        """The catalogue of all spaces."""
        self.options = options
        self.worker = Worker(options.threads)
        """Worker threads for work that would block the event loop."""
        self.reservations = Reservations(database)
        self.external = ExternalObjects(options)
        # Local files are in the page cache, and a storage that other processes cannot see is in memory.
        is_remote = storage.abilities.shared and not storage.abilities.open_file
        self.cache: BlockCache | None = BlockCache(options.cache) if is_remote else None
        """Cache of remote objects; None where objects are local files."""
        self.results = Results(options.open_stores_bytes)
        """Opened stores, and what was computed of them."""
        self.read_tags: ReadTags = LruCache(most=_READ_TAGS, room=READ_TAG_BYTES)
        """Tags that were read lately. Among the results, those of a large catalogue would all be kept."""
        self.open_stores = OpenStores(self.worker, options, self.results)
        self.passes = Shares(_PASSES, _PASSES_OF_CLIENT, "record streams being searched by key")
        """Bound on passes over streams of all stores; each reads a whole stream, and holds at most 64 MiB."""
        self._marker: Marker | None = None

    async def close(self) -> None:
        """Close all opened stores and the worker, after waiting for stores being opened."""
        await self.open_stores.close()
        await self.reservations.close()
        await self.worker.close()
        if self.cache is not None:
            await self.cache.close()
        await self.external.close()

    async def ready(self) -> None:
        """Raise an error unless the storage responds in time and belongs to the database.

        Raise `StorageFull` with less free space than the watermark.
        """
        try:
            async with asyncio.timeout(READY_SECONDS):
                if self._marker is None:
                    self._marker = await marker_of(self.database)
                await require_owner(self.storage, self._marker)
        except TimeoutError:
            raise StorageUnavailable(f"the storage did not respond within {READY_SECONDS} seconds") from None
        free = await self.free_bytes()
        if free is not None and free < self.options.space_watermark_bytes:
            raise StorageFull("the storage is almost full")

    async def free_bytes(self) -> int | None:
        """Return the free bytes of the storage; None if it has no limit."""
        return await self.storage.free_bytes() if self.storage.abilities.free_space else None

    async def check_free_space(self) -> None:
        """Raise `StorageFull` while the rest of a disk, of storage or database, is reserved for removing stores."""
        least = min(self.options.space_watermark_bytes, _LEAST_FREE)
        if least and (free := await self.free_bytes()) is not None and free < least:
            raise StorageFull("The disk is full: remove stores, or add space")
        if least and (free := self.database.free_bytes()) is not None and free < least:
            raise StorageFull("The disk of the database is full: remove stores, or add space")


class Space:
    """One space: its quota, its catalogue and its opened stores."""

    def __init__(self, shared: Shared, space: str) -> None:
        database, options, worker = shared.database, shared.options, shared.worker
        self.shared = shared
        self.storage = shared.storage
        """The storage of all spaces."""
        self.database = database
        self.worker = worker
        self.space = space
        """Name of the space."""
        self.quotas = Quotas(SpaceTable(database), space, options.quota, entries=options.entries)
        """Quota of the space, and what is left of it."""
        usage = self.quotas.usage
        self.table = StoreTable(database, usage)
        self.tags = TagCache(database, usage, shared.read_tags, trust_seconds=options.trust_seconds)
        self.schemas = Schemas(database, space, shared.results, worker)
        self.manifests = Manifests(self.table, worker)
        self.pages = StorePages(self.table, self.manifests)
        """Stores as the API shows them, and lists of them."""
        self.files_by_digest = FilesByDigest(self.table, self.manifests)
        self.derived = DerivedSources(DerivedTable(database, space), shared.storage, self.new_objects, worker)
        """Facts derived from the stores."""

    def new_objects(self) -> NewObjects:
        """Return the objects that one request writes; raise `Unsupported` if the storage is read-only."""
        self.database.check_writable()
        return NewObjects(self.storage, self.shared.reservations, self.quotas, self.space)

    def view_if_open(self, store_id: str) -> OpenStore | None:
        """Return the opened store `store_id`, if its manifest was read at most `trust_seconds` ago; else None."""
        return self.shared.open_stores.get_fresh(self.space, store_id)

    async def resolve(self, ref: str, *, trusting: bool = False) -> str:
        """Return the store id that `ref` names: an id, a prefix of one, or a tag; raise `NotFound` when it names none.

        `trusting` allows a cached tag, at most `trust_seconds` old.
        """
        if is_id(ref):
            return ref
        if not is_id_prefix(ref):
            return await self.tags.store(ref) if trusting else (await self.tags.get(ref)).store
        return await self.manifests.starting_with(ref)

    async def view(self, ref: str) -> OpenStore:
        """Return the opened store that `ref` names; a cached tag or manifest may be `trust_seconds` old."""
        return await self.open_store(await self.resolve(ref, trusting=True))

    async def open_store(self, store_id: str) -> OpenStore:
        """Return the opened store with an id; a cached manifest may be `trust_seconds` old.

        Raise `NotFound` if there is none.
        """
        opened = self.view_if_open(store_id)
        if opened is not None:
            return opened
        open_stores = self.shared.open_stores
        try:
            manifest = await self.manifests.get(store_id)
            return await open_stores.get(self.space, manifest, partial(self.assemble, manifest))
        except DatabaseUnavailable:
            stale = open_stores.get_stale(self.space, store_id)
            if stale is None:
                raise
            return stale

    async def assemble(self, manifest: Manifest) -> OpenStore:
        """Return the opened store of a manifest, which the caller closes; close its files on failure."""
        shared, opened, records = self.shared, list[StoredFile](), dict[str, bytes]()

        async def open_files() -> None:
            side = [manifest.side] if manifest.side is not None else []
            opened.extend(await open_file_objects([*manifest.objects, *side], self._open_object))

        async def read_records() -> None:
            if manifest.indexed:
                records.update(await records_of(self.storage, manifest, self.worker, shared.cache))

        try:
            await both(open_files, read_records)
            proto = None
            files, side = opened[: len(manifest.objects)], opened[len(manifest.objects) :]
            if manifest.indexed:
                proto = await open_root(manifest, records, files, side, self.worker, self.schemas)
            derived, own_type = self.derived.of(manifest.row), self.schemas.own_type
            # In a thread if there are many files, each of which takes twenty steps.
            return await self.worker.run_if_large(
                len(files) << 10,
                lambda: OpenStore(
                    manifest, files, proto, self.worker, derived, shared.results, shared.passes, own_type
                ),
            )
        except BaseException:
            for stored in opened:
                stored.close()
            raise

    async def _open_object(self, stored: ObjectLocation) -> StoredObject:
        shared = self.shared
        if stored.uri is not None:
            return await shared.external.open(stored, self.worker)
        return await open_object(
            self.storage, stored, self.worker, verify=shared.options.verify_reads, cache=shared.cache
        )
