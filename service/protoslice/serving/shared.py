"""The objects that parts of a service share: one `Shared` per process, and one `Space` per space.

Every part that reads or writes in a space takes its `Space`, so that no part can bypass quota, audit or events.
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
    """The storages of external objects, restricted to the operator's prefixes and networks."""

    def __init__(self, options: StoreOptions) -> None:
        check_prefixes(options.register_prefixes)
        self._options = options
        self._storages: dict[str, Storage] = {}

    async def close(self) -> None:
        """Close all opened storages."""
        while self._storages:
            await self._storages.popitem()[1].close()

    async def open(self, stored: ObjectLocation, worker: Worker) -> StoredObject:
        """Open an external object; raise `Conflict` when it is missing, or when its entity tag or size has changed."""
        storage, key = self.place(stored.uri or "")
        try:
            stat = await storage.stat(key)
        except NotFound as error:
            raise Conflict(CHANGED) from error
        if (stat.etag, stat.size) != (stored.etag, stored.size):
            raise Conflict(CHANGED)
        # The file is not kept open, so that the next read notices if it was replaced.
        return StoredObject(storage, key, stored, None, None, worker)

    def canonical(self, uri: str) -> str:
        """Return the canonical form of a URI; raise `StorageDenied` unless the URI is below an allowed prefix."""
        return allowed(uri, self._options.register_prefixes).uri

    def place(self, uri: str) -> tuple[Storage, ObjectKey]:
        """Return the storage that a URI belongs to, and its key in this storage.

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
    """A storage of external objects; it raises `SourceDenied` when the object's server refuses access."""

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        try:
            return await call()
        except StorageDenied as error:
            raise SourceDenied(f"Cannot read an object that was registered in place: {error.message}") from None


READY_SECONDS = 2
"""The number of seconds within which a ready storage responds."""
READ_TAG_BYTES: Final = 2 << 20
"""The approximate bytes of cached tags, which are valid for at most a minute."""
_READ_TAGS: Final = 1 << 20
_PASSES: Final = 8
_PASSES_OF_CLIENT: Final = 4
_LEAST_FREE: Final = 128 << 20
"""The free bytes on a disk below which no store is accepted; the removal of stores needs some of these bytes."""


class Shared:
    """The storage, database, threads and memory that all spaces of a process share."""

    def __init__(self, storage: Storage, database: Database, options: StoreOptions) -> None:
        self.storage = storage
        self.database = database
        """The database with the catalog of all spaces."""
        self.options = options
        self.worker = Worker(options.threads)
        """The worker threads for work that would block the event loop."""
        self.reservations = Reservations(database)
        self.external = ExternalObjects(options)
        # Local files are in the page cache. A storage that other processes cannot see is already in memory.
        is_remote = storage.abilities.shared and not storage.abilities.open_file
        self.cache: BlockCache | None = BlockCache(options.cache) if is_remote else None
        """The cache of remote objects; None when the objects are local files or in memory."""
        self.results = Results(options.open_stores_bytes)
        """The opened stores, and results computed from them."""
        self.read_tags: ReadTags = LruCache(most=_READ_TAGS, room=READ_TAG_BYTES)
        """The recently read tags. They are separate from `results`, where a large catalog's tags would all be kept."""
        self.open_stores = OpenStores(self.worker, options, self.results)
        self.passes = Shares(_PASSES, _PASSES_OF_CLIENT, "running searches of records by key")
        """The limit on passes over streams of all stores; each pass reads a whole stream and takes at most 64 MiB."""
        self._marker: Marker | None = None

    async def close(self) -> None:
        """Close all opened stores and the worker, after waiting for stores that are being opened."""
        await self.open_stores.close()
        await self.reservations.close()
        await self.worker.close()
        if self.cache is not None:
            await self.cache.close()
        await self.external.close()

    async def ready(self) -> None:
        """Raise an error unless the storage responds in time and belongs to the database.

        Raise `StorageFull` when the free space is below the operator's watermark.
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
        """Return the storage's free bytes, or None if the storage does not report them."""
        return await self.storage.free_bytes() if self.storage.abilities.free_space else None

    async def check_free_space(self) -> None:
        """Raise `StorageFull` when the rest of a disk is reserved for removing stores.

        The disks of the storage and of the database are checked.
        """
        least = min(self.options.space_watermark_bytes, _LEAST_FREE)
        if least and (free := await self.free_bytes()) is not None and free < least:
            raise StorageFull("The disk is full: remove stores, or add space")
        if least and (free := self.database.free_bytes()) is not None and free < least:
            raise StorageFull("The disk of the database is full: remove stores, or add space")


class Space:
    """One space: its quota, its catalog and its opened stores."""

    def __init__(self, shared: Shared, space: str) -> None:
        database, options, worker = shared.database, shared.options, shared.worker
        self.shared = shared
        self.storage = shared.storage
        """The storage of all spaces."""
        self.database = database
        self.worker = worker
        self.space = space
        """The name of the space."""
        self.quotas = Quotas(SpaceTable(database), space, options.quota, entries=options.entries)
        """The quota of the space, and how much of it is left."""
        usage = self.quotas.usage
        self.table = StoreTable(database, usage)
        self.tags = TagCache(database, usage, shared.read_tags, trust_seconds=options.trust_seconds)
        self.schemas = Schemas(database, space, shared.results, worker)
        self.manifests = Manifests(self.table, worker)
        self.pages = StorePages(self.table, self.manifests)
        """The stores in the form of the API, and lists of them."""
        self.files_by_digest = FilesByDigest(self.table, self.manifests)
        self.derived = DerivedSources(DerivedTable(database, space), shared.storage, self.new_objects, worker)
        """The facts derived from the stores."""

    def new_objects(self) -> NewObjects:
        """Return a new `NewObjects` for one request's writes; raise `Unsupported` if the storage is read-only."""
        self.database.check_writable()
        return NewObjects(self.storage, self.shared.reservations, self.quotas, self.space)

    def view_if_open(self, store_id: str) -> OpenStore | None:
        """Return the opened store if its manifest was read at most `trust_seconds` ago; else None."""
        return self.shared.open_stores.get_fresh(self.space, store_id)

    async def resolve(self, ref: str, *, trusting: bool = False) -> str:
        """Return the store id for `ref`: an id, the start of an id, or a tag; raise `NotFound` if nothing matches.

        If `trusting` is set, the tag may come from the cache and be up to `trust_seconds` old.
        """
        if is_id(ref):
            return ref
        if not is_id_prefix(ref):
            return await self.tags.store(ref) if trusting else (await self.tags.get(ref)).store
        return await self.manifests.starting_with(ref)

    async def view(self, ref: str) -> OpenStore:
        """Return the opened store of `ref`; the tag or manifest may be cached for up to `trust_seconds`."""
        return await self.open_store(await self.resolve(ref, trusting=True))

    async def open_store(self, store_id: str) -> OpenStore:
        """Return the opened store with this id; its manifest may be cached for up to `trust_seconds`.

        Raise `NotFound` if the store does not exist.
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
        """Return the opened store of a manifest, which the caller must close; on failure, close its files."""
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
            # Each file takes about twenty steps, so a thread opens the store if it has many files.
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
