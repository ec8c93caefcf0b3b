"""Facade of the use cases, without HTTP: ingest, lookup, tags, schemas, views, removal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial

from protoslice import schema
from protoslice.catalog import Database
from protoslice.catalog.derived import DerivedRecords
from protoslice.concurrency.executor import Worker
from protoslice.concurrency.gather import in_turns, map_concurrently, run_concurrently
from protoslice.errors import (
    Conflict,
    IntegrityError,
    InvalidInput,
    NotFound,
    StorageFull,
    StorageUnavailable,
    Unsupported,
)
from protoslice.facts import UNKNOWN, Piece, PiecePlace, Removed, Restored, Store, TensorDelta
from protoslice.schema import TypeSchema
from protoslice.storage import ObjectKey, PrefixStorage, Storage, probe
from protoslice.stores.cache import BlockCache
from protoslice.stores.catalog.claims import Claims, Collected
from protoslice.stores.catalog.files import FileRef, FilesByDigest, StoredPath, refs_of
from protoslice.stores.catalog.manifests import Manifests
from protoslice.stores.catalog.pages import StorePages
from protoslice.stores.catalog.piece_index import PieceIndex
from protoslice.stores.catalog.removed import find_tombstone, removed_id
from protoslice.stores.catalog.schemas import Schemas, StoredSchema
from protoslice.stores.catalog.tags import StoredTag, Tags
from protoslice.stores.clock import now
from protoslice.stores.collection.garbage import GRACE_SECONDS, GarbageReport, collect_garbage
from protoslice.stores.ingest.base import Bases
from protoslice.stores.ingest.external import ExternalObjects
from protoslice.stores.ingest.ingest import Ingest, IntakeOptions
from protoslice.stores.ingest.inspection import Types
from protoslice.stores.ingest.publisher import Publisher
from protoslice.stores.ingest.root.rules import check_kept
from protoslice.stores.layout import keys
from protoslice.stores.layout.version import check_layout
from protoslice.stores.manifest import Manifest
from protoslice.stores.names import DEFAULT_SPACE, check_request, check_tag, is_id, is_id_prefix
from protoslice.stores.open_stores import OpeningTerms, OpenStores
from protoslice.stores.options import StoreOptions
from protoslice.stores.paging import ResultPage
from protoslice.stores.quotas import CountedStorage, SpaceRoom
from protoslice.stores.reading.comparisons import Comparisons, StoreComparison
from protoslice.stores.reading.opened import OpenStore
from protoslice.stores.reading.pieces import Pieces
from protoslice.stores.reading.search import PieceSearch
from protoslice.stores.reading.soundness import is_sound
from protoslice.stores.requests import Created, IngestRequest
from protoslice.stores.uploads import Uploads
from protoslice.stores.uploads.records import UploadRecords

_log = logging.getLogger(__name__)

READY_SECONDS = 2
"""Seconds in which a storage that is ready answers."""

Names = Callable[["Stores", str], Awaitable[str]]
"""Resolves a reference with a slash, such as `owner/name@main`, to the id of a store, or `NotFound`."""


class Stores:
    """All stores of one storage; several processes may share the storage."""

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
        bears_tags: bool = True,
    ) -> None:
        """With `bears_tags`, index entries of new stores bear their tags, as in layout 3."""
        self._inner = storage
        self.database = database
        """The catalogue of all spaces."""
        self.space = space
        """Name of the space of these stores."""
        self.room = SpaceRoom(storage, options.quota)
        """Quota of these stores, and what is left of it."""
        storage = self._storage = CountedStorage(storage, self.room)
        self._options = options
        self._refused = refused
        self._names: Names | None = beside._names if beside else names
        self._shares = beside is not None
        self._worker: Worker = beside._worker if beside else Worker(options.threads)
        self._tags = Tags(storage, late_after=options.renew_seconds, trust_seconds=options.trust_seconds)
        self._schemas = Schemas(database, space, self._worker)
        check_kept(options.rules)
        self._places: ExternalObjects = (
            beside._places
            if beside
            else ExternalObjects(
                options.register_prefixes, options.register_networks, options.rules, options=options.register_options
            )
        )
        self._claims = Claims(storage)
        self._manifests = Manifests(storage, self._claims, self._worker, self._is_sound)
        self._store_pages = StorePages(storage, self._manifests, self._tags)
        self._uploads = Uploads(
            storage,
            partial(UploadRecords, database, space),
            self._worker,
            self._claims,
            self.ingest,
            self._types,
            options.uploads,
            self.room,
        )
        self.bases = Bases(self.view, self._tags, self._worker)
        self._pieces = Pieces(storage, self._worker)
        self._search = PieceSearch(
            self._pieces, FilesByDigest(storage), PieceIndex(storage), self._manifests, self.view
        )
        self._comparisons = Comparisons(self._pieces, self._worker)
        # Local files lie in the cache of the system, and what no other process sees in memory.
        distant = storage.abilities.shared and not storage.abilities.open_file
        cache: BlockCache | None = beside._cache if beside else None
        self._cache: BlockCache | None = cache or (BlockCache(options.cache) if distant else None)
        terms = OpeningTerms(
            most=options.open_stores,
            room=options.open_stores_bytes,
            trust_seconds=options.trust_seconds,
            verify=options.verify_reads,
            cache=self._cache,
        )
        self._open_stores: OpenStores = OpenStores(
            storage,
            DerivedRecords(database, space),
            self._worker,
            self._schemas,
            self._places,
            self._own_type,
            terms,
            beside._open_stores if beside else None,
        )
        self._publisher = Publisher(
            storage,
            self._claims,
            self._manifests,
            self._tags,
            self._store_pages,
            self._open_stores.assemble,
            bears_tags=bears_tags,
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

        They are read-only if the storage fails the probe of its conditional writes. With `create`, an unmarked storage
        gets the layout marker; else it raises `NotFound`. `names` resolves references that are no ids and no tags.
        """
        refused = None
        try:
            await probe(storage)
        except Unsupported as error:
            refused = error.message
            _log.warning("the storage is opened read-only: %s", refused)
        bears_tags = await check_layout(storage, mark=create and refused is None)
        return cls(storage, database, options or StoreOptions(), refused=refused, names=names, bears_tags=bears_tags)

    async def below(self, folder: ObjectKey, *, create: bool = False) -> Stores:
        """The stores of a folder of this storage: a world of its own, with these threads and this memory.

        `NotFound` for a folder without the layout marker, which `create` writes.
        """
        if create:
            self._check_writable()
        storage = PrefixStorage(self._inner, folder)
        bears_tags = await check_layout(storage, mark=create)
        return Stores(
            storage,
            self.database,
            self._options,
            space=folder.segments[-1],
            refused=self._refused,
            beside=self,
            bears_tags=bears_tags,
        )

    @property
    def storage(self) -> Storage:
        """The storage of these stores, for records of rooms above."""
        return self._storage

    @property
    def worker(self) -> Worker:
        """Worker threads for work that would block the event loop."""
        return self._worker

    @property
    def cache(self) -> BlockCache | None:
        """Cache of distant objects; None where objects are local files."""
        return self._cache

    async def close(self) -> None:
        """Close all opened stores and the worker, after waiting for stores being opened; what is shared stays."""
        await self._open_stores.close()
        if self._shares:
            return
        await self._worker.close()
        if self._cache is not None:
            await self._cache.close()
        await self._places.close()

    async def ready(self) -> None:
        """Raise unless the storage answers in time; `StorageFull` with less free space than the watermark."""
        try:
            async with asyncio.timeout(READY_SECONDS):
                with suppress(NotFound):
                    await self._marked()
        except TimeoutError:
            raise StorageUnavailable(f"the storage did not respond within {READY_SECONDS} seconds") from None
        if self._storage.abilities.free_space:
            free = await self._storage.free_bytes()
            if free < self._options.space_watermark_bytes:
                raise StorageFull("the storage is almost full")

    async def _marked(self) -> None:
        try:
            await self._storage.stat(keys.MARKER)
        except NotFound:
            # An answer without a body looks alike for a missing object and a missing bucket.
            await self._storage.get(keys.MARKER)

    async def ingest(self, request: IngestRequest) -> Ingest:
        """A new ingest, to be used as an async context manager; `QuotaExceeded` where no store may be added."""
        self._check_writable()
        await self.room.check(stores=1)
        types = await self._types(request.type)
        options = IntakeOptions(
            self._storage,
            self._worker,
            self._claims,
            types,
            limit=self._options.max_upload_bytes,
            verify=self._options.verify_reads,
            renew_seconds=self._options.renew_seconds,
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
        types = await self._types(request.type)
        draft = await self._places.index(files, request, types, self._worker, self._claims)
        return await self._publisher.publish(draft, request)

    async def get(self, ref: str) -> Store:
        """The store that `ref` names: an id, a prefix of one, a tag, or a name in a repository."""
        if is_id_prefix(ref) or "/" in ref:
            return await self._store_pages.get(await self.resolve(ref))
        tag = await self._tags.get(ref)
        return await self._store_pages.get(tag.store, tag)

    async def outline(self, store_id: str) -> Store:
        """The store with this id, without its tags; `NotFound` when there is none."""
        return await self._store_pages.outline(store_id)

    async def resolve(self, ref: str, *, trusting: bool = False) -> str:
        """The store id that `ref` names; `NotFound` when it names none.

        `trusting` takes a tag to point at where it did at most `trust_seconds` ago.
        """
        if is_id(ref):
            return ref
        if "/" in ref and self._names is not None:
            return await self._names(self, ref)
        if not is_id_prefix(ref):
            return await self._tags.trusted(ref) if trusting else (await self._tags.get(ref)).store
        return await self._manifests.starting_with(ref)

    async def list(
        self,
        *,
        tag: str | None = None,
        type: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> ResultPage[Store]:
        """A page of stores, newest first, filtered by `type`.

        With `tag`, a prefix of tag names: the stores of those tags in the order of the names, each at its first.
        """
        return await self._store_pages.page(tag=tag, type=type, limit=limit, cursor=cursor)

    async def delete(self, ref: str, check: Callable[[str, Collection[str]], Awaitable[None]] | None = None) -> Removed:
        """Remove a store, named by its id or a prefix of it, and the tags that point at it.

        Objects stay for the grace period, so that readers finish and `restore` can undo the removal. `check` gets the
        id and the tags before anything is removed, and raises to refuse. Raises `Conflict` when `ref` is a tag.
        """
        self._check_writable()
        if not is_id_prefix(ref):
            await self.resolve(ref)
            raise Conflict(
                f"{ref!r} is a tag or another name of a store: remove the tag, or give the store's id to remove "
                "the store"
            )
        store_id = await self.resolve(ref)
        tags = [tag async for tag in self._tags.all_of(store_id, await self._borne(store_id))]
        if check is not None:
            await check(store_id, [tag.name for tag in tags])

        async def untag(tag: StoredTag) -> None:
            with suppress(NotFound, Conflict):
                await self._tags.delete(tag.name, if_match=tag.etag)

        try:
            names = [tag.name for tag in tags]
            await self._manifests.remove(store_id, names, lambda: map_concurrently(untag, tags))
        except NotFound:
            if not tags:
                raise
            # Another removal was interrupted or is under way: the tags were read before the manifest vanished.
            await map_concurrently(untag, tags)
        finally:
            self._open_stores.forget(store_id)
        return Removed(store_id, tuple(tag.name for tag in tags), now() + timedelta(seconds=GRACE_SECONDS))

    async def _borne(self, store_id: str) -> Collection[str]:
        """Tags that the index entries of a store bear, also of a removed one; none if nothing is left."""
        with suppress(NotFound):
            try:
                return (await self._manifests.get(store_id)).tags or ()
            except NotFound:
                return (await find_tombstone(self._storage, self._worker, store_id)).manifest.tags or ()
            except IntegrityError:
                return await self._manifests.borne(store_id)
        return ()

    async def restore(self, store_id: str) -> Restored:
        """Undo the last removal of a store and set its tags again, except those that point elsewhere by now.

        `store_id` may be the beginning of an id.
        """
        self._check_writable()
        if not is_id_prefix(store_id):
            raise InvalidInput(f"Invalid id {store_id!r}: give the id of the store, or its first 12 or more digits")
        if not is_id(store_id):
            store_id = await removed_id(self._storage, store_id)
        tombstone = await find_tombstone(self._storage, self._worker, store_id)
        try:
            there = await self._manifests.restore(tombstone.manifest)
        except Collected:
            raise Conflict(f"data of store {store_id} has already been deleted: upload the store again") from None
        free = await map_concurrently(lambda name: self._set_if_free(name, there), tombstone.tags)
        await self._storage.delete(tombstone.key)
        taken = tuple(name for name, was_free in zip(tombstone.tags, free, strict=True) if not was_free)
        return Restored(await self._store_pages.described(there), taken)

    async def _set_if_free(self, name: str, store: Manifest) -> bool:
        """Set a tag unless one of that name points at another store; True when set."""
        with suppress(Conflict):
            await self._tags.put(name, store, if_match=None, if_none_match=True)
            return True
        with suppress(Conflict, NotFound):
            left = await self._tags.get(name)
            if left.store == store.id:  # left by an interrupted removal: set anew, or a collector may remove it
                await self._tags.put(name, store, if_match=left.etag, if_none_match=False)
                return True
        return False

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

    async def view_early(self, ref: str) -> tuple[OpenStore, asyncio.Task[OpenStore] | None]:
        """The store as it was last seen, if it is distant and open, and a task that looks what there is now.

        What is read until the task is done may be used if that gives the same store. Else as `view`, without a task.
        """
        store_id = await self.resolve(ref, trusting=True)
        seen = self._open_stores.get_distant(store_id)
        if seen is None or self.view_if_open(store_id) is not None:
            return await self._view(store_id), None
        return seen, asyncio.create_task(self._view(store_id))

    async def _view(self, store_id: str) -> OpenStore:
        fresh = self.view_if_open(store_id)
        return fresh or await self._open_stores.get(await self._manifests.get(store_id))

    async def pieces(self, ref: str, *, limit: int, cursor: str | None) -> ResultPage[Piece]:
        """A page of the pieces of a store's files, which cover all files in order."""
        store = await self.view(ref)
        return (await self._pieces.of(store)).page(limit, cursor)

    async def compare(self, before: str, after: str, *, checksums: bool = False) -> StoreComparison:
        """In what the store `after` differs from the store `before`; see `Comparisons.of`."""
        return await self._comparisons.of(await self.view(before), await self.view(after), checksums=checksums)

    async def tensor_delta(self, before: str, after: str, was: str, name: str, sample: int | None) -> TensorDelta:
        """Distances of the elements of a tensor of two stores; see `Comparisons.delta`."""
        return await self._comparisons.delta(await self.view(before), await self.view(after), was, name, sample)

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
            return await self._tags.page(limit, cursor)
        manifest = await self._manifests.get(await self.resolve(store))
        return await self._tags.of(manifest.id, manifest.tags or (), limit=limit, cursor=cursor)

    async def tag(self, name: str) -> StoredTag:
        """The tag called `name`; `NotFound` when it does not exist."""
        return await self._tags.get(name)

    async def put_tag(
        self, name: str, store: str, *, if_match: str | None = None, if_none_match: bool = False
    ) -> tuple[StoredTag, bool]:
        """Point a tag at a store; returns the tag and True when it is new. `Conflict` for a failed condition.

        `NotFound` for a store that an upload has published too late, and is about to withdraw.
        """
        self._check_writable()
        check_tag(name)
        manifest = await self._manifests.get(await self.resolve(store))
        await run_concurrently(
            lambda: self._manifests.check_lasting(manifest), lambda: self._tags.check_room(manifest, [name])
        )
        return await self._tags.put(name, manifest, if_match=if_match, if_none_match=if_none_match)

    async def delete_tag(self, name: str, *, if_match: str | None = None) -> None:
        """Remove a tag; `Conflict` unless its entity tag is `if_match`, when given."""
        self._check_writable()
        await self._tags.delete(name, if_match=if_match)

    async def schemas(self, *, limit: int = 100, cursor: str | None = None) -> ResultPage[StoredSchema]:
        """A page of the schemas, by name."""
        return await self._schemas.page(limit, cursor)

    async def schema(self, name: str) -> tuple[StoredSchema, bytes]:
        """The schema called `name` and its descriptor set."""
        return await self._schemas.get(name)

    async def put_schema(self, name: str, data: bytes) -> tuple[StoredSchema, bool]:
        """Store a descriptor set under `name`; returns the schema and True when it is new."""
        self._check_writable()
        return await self._schemas.put(name, data)

    async def delete_schema(self, name: str) -> None:
        """Remove a schema."""
        self._check_writable()
        await self._schemas.delete(name)

    async def collect_garbage(self, *, grace_seconds: float = GRACE_SECONDS, dry_run: bool = False) -> GarbageReport:
        """Delete what no store needs any more; a dry run only reports."""
        self._check_writable()
        # Beside the counts of this replica: the collection counts anew.
        return await collect_garbage(
            self._inner, self.database, self.space, grace_seconds=grace_seconds, dry_run=dry_run
        )

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
