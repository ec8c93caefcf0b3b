"""Opened stores: a root loaded into the core, open files, and cached results of views."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeVar

from protoslice import _core, schema
from protoslice.catalog.derived import DerivedFacts
from protoslice.catalog.manifest import Manifest, ObjectLocation, checked
from protoslice.concurrency.executor import Worker
from protoslice.concurrency.gather import map_concurrently
from protoslice.concurrency.results import Results, SingleFlight
from protoslice.concurrency.shares import Shares
from protoslice.errors import IntegrityError, NoRoot, NotFound, Unsupported
from protoslice.facts import File
from protoslice.pieces import extents_of
from protoslice.schema import TypeSchema
from protoslice.serving.cache import BlockCache
from protoslice.serving.finding import STALE_SECONDS, FileRef, refs_of
from protoslice.serving.prefetch import SavedReads
from protoslice.serving.representation import Representation
from protoslice.serving.schemas import Schemas
from protoslice.serving.store_options import StoreOptions
from protoslice.serving.stored import StoredFile, open_object, recorded
from protoslice.storage import ObjectKey, Span, Storage
from protoslice.tensors.model import Model, RootProto

AWAY_SECONDS: Final = 2.0
"""The number of seconds for which a store counts as fresh after the database did not answer a query about it."""
_STORE: Final = "store"
"""The kind under which `Results` keeps opened stores."""


class OpenStores:
    """The opened stores by space and id; the process keeps them among its cached results."""

    def __init__(self, worker: Worker, options: StoreOptions, results: Results) -> None:
        self._worker = worker
        self._options = options
        self._results = results
        self._rows: dict[tuple[str, str], int] = {}
        """The row of each opened store by space and id; the most recently used store is last."""
        self._opening: SingleFlight[tuple[str, str, int], OpenStore] = SingleFlight()

    def get_fresh(self, space: str, store_id: str) -> OpenStore | None:
        """Return the opened store if its manifest was read at most `trust_seconds` ago; else None."""
        opened = self._find((space, store_id))
        fresh = opened is not None and self._worker.loop.time() - opened.seen_at < self._options.trust_seconds
        return opened if fresh else None

    def get_stale(self, space: str, store_id: str) -> OpenStore | None:
        """Return the opened store if its row was read in the last minute.

        Callers use this method while the database does not answer. The store then counts as fresh for `AWAY_SECONDS`,
        so that not every reader waits for the database.
        """
        opened, time = self._find((space, store_id)), self._worker.loop.time()
        if opened is None or time - opened.read_at >= STALE_SECONDS:
            return None
        opened.seen_at = time - self._options.trust_seconds + AWAY_SECONDS
        return opened

    async def get(
        self, space: str, manifest: Manifest, assemble: Callable[[], Coroutine[Any, Any, OpenStore]]
    ) -> OpenStore:
        """Return the opened store of a manifest that was just read; call `assemble` if the store is not open."""
        place = (space, manifest.id)
        opened = self._find(place)
        if opened is not None and opened.manifest.row == manifest.row:
            opened.seen_at = opened.read_at = self._worker.loop.time()
            self._use(place, opened)
            return opened

        async def open() -> OpenStore:
            store = await assemble()
            store.seen_at = store.read_at = self._worker.loop.time()
            known = self._find(place)
            if known is None or known.manifest.row <= manifest.row:  # a newer row: the store was uploaded again
                self._results.put((manifest.row, _STORE), store, store.weight)
                self._use(place, store)
            return store

        # A store that was removed and uploaded again has another row. Its caller must not share the opening of the old
        # store.
        return await self._opening.get((*place, manifest.row), open)

    def forget(self, space: str, store_id: str) -> None:
        """Drop a store, for example a removed one, and its cached results."""
        row = self._rows.pop((space, store_id), None)
        if row is not None:
            self._results.drop(row)

    async def close(self) -> None:
        """Close all opened stores, after waiting for stores that are being opened."""
        await self._opening.idle()
        for row in self._rows.values():
            opened: OpenStore | None = self._results.find((row, _STORE))
            if opened is not None:
                opened.close()
            self._results.drop(row)
        self._rows.clear()

    def _find(self, place: tuple[str, str]) -> OpenStore | None:
        row = self._rows.get(place)
        found: OpenStore | None = None if row is None else self._results.find((row, _STORE))
        return found

    def _use(self, place: tuple[str, str], store: OpenStore) -> None:
        """Record a use of a store; if too many stores are open, drop the least recently used one."""
        self._rows.pop(place, None)
        self._rows[place] = store.manifest.row
        if len(self._rows) > self._options.open_stores:
            # The store is not closed, because a reader may hold it. Its files close with the last reference.
            self._results.drop(self._rows.pop(next(iter(self._rows))))


_READS = "reads"
"""The name under which the saved reads are stored among a store's facts."""
_STEP = 4 << 20
"""The number of bytes that are compared with their checksums in one step."""
_WEIGHT = 20 << 10
"""The approximate memory of an opened store in bytes, without the parts that are counted separately."""
_FILE_WEIGHT = 1500
"""The approximate memory per file in bytes."""
_RECORD_WEIGHT = 2
"""The approximate memory per byte of a record: the record itself, and its form in the core."""

T = TypeVar("T")

FindType = Callable[[str], Awaitable[TypeSchema | None]]
"""A function that finds the schema of an uploaded type by name, or returns None for a bundled type."""


@dataclass(frozen=True, slots=True)
class OpenRoot:
    """The root of a store, loaded into the core."""

    document: _core.Document
    plan: _core.Plan
    sources: Sequence[StoredFile]
    """The root file, followed by the side object if the store has one."""
    imaged: bool
    """True when the root file is a chunked proto or a text; the image then presents it as one proto."""
    read_by: TypeSchema | None = None
    """The schema that reads the root; None when the root's type is unknown."""
    weight: int = 0
    """The total size of the root's records in bytes."""

    @property
    def decoded(self) -> Sequence[StoredFile]:
        """The objects that were opened for the root in addition to the store's files."""
        return self.sources[1:]


class StoreReads:
    """The small reads of one store's remote objects, which are saved for later processes."""

    def __init__(self, objects: Sequence[StoredFile], derived: DerivedFacts, worker: Worker) -> None:
        parts = [part for stored in objects for part in stored.parts]
        self._remote = [(number, part) for number, part in enumerate(parts) if not part.is_near]
        self._derived = derived
        self._worker = worker
        self._saved: SavedReads | None = None
        self._users = 0
        self._loading = asyncio.Lock()
        self._saving = asyncio.Lock()

    @property
    def are_remote(self) -> bool:
        """True if at least one object is remote."""
        return bool(self._remote)

    async def with_saved_reads(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread with the saved reads, which concurrent calls share; save new reads afterwards."""
        if not self._remote:
            return await self._worker.run_long(work)
        saved = await self._begin()
        try:
            done = await self._worker.run_long(work)
            async with self._saving:
                if saved.is_new:
                    await self._derived.save(_READS, await self._worker.run(saved.encode))
            return done
        finally:
            self._users -= 1
            if not self._users:
                self._use(None)

    async def _begin(self) -> SavedReads:
        async with self._loading:
            if self._saved is None:
                self._use(SavedReads.decode(await self._derived.load(_READS) or b""))
            self._users += 1
            assert self._saved is not None
            return self._saved

    def _use(self, saved: SavedReads | None) -> None:
        self._saved = saved
        for number, part in self._remote:
            part.save_reads(number, saved)


class OpenStore:
    """An opened store: its manifest, root and open files. Views are functions of the store, which caches results."""

    def __init__(
        self,
        manifest: Manifest,
        files: Sequence[StoredFile],
        root: OpenRoot | None,
        worker: Worker,
        derived: DerivedFacts,
        results: Results,
        passes: Shares,
        find_type: FindType,
    ) -> None:
        """Set up the store; all stores share `results`, a cache, and `passes`, a limit on passes over streams."""
        self.manifest = manifest
        self.info = manifest.as_store()
        self.root = root
        self.files: Mapping[str, StoredFile] = {
            file.path: stored for file, stored in zip(manifest.files, files, strict=True)
        }
        proto = RootProto(root.document, root.sources) if root is not None else None
        self.model = Model(manifest.root or "", manifest.type, self.files, proto)
        """The model that the files contain."""
        self.seen_at = float("-inf")
        """The event loop's time since which the store counts as fresh."""
        self.read_at = float("-inf")
        """The event loop's time at which the store's row was last read."""
        self.worker = worker
        self.derived = derived
        """The facts that the catalog keeps about the store."""
        self.results = results
        self.passes = passes
        self.pass_turn = asyncio.Lock()
        """A lock for searches by key: only one stream of this store is read at a time."""
        self.head_turn = asyncio.Lock()
        """A lock that protects the saved heads of this store while they are read or changed."""
        self.find_type = find_type
        self._objects = (*files, *(root.decoded if root is not None else ()))
        self.reads = StoreReads(self._objects, derived, worker)
        """The small reads of remote objects, which are saved with the store."""
        self.weight = self._weigh()
        """The approximate memory of the store in bytes, without results of views."""

    @property
    def row(self) -> int:
        """The store's row in the catalog, under which its results are cached."""
        return self.manifest.row

    def _weigh(self) -> int:
        objects = {part for stored in self._objects for part in stored.parts}
        records = self.root.weight if self.root is not None else 0
        sums = sum(part.weight for part in objects)
        return _WEIGHT + _FILE_WEIGHT * len(self.files) + _RECORD_WEIGHT * records + sums

    def file(self, path: str) -> Representation:
        """Return the file at `path`, unchanged; raise `NotFound` when the store has no such file."""
        if path not in self.files:
            raise NotFound(f"The store has no file {path!r}")
        stored, sha256 = self.files[path], self._digests[path]
        is_root = path == self.manifest.root
        return Representation(
            _core.Rope([(0, 0, stored.size)]),
            [stored],
            file_etag(self.manifest, File(path, stored.size, sha256)),
            path.rpartition("/")[2],
            sha256=bytes.fromhex(sha256) if sha256 else None,
            message_type=self.manifest.type if is_root and self.is_serialized else None,
        )

    @cached_property
    def _digests(self) -> Mapping[str, str | None]:
        return {file.path: file.sha256 for file in self.manifest.files}

    @cached_property
    def refs(self) -> Mapping[str, FileRef]:
        """References to the files by path, for new stores that share these files."""
        return refs_of(self.manifest)

    @property
    def is_serialized(self) -> bool:
        """True if the root file is a serialized proto; False for a chunked proto or a text."""
        return self.root is not None and not self.root.imaged

    def known_root(self) -> OpenRoot:
        """Return the root; raise `NoRoot` if the store has none, and `Unsupported` if the root is not a protobuf."""
        if self.manifest.root is None:
            raise self.no_root()
        if self.root is None:
            raise Unsupported(
                f"The root of this store, {self.manifest.root}, is not a protobuf: it has tensors, but no parts"
            )
        return self.root

    def no_root(self) -> NoRoot:
        """Return the error for a store without a root."""
        return NoRoot(f"This store has files, but no root proto: {self.manifest.why or 'none was found'}")

    def extents(self) -> list[Span]:
        """Return start and end of each chunk in the root file; the list is empty if the root is not a proto."""
        return list(extents_of(self.root.plan)) if self.root is not None else []

    def descriptor_set(self) -> bytes | None:
        """Return a descriptor set with the root's type and its dependencies.

        Return None when the schema is unknown or is the bundled one.
        """
        read_by, bundled = self.root.read_by if self.root is not None else None, schema.bundled()
        if read_by is None or (
            read_by.name in bundled and bundled.kept(read_by.name).fingerprint == read_by.fingerprint
        ):
            return None
        return read_by.canonical

    def etag(self, *view: object) -> str:
        """Return the entity tag of a view: a digest of store id, parameters, and the version of the view's code."""
        return view_etag(self.manifest.id, *view)

    def close(self) -> None:
        """Close all objects of the store."""
        for stored in self._objects:
            stored.close()


def view_etag(store: str, *view: object) -> str:
    """Return the entity tag of a store's view; see `OpenStore.etag`."""
    return hashlib.sha256(repr((store, *view)).encode()).hexdigest()


def file_etag(manifest: Manifest, file: File) -> str:
    """Return the entity tag of a store's file."""
    return f"sha256-{file.sha256}" if file.sha256 else view_etag(manifest.id, "file", file.path)


async def records_of(
    storage: Storage, manifest: Manifest, worker: Worker, cache: BlockCache | None = None
) -> Mapping[str, bytes]:
    """Return the records of a store's root by name.

    Raise `IntegrityError` for a missing or damaged record.
    """

    async def whole(name: str) -> bytes:
        if name in manifest.inline:
            return manifest.inline[name]
        key = ObjectKey(manifest.beside[name])
        return await recorded(cache, key, lambda: read(name, key))

    async def read(name: str, key: ObjectKey) -> bytes:
        try:
            stored = (await storage.get(key)).data
        except NotFound as error:
            raise IntegrityError(f"the {name} of store {manifest.id} is missing") from error
        return await worker.run(lambda: checked(stored, f"the {name} of store {manifest.id}"))

    return dict(zip(manifest.records, await map_concurrently(whole, manifest.records), strict=True))


async def open_root(
    manifest: Manifest,
    records: Mapping[str, bytes],
    files: Sequence[StoredFile],
    side: Sequence[StoredFile],
    worker: Worker,
    schemas: Schemas,
) -> OpenRoot:
    """Load the root of a store from its `records`; `files` are the store's opened files, which include the root."""
    root = next(i for i, file in enumerate(manifest.files) if file.path == manifest.root)
    # The bundled schema reads bundled types, but the stored schema is checked too. A later program may need it, and
    # damage is best reported while the client still has the files.
    read_by = await schemas.of_store(manifest, records.get("schema", b""))
    index, plan, image = records["index"], records["plan"], records.get("image")
    sources = [files[root], *side]
    return await worker.run(lambda: _proto(index, plan, image, sources, read_by))


def _proto(
    index: bytes, plan: bytes, image: bytes | None, sources: Sequence[StoredFile], read_by: TypeSchema | None
) -> OpenRoot:
    """Decode the records of a root into objects of the core. This call blocks."""
    rope = _core.Rope.decode(image) if image is not None else None
    document = _core.Document(_core.Index(index), read_by.flat if read_by else None, sources, rope)
    weight = sum(map(len, (index, plan, image or b"")))
    return OpenRoot(document, _core.Plan.decode(plan), sources, rope is not None, read_by, weight)


async def is_sound(
    storage: Storage, manifest: Manifest, worker: Worker, *, verify: bool, seen: set[str] | None = None
) -> bool:
    """Return True when every object of a store is readable.

    If `verify` is set, also compare every block of the objects with its checksum. Objects in `seen` are skipped because
    they are known to be sound. The function adds further sound objects to `seen`.
    """
    try:
        for name, key in manifest.beside.items():
            checked((await storage.get(ObjectKey(key))).data, name)
        for stored in _objects(manifest):
            if seen is None or stored.key not in seen:
                await _check(storage, stored, worker, verify=verify)
            if seen is not None and stored.key is not None:
                seen.add(stored.key)
    except (NotFound, IntegrityError):
        return False
    return True


def _objects(manifest: Manifest) -> Iterator[ObjectLocation]:
    """Yield each object in the storage that a manifest names, without repetition."""
    seen: set[str] = set()
    for stored in manifest.stored:
        for part in stored.objects:
            if part.key is not None and part.key not in seen:
                seen.add(part.key)
                yield part


async def _check(storage: Storage, stored: ObjectLocation, worker: Worker, *, verify: bool) -> None:
    """Raise `NotFound` or `IntegrityError` unless an object has its size and, if `verify` is set, its checksums."""
    found = await open_object(storage, stored, worker, verify=verify)
    try:
        if (await storage.stat(ObjectKey(stored.key or ""))).size != stored.size:
            raise IntegrityError(f"stored object {stored.key!r} has a wrong size")
        for at in range(0, stored.size if verify else 0, _STEP):
            await found.fetch([found.covering((at, min(at + _STEP, stored.size)))])
    finally:
        found.close()
