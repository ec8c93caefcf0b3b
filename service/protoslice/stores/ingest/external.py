"""External objects: registered by URI, read by range, pinned to an entity tag and size."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from protoslice.concurrency.executor import Worker
from protoslice.concurrency.gather import map_concurrently
from protoslice.detection import HEAD, detect
from protoslice.errors import (
    Conflict,
    InvalidInput,
    LimitExceeded,
    NotFound,
    SourceDenied,
    StorageDenied,
    StorageUnavailable,
    Unsupported,
)
from protoslice.facts import File
from protoslice.sources.files import BytesSource
from protoslice.sources.source import RangeSource
from protoslice.storage import ObjectKey, Storage
from protoslice.storage.prefixes import allowed
from protoslice.storage.sources import check_prefixes, open_source
from protoslice.storage.wrappers.interceptor import InterceptedStorage
from protoslice.storage.wrappers.metered import LATE_CALLS, LateCallLimit
from protoslice.stores.ingest.inspection import Scan, Types
from protoslice.stores.ingest.packs import FilePlace
from protoslice.stores.ingest.persist import drafted
from protoslice.stores.ingest.receive import Received
from protoslice.stores.ingest.root.choice import Root, choose_root
from protoslice.stores.ingest.root.prepare import NotARoot, Prepared, prepare_root
from protoslice.stores.ingest.root.rules import RulesByType
from protoslice.stores.manifest import Manifest, ObjectLocation
from protoslice.stores.names import FilePaths
from protoslice.stores.objects.read_memo import MemoizedReads
from protoslice.stores.objects.stored import CHANGED, StoredObject
from protoslice.stores.requests import IngestRequest
from protoslice.stores.writing.new_objects import NewObjects
from protoslice.uris import parse_root

T = TypeVar("T")
SECONDS: Final = 600
"""Seconds that reading objects for one registration may take."""
REQUESTS: Final = 100_000
"""Reads of the root for one registration, at most."""


class ExternalObjects:
    """Storages of external objects, restricted to the operator's prefixes and networks."""

    def __init__(
        self,
        prefixes: Sequence[str],
        networks: Sequence[str],
        kept_rules: RulesByType,
        *,
        options: Mapping[str, Mapping[str, str]] | None = None,
        late_calls: int = LATE_CALLS,
    ) -> None:
        """`options`: those that the storages of a scheme are opened with, by scheme.

        `late_calls`: limit of late calls of each storage.
        """
        check_prefixes(prefixes)
        self._options = options or {}
        self._late_calls = late_calls
        self._prefixes = tuple(prefixes)
        self._networks = tuple(networks)
        self._kept_rules = kept_rules
        self._storages: dict[str, Storage] = {}

    async def close(self) -> None:
        """Close the opened storages."""
        while self._storages:
            await self._storages.popitem()[1].close()

    async def open(self, stored: ObjectLocation, worker: Worker) -> StoredObject:
        """Open an external object; `Conflict` when it is missing or has another entity tag or size."""
        storage, key = self._place(stored.uri or "")
        try:
            stat = await storage.stat(key)
        except NotFound as error:
            raise Conflict(CHANGED) from error
        if (stat.etag, stat.size) != (stored.etag, stored.size):
            raise Conflict(CHANGED)
        # Without an open file, so that a replaced file is noticed at the next read.
        return StoredObject(storage, key, stored, None, None, worker)

    async def index(
        self,
        files: Mapping[str, str],
        request: IngestRequest,
        types: Types,
        worker: Worker,
        objects: NewObjects,
    ) -> Manifest:
        """Manifest of a store over `files` (path to URI), ready to be published.

        Raises `StorageUnavailable` when reading takes more than `SECONDS`.
        """
        try:
            async with asyncio.timeout(SECONDS):
                received, root = await self._received(files, request, types, worker)
        except TimeoutError as error:
            raise StorageUnavailable(
                f"Reading the objects took more than {SECONDS} seconds: nothing was stored"
            ) from error
        request = replace(request, source="register")
        return await drafted(request, received, root, objects=objects, worker=worker)

    async def _received(
        self, files: Mapping[str, str], request: IngestRequest, types: Types, worker: Worker
    ) -> tuple[list[Received], Root]:
        """The files in their order, and the root chosen among them."""
        places = await worker.run(lambda: self._by_place(files))
        looked = await map_concurrently(lambda place: self._look(*place), places.items())
        found = {received.info.path: received for each in looked for received in each}
        received = [found[path] for path in files]
        root = await choose_root(
            received,
            request,
            opened=lambda file: self.open(file.stored, worker),
            worker=worker,
            prepare=lambda file: self._prepare(file, request, types, worker),
        )
        return received, root

    def _by_place(self, files: Mapping[str, str]) -> dict[str, list[str]]:
        """Paths of the files by URI, after checking all paths and URIs.

        An object used for several files is read once.
        """
        if not files:
            raise InvalidInput("No files given")
        found: dict[str, list[str]] = {}
        for path, uri in files.items():
            found.setdefault(allowed(uri, self._prefixes).uri, []).append(path)
        paths = FilePaths()
        for path in files:
            paths.add(path)
        return found

    async def _look(self, uri: str, paths: Sequence[str]) -> list[Received]:
        """The files that use the object at `uri`, after one `stat` and one read of its head."""
        storage, key = self._place(uri)
        try:
            stat = await storage.stat(key)
        except NotFound:
            raise NotFound(f"No object for {paths[0]!r} at the given URI") from None
        stored = ObjectLocation(stat.size, uri=uri, etag=stat.etag)
        head = await storage.get_range(key, 0, min(HEAD, stat.size), if_etag=stat.etag)
        found = []
        for path in paths:
            detection = detect(head, path.rpartition("/")[2], stat.size)
            scan = Scan(detection.type_name if detection.kind == "proto" else None)
            found.append(Received(File(path, stat.size, None), FilePlace(stored), detection, scan))
        return found

    async def _prepare(
        self, root: Received, request: IngestRequest, types: Types, worker: Worker
    ) -> tuple[Prepared | None, None]:
        kind, type_name = root.detection.kind, root.detection.type_name
        if kind == "text" and type_name is not None and request.type is None:
            raise Unsupported(
                f"{root.detection.why}; only binary protobufs can be registered in place: upload the file instead"
            )
        if kind == "refused" and request.type is None:
            raise NotARoot(root.detection.why)
        opened = await self.open(root.stored, worker)
        opened.memoize_reads(0, MemoizedReads())
        source = _Bounded(opened)
        try:
            prepared = await worker.bulk(
                lambda: prepare_root(source, root, _NoSide(), types, request, kept_rules=self._kept_rules, texts=False)
            )
            return prepared, None
        finally:
            source.end()
            opened.close()

    def _place(self, uri: str) -> tuple[Storage, ObjectKey]:
        place = allowed(uri, self._prefixes)
        storage = self._storages.get(place.root)
        if storage is None:
            options = self._options.get(parse_root(place.root).scheme)
            storage = open_source(place.root, options, networks=self._networks, prefixes=self._prefixes)
            if not storage.abilities.open_file:
                storage = LateCallLimit(storage, self._late_calls)
            storage = self._storages[place.root] = _Source(storage)
        return storage, place.key


class _Source(InterceptedStorage):
    """Source of registered objects, whose refusals are its owner's and not those of the service's storage."""

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        try:
            return await call()
        except StorageDenied as error:
            raise SourceDenied(f"Cannot read the source of a registered object: {error.message}") from None


class _Bounded:
    """Limits the reads of an object while it is indexed, to `REQUESTS` and until `end`."""

    def __init__(self, source: RangeSource) -> None:
        self.size = source.size
        self._source = source
        self._left = REQUESTS

    def read(self, offset: int, length: int, /) -> bytes:
        self._left -= 1
        if self._left < 0:
            raise LimitExceeded(f"Indexing the object needs more than {REQUESTS} reads: upload it instead")
        return self._source.read(offset, length)

    def end(self) -> None:
        """Refuse further reads, since a worker thread cannot be cancelled."""
        self._left = 0


class _Compressed(Unsupported):
    """Refusal of a compressed chunked proto, whose decoded chunks would need a side object."""


class _NoSide:
    """Side for external roots, which have no place for decoded bytes: refuses any."""

    room: Final = sys.maxsize

    def write(self, data: bytes, /) -> None:
        """Raise unless `data` is empty."""
        if data:
            raise _Compressed("A compressed chunked proto cannot be registered in place: upload it")

    def source(self) -> RangeSource:
        """An empty source."""
        return BytesSource(b"")
