"""Facade of the use cases, without HTTP: ingest, lookup, tags, schemas, views, removal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

from protoslice import schema
from protoslice.catalog import Database
from protoslice.catalog.derived import DerivedRecords
from protoslice.catalog.listing import StoreQuery
from protoslice.catalog.spaces import SpaceTable
from protoslice.catalog.stores import StoreTable
from protoslice.catalog.syntax import check_tag, is_id, is_id_prefix
from protoslice.catalog.tags import TAGS_OF_A_STORE, StoredTag
from protoslice.concurrency.executor import Worker
from protoslice.concurrency.gather import in_turns
from protoslice.concurrency.results import Results
from protoslice.errors import (
    Conflict,
    DatabaseUnavailable,
    NotFound,
    StorageFull,
    StorageUnavailable,
    Unsupported,
)
from protoslice.facts import UNKNOWN, Piece, PiecePlace, Removed, Restored, Store, TensorDelta, TensorMoves
from protoslice.schema import TypeSchema
from protoslice.storage import Storage, probe
from protoslice.stores.cache import BlockCache
from protoslice.stores.catalog.derived_facts import DerivedSources
from protoslice.stores.catalog.files import FileRef, FilesByDigest, StoredPath, refs_of
from protoslice.stores.catalog.manifests import Manifests
from protoslice.stores.catalog.pages import StorePages
from protoslice.stores.catalog.schemas import Schemas, StoredSchema
from protoslice.stores.clock import now
from protoslice.stores.collection import GRACE_SECONDS
from protoslice.stores.ingest.base import Bases
from protoslice.stores.ingest.external import ExternalObjects
from protoslice.stores.ingest.ingest import Ingest, IntakeOptions
from protoslice.stores.ingest.inspection import Types
from protoslice.stores.ingest.publisher import Publisher
from protoslice.stores.ingest.root.rules import check_kept
from protoslice.stores.manifest import Manifest
from protoslice.stores.marker import Marker, check_storage, marker_of, require_owner
from protoslice.stores.names import DEFAULT_SPACE, check_request
from protoslice.stores.open_stores import OpeningTerms, OpenStores
from protoslice.stores.options import StoreOptions
from protoslice.stores.paging import ResultPage
from protoslice.stores.quotas import SpaceRoom
from protoslice.stores.reading.comparisons import Comparisons, StoreComparison
from protoslice.stores.reading.opened import OpenStore
from protoslice.stores.reading.pieces import Pieces
from protoslice.stores.reading.search import PieceSearch
from protoslice.stores.reading.soundness import is_sound
from protoslice.stores.requests import Created, IngestRequest
from protoslice.stores.tag_cache import TagCache
from protoslice.stores.uploads import Uploads
from protoslice.stores.uploads.records import UploadRecords
from protoslice.stores.writing.new_objects import NewObjects
from protoslice.stores.writing.reservations import Reservations

_log = logging.getLogger(__name__)

READY_SECONDS = 2
"""Seconds in which a storage that is ready answers."""
_LEAST_FREE: Final = 128 << 20
"""Free bytes of a disk below which no store is taken in; removing stores needs some of them."""

Names = Callable[["Stores", str], Awaitable[str]]
"""Resolves a reference with a slash, such as `owner/name@main`, to the id of a store, or `NotFound`."""


class Stores:
    """All stores of one space; several processes may share the storage and the catalogue."""

    def __init__(
        self,
        storage: Storage,
        database: Database,
        options: StoreOptions,
        *,
        space: str = DEFAULT_SPACE,
        refused: str | None,
        names: Names | None = None,
        beside: Stores | None = None,
    ) -> None:
        """Threads, memory and the lease of writers are those of the stores `beside`, if given."""
        self._storage = storage
        self.database = database
        """The catalogue of all spaces."""
        self.space = space
        """Name of the space of these stores."""
        self.room = SpaceRoom(SpaceTable(database), space, options.quota, entries=options.entries)
        """Quota of these stores, and what is left of it."""
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._options = options
        self._refused = refused
        self._names: Names | None = beside._names if beside else names
        self._shares = beside is not None
        self._own_marker: Marker | None = None
        self._worker: Worker = beside._worker if beside else Worker(options.threads)
        self._results: Results = beside._results if beside else Results(options.open_stores_bytes)
        self._reservations: Reservations = beside._reservations if beside else Reservations(database)
        self._table = StoreTable(database, self.room.account)
        self._tags = TagCache(database, self.room.account, trust_seconds=options.trust_seconds)
        self._schemas = Schemas(database, space, self._results, self._worker)
        check_kept(options.rules)
        self._places: ExternalObjects = (
            beside._places
            if beside
            else ExternalObjects(
                options.register_prefixes,
                options.register_networks,
                options.rules,
                options=options.register_options,
                late_calls=options.late_calls,
            )
        )
        self._manifests = Manifests(self._table, self._worker)
        self._store_pages = StorePages(self._table, self._manifests)
        self._files = FilesByDigest(self._table, self._manifests)
        self._uploads = Uploads(
            storage,
            partial(UploadRecords, database, self.room.account),
            self._worker,
            self.new_objects,
            self.ingest,
            self._types,
            options.uploads,
            self.room,
        )
        self.bases = Bases(self.view, self._tags, self._worker)
        self.derived = derived = DerivedSources(
            DerivedRecords(database, space), storage, self.new_objects, self._worker
        )
        """Facts derived from these stores."""
        self._pieces = Pieces(derived, self._results, self._worker)
        self._search = PieceSearch(self._pieces, self._files, self._table, self.view)
        self._comparisons = Comparisons(self._pieces, self._results, self._worker)
        # Local files lie in the cache of the system, and what no other process sees in memory.
        distant = storage.abilities.shared and not storage.abilities.open_file
        cache: BlockCache | None = beside._cache if beside else None
        self._cache: BlockCache | None = cache or (BlockCache(options.cache) if distant else None)
        terms = OpeningTerms(
            most=options.open_stores,
            trust_seconds=options.trust_seconds,
            verify=options.verify_reads,
            cache=self._cache,
        )
        self._open_stores: OpenStores = OpenStores(
            space,
            derived,
            self._schemas,
            self._places,
            self._own_type,
            terms,
            self._results,
            beside._open_stores if beside else None,
        )
        self._publisher = Publisher(
            self._table,
            self._manifests,
            self._tags,
            self._store_pages,
            self._worker,
            self._open_stores.assemble,
            self._is_sound,
        )

    @classmethod
    async def open(
        cls,
        storage: Storage,
        database: Database,
        options: StoreOptions | None = None,
        *,
        create: bool = True,
        names: Names | None = None,
    ) -> Stores:
        """Open the stores in `storage`, with their records in `database`.

        They are read-only if the storage fails the probe of its writes. With `create`, an unmarked storage is marked as
        that of the database; else it raises `NotFound`. `names` resolves references that are no ids and no tags.
        """
        refused = None
        try:
            await probe(storage)
        except Unsupported as error:
            refused = error.message
            _log.warning("the storage is opened read-only: %s", refused)
        await check_storage(storage, database, mark=create and refused is None)
        return cls(storage, database, options or StoreOptions(), refused=refused, names=names)

    def of_space(self, space: str) -> Stores:
        """The stores of another space, with these threads and this memory."""
        return Stores(self._storage, self.database, self._options, space=space, refused=self._refused, beside=self)

    @property
    def storage(self) -> Storage:
        """The storage of all spaces."""
        return self._storage

    def new_objects(self) -> NewObjects:
        """Objects that one request writes."""
        return NewObjects(self._storage, self._reservations, self.room, self.space)

    @property
    def worker(self) -> Worker:
        """Worker threads for work that would block the event loop."""
        return self._worker

    @property
    def cache(self) -> BlockCache | None:
        """Cache of distant objects; None where objects are local files."""
        return self._cache

    def turn(self, name: str) -> asyncio.Lock:
        """Return the lock of a name in this space, for work that others of its kind would make useless."""
        return self._turns.setdefault(name, asyncio.Lock())

    async def close(self) -> None:
        """Close all opened stores and the worker, after waiting for stores being opened; what is shared stays."""
        await self._open_stores.close()
        if self._shares:
            return
        await self._reservations.close()
        await self._worker.close()
        if self._cache is not None:
            await self._cache.close()
        await self._places.close()

    async def ready(self) -> None:
        """Raise unless the storage answers in time and belongs to the database.

        `StorageFull` with less free space than the watermark.
        """
        try:
            async with asyncio.timeout(READY_SECONDS):
                if self._own_marker is None:
                    self._own_marker = await marker_of(self.database)
                await require_owner(self._storage, self._own_marker)
        except TimeoutError:
            raise StorageUnavailable(f"the storage did not respond within {READY_SECONDS} seconds") from None
        if self._storage.abilities.free_space:
            free = await self._storage.free_bytes()
            if free < self._options.space_watermark_bytes:
                raise StorageFull("the storage is almost full")

    async def free_bytes(self) -> int | None:
        """Free bytes of the storage; None where it has no limit."""
        return await self._storage.free_bytes() if self._storage.abilities.free_space else None

    async def check_free_space(self) -> None:
        """Raise `StorageFull` while the rest of a disk is needed to remove stores: the storage's or the database's."""
        least = min(self._options.space_watermark_bytes, _LEAST_FREE)
        if least and self._storage.abilities.free_space and await self._storage.free_bytes() < least:
            raise StorageFull("The disk is full: remove stores, or add space")
        if least and (free := self.database.free_bytes()) is not None and free < least:
            raise StorageFull("The disk of the database is full: remove stores, or add space")

    async def ingest(self, request: IngestRequest) -> Ingest:
        """A new ingest, to be used as an async context manager; `QuotaExceeded` where no store may be added."""
        self._check_writable()
        await self.room.check(stores=1)
        await self.check_free_space()
        types = await self._types(request.type)
        options = IntakeOptions(
            self._storage,
            self.new_objects(),
            self._files,
            self._worker,
            types,
            limit=self._options.max_upload_bytes,
            verify=self._options.verify_reads,
            kept_rules=self._options.rules,
        )
        return Ingest(options, request, self._publisher)

    @property
    def uploads(self) -> Uploads:
        """Resumable uploads; `Unsupported` for read-only stores."""
        self._check_writable()
        return self._uploads

    async def register(self, files: Mapping[str, str], request: IngestRequest) -> Created:
        """Create a store over external objects in allowed places; `files` maps paths to URIs."""
        self._check_writable()
        check_request(request)
        await self.room.check(stores=1)
        await self.check_free_space()
        types = await self._types(request.type)
        objects = self.new_objects()
        try:
            manifest = await self._places.index(files, request, types, self._worker, objects)
            return await self._publisher.publish(manifest, request, objects)
        finally:
            objects.end()

    async def get(self, ref: str) -> Store:
        """The store that `ref` names: an id, a prefix of one, a tag, or a name in a repository."""
        if is_id_prefix(ref) or "/" in ref:
            return await self._store_pages.get(await self.resolve(ref))
        return await self._store_pages.tagged(check_tag(ref))

    async def outline(self, store_id: str) -> Store:
        """The store with this id, without its tags; `NotFound` when there is none."""
        return (await self._manifests.get(store_id)).as_store()

    async def resolve(self, ref: str, *, trusting: bool = False) -> str:
        """The store id that `ref` names; `NotFound` when it names none.

        `trusting` takes a tag to point at where it did at most `trust_seconds` ago.
        """
        if is_id(ref):
            return ref
        if "/" in ref and self._names is not None:
            return await self._names(self, ref)
        if not is_id_prefix(ref):
            return await self._tags.store(ref) if trusting else (await self._tags.get(ref)).store
        return await self._manifests.starting_with(ref)

    async def whole_id(self, prefix: str) -> str:
        """Return the only id of a store, or else of a removed one, that begins with `prefix`; `NotFound`."""
        try:
            return await self._manifests.starting_with(prefix)
        except NotFound:
            return await self._manifests.removed(prefix)

    async def list(
        self, query: StoreQuery | None = None, *, limit: int = 100, cursor: str | None = None
    ) -> ResultPage[Store]:
        """Return a page of stores, by default of all, newest first."""
        return await self._store_pages.page(query or StoreQuery(), limit=limit, cursor=cursor)

    async def family(
        self, tag: str, *, type: str | None = None, limit: int = 100, cursor: str | None = None
    ) -> ResultPage[Store]:
        """Return a page of the stores of tags that begin with `tag`, in the order of the tags, each at its first."""
        return await self._store_pages.family(tag, type=type, limit=limit, cursor=cursor)

    async def delete(
        self,
        ref: str,
        check: Callable[[str, Collection[str]], Awaitable[None]] | None = None,
        *,
        if_match: str | None = None,
    ) -> Removed:
        """Remove a store, named by its id or a prefix of it, and the tags that point at it.

        Objects stay for the grace period, so that readers finish and `restore` can undo the removal. `check` gets the
        id and the tags before anything is removed, and raises to refuse. Raises `Conflict` when `ref` is a tag, and
        `Changed` unless the store has the version `if_match`, when given.
        """
        self._check_writable()
        if not is_id_prefix(ref):
            await self.resolve(ref)
            raise Conflict(
                f"{ref!r} is a tag or another name of a store: remove the tag, or give the store's id to remove "
                "the store"
            )
        store_id = await self.resolve(ref)
        if check is not None:
            tags, _ = await self._tags.page(TAGS_OF_A_STORE, store=store_id)
            await check(store_id, [tag.name for tag in tags])
        try:
            removed = await self._table.remove(store_id, if_match=if_match)
        finally:
            self._open_stores.forget(store_id)
        if removed is None:
            raise NotFound(f"No store {store_id}")
        self._tags.invalidate(removed)
        return Removed(store_id, tuple(removed), now() + timedelta(seconds=GRACE_SECONDS))

    async def version(self, store_id: str) -> str | None:
        """Return a text that changes with the description and the tags of a store; None if there is no store."""
        return await self._table.version(store_id)

    async def describe(self, store_id: str, text: str, *, if_match: str | None = None) -> Store:
        """Set the description of a store, and return the store; `Changed` unless it has the version `if_match`."""
        self._check_writable()
        return await self._store_pages.describe(store_id, text, if_match=if_match)

    async def removed(self, *, limit: int = 100, cursor: str | None = None) -> ResultPage[Removed]:
        """Return a page of stores whose removal can be undone, the latest first."""
        return await self._store_pages.removed(timedelta(seconds=GRACE_SECONDS), limit=limit, cursor=cursor)

    async def restore(self, store_id: str) -> Restored:
        """Undo the last removal of a store and set its tags again, except those that point elsewhere by now.

        `store_id` may be the beginning of an id, or a tag that was removed with the store.
        """
        self._check_writable()
        tag = "" if is_id_prefix(store_id) else check_tag(store_id)
        if tag:
            last = await self._table.last_with(tag)
            if last is None:
                raise NotFound(f"No removed store had the tag {tag!r}: give the id of the store")
            if await self._table.get(last) is not None:
                raise Conflict(f"The store of the tag {tag!r} is not removed: set the tag to the store {last} again")
            store_id = last
        elif not is_id(store_id):
            store_id = await self._manifests.removed(store_id)
        found = await self._table.restore(store_id)
        if found is None:
            raise NotFound(f"Store {store_id} was not removed, or garbage collection has deleted its data")
        store = await self._store_pages.described(await self._manifests.of(found.row))
        self._tags.invalidate(store.tags)
        return Restored(store, tuple(found.taken))

    async def files(self, ref: str) -> Mapping[str, FileRef]:
        """The files of the store that `ref` names, by path, for `Ingest.take`.

        Objects registered in place are left out.
        """
        return refs_of(await self._manifests.get(await self.resolve(ref)))

    async def file_refs(self, files: Mapping[str, StoredPath]) -> dict[str, FileRef]:
        """References to files of stores, by the paths that they are to have in another, for `Ingest.take`.

        `Conflict` when a store does not hold the bytes of one itself.
        """
        stores = sorted({store for store, _ in files.values()})
        refs = dict(zip(stores, await in_turns(self.files, stores), strict=True))
        for store, path in files.values():
            if path not in refs[store]:
                raise Conflict(f"file {path!r} of store {store} is registered in place and cannot be reused: send it")
        return {path: refs[store][old] for path, (store, old) in files.items()}

    def view_if_open(self, store_id: str) -> OpenStore | None:
        """The opened store `store_id`, if its manifest was read at most `trust_seconds` ago; else None."""
        return self._open_stores.get_fresh(store_id)

    async def view(self, ref: str) -> OpenStore:
        """The store that `ref` names, opened; a tag and a manifest are believed for `trust_seconds`."""
        return await self._view(await self.resolve(ref, trusting=True))

    async def _view(self, store_id: str) -> OpenStore:
        fresh = self.view_if_open(store_id)
        if fresh is not None:
            return fresh
        try:
            return await self._open_stores.get(await self._manifests.get(store_id))
        except DatabaseUnavailable:
            stale = self._open_stores.get_stale(store_id)
            if stale is None:
                raise
            return stale

    async def pieces(self, ref: str, *, limit: int, cursor: str | None) -> ResultPage[Piece]:
        """A page of the pieces of a store's files, which cover all files in order."""
        store = await self.view(ref)
        return (await self._pieces.of(store)).page(limit, cursor)

    async def compare(
        self, before: str, after: str, *, checksums: bool = False, wait: float | None = None
    ) -> StoreComparison:
        """In what the store `after` differs from the store `before`; see `Comparisons.of`."""
        one, other = await self.view(before), await self.view(after)
        return await self._comparisons.of(one, other, checksums=checksums, wait=wait)

    async def tensor_delta(self, before: str, after: str, was: str, name: str, sample: int | None) -> TensorDelta:
        """Distances of the elements of a tensor of two stores; see `Comparisons.delta`."""
        return await self._comparisons.delta(await self.view(before), await self.view(after), was, name, sample)

    async def moves(self, before: str, after: str, sample: int, limit: int, cursor: str | None) -> TensorMoves:
        """A page of the tensors of two stores in pairs; see `Comparisons.moves`."""
        return await self._comparisons.moves(await self.view(before), await self.view(after), sample, limit, cursor)

    async def locate(self, wanted: Mapping[str, int], refs: Sequence[str] | None) -> Sequence[PiecePlace]:
        """Places of the pieces in `wanted` (digest to size), in the stores `refs`; in any when `refs` is None.

        Then whole files of 1 MiB or more are found wherever they are, and other pieces in the stores that have most of
        them by the index of pieces.
        """
        if refs is not None:
            return await self._pieces.locate(wanted, [await self.view(ref) for ref in refs])
        return await self._search.places(wanted)

    async def tags(
        self, *, store: str | None = None, limit: int = 100, cursor: str | None = None
    ) -> ResultPage[StoredTag]:
        """A page of all tags, or of those that point at `store`."""
        if store is None:
            return ResultPage(*await self._tags.page(limit, cursor))
        manifest = await self._manifests.get(await self.resolve(store))
        return ResultPage(*await self._tags.page(limit, cursor, store=manifest.id))

    async def tag(self, name: str) -> StoredTag:
        """The tag called `name`; `NotFound` when it does not exist."""
        return await self._tags.get(name)

    async def put_tag(
        self, name: str, store: str, *, if_match: str | None = None, if_none_match: bool = False
    ) -> tuple[StoredTag, bool]:
        """Point a tag at a store; returns the tag and True when it is new. `Changed` for a failed condition."""
        self._check_writable()
        check_tag(name)
        store_id = await self.resolve(store)
        return (await self._tags.put([name], store_id, if_match=if_match, if_none_match=if_none_match))[0]

    async def delete_tag(self, name: str, *, if_match: str | None = None) -> None:
        """Remove a tag; `Changed` unless its entity tag is `if_match`, when given."""
        self._check_writable()
        await self._tags.remove(name, if_match=if_match)

    async def schemas(self, *, limit: int = 100, cursor: str | None = None) -> ResultPage[StoredSchema]:
        """A page of the schemas, by name."""
        return await self._schemas.page(limit, cursor)

    async def schema(self, name: str) -> tuple[StoredSchema, bytes]:
        """The schema called `name` and its descriptor set."""
        return await self._schemas.get(name)

    async def put_schema(
        self, name: str, data: bytes, *, if_match: str | None = None, if_none_match: bool = False
    ) -> tuple[StoredSchema, bool]:
        """Store a descriptor set under `name`; returns the schema and True when it is new. `Changed` as for a tag."""
        self._check_writable()
        return await self._schemas.put(name, data, if_match=if_match, if_none_match=if_none_match)

    async def delete_schema(self, name: str, *, if_match: str | None = None) -> None:
        """Remove a schema; `Changed` unless its entity tag is `if_match`, when given."""
        self._check_writable()
        await self._schemas.delete(name, if_match=if_match)

    async def _is_sound(self, manifest: Manifest) -> bool:
        return await is_sound(self._storage, manifest, self._worker, verify=self._options.verify_reads)

    async def _own_type(self, name: str) -> TypeSchema | None:
        """Schema of an uploaded type; None for a bundled one. `Unsupported` when there is neither."""
        return (await self._types(name)).own

    async def _types(self, type_name: str | None) -> Types:
        """Types for an ingest that asks for `type_name`; `Unsupported` when neither bundled nor uploaded."""
        if type_name is None or type_name == UNKNOWN or type_name in schema.bundled():
            return Types()
        own = await self._schemas.find(type_name)
        # When no uploaded set declares it, the bundled set raises and suggests similar names.
        return Types(own or await self._worker.run(lambda: schema.bundled().schema(type_name)))

    def _check_writable(self) -> None:
        if self._refused is not None:
            raise Unsupported(f"the service cannot write to its storage: {self._refused}")
