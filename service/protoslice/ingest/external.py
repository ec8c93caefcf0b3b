"""The registration of external objects: a store is made over objects that stay where they are."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from protoslice.catalog.manifest import ObjectLocation
from protoslice.catalog.requests import Created, FilePaths, IngestRequest, check_request
from protoslice.concurrency.gather import map_concurrently
from protoslice.detection import HEAD, detect
from protoslice.errors import InvalidInput, LimitExceeded, NotFound, StorageUnavailable, Unsupported
from protoslice.facts import File
from protoslice.ingest.file_writer import IngestedFile, PendingLocation
from protoslice.ingest.inspection import Scan
from protoslice.ingest.publishing import drafted, publish
from protoslice.ingest.root import NotAModel, Root, RootRecords, choose_root, prepare_root
from protoslice.serving.prefetch import SavedReads
from protoslice.serving.schemas import Types
from protoslice.serving.shared import Space
from protoslice.sources.files import BytesSource
from protoslice.sources.source import RangeSource

SECONDS: Final = 600
"""Largest number of seconds that one registration may spend on reading objects."""
REQUESTS: Final = 100_000
"""Largest number of reads of the root for one registration."""


async def register(space: Space, files: Mapping[str, str], request: IngestRequest) -> Created:
    """Create a store over external objects below allowed prefixes; `files` maps paths to URIs.

    Raise `StorageUnavailable` when reading takes more than `SECONDS`.
    """
    check_request(request)
    await space.quotas.check(stores=1)
    await space.shared.check_free_space()
    registration = _Registration(space, request, await space.schemas.types(request.type))
    objects = space.new_objects()
    try:
        try:
            async with asyncio.timeout(SECONDS):
                received, root = await registration.received(files)
        except TimeoutError as error:
            raise StorageUnavailable(
                f"Reading the objects took more than {SECONDS} seconds: nothing was stored"
            ) from error
        described = replace(request, source="register")
        manifest = await drafted(described, received, root, objects=objects, worker=space.worker)
        return await publish(space, manifest, request, objects)
    finally:
        objects.end()


class _Registration:
    """The files of one registration."""

    def __init__(self, space: Space, request: IngestRequest, types: Types) -> None:
        self._external = space.shared.external
        self._kept_rules = space.shared.options.rules
        self._worker = space.worker
        self._request = request
        self._types = types

    async def received(self, files: Mapping[str, str]) -> tuple[list[IngestedFile], Root]:
        """Return the files in the order of the request, and the root chosen among them."""
        places = await self._worker.run(lambda: self._by_place(files))
        looked = await map_concurrently(lambda place: self._look(*place), places.items())
        found = {received.info.path: received for each in looked for received in each}
        received = [found[path] for path in files]
        root = await choose_root(
            received,
            self._request,
            opened=lambda file: self._external.open(file.stored, self._worker),
            worker=self._worker,
            prepare=self._prepare,
        )
        return received, root

    def _by_place(self, files: Mapping[str, str]) -> dict[str, list[str]]:
        """Check all paths and URIs, and return the paths of the files by URI.

        So an object that several files use is read only once.
        """
        if not files:
            raise InvalidInput("No files to register: name at least one")
        found: dict[str, list[str]] = {}
        for path, uri in files.items():
            found.setdefault(self._external.canonical(uri), []).append(path)
        paths = FilePaths()
        for path in files:
            paths.add(path)
        return found

    async def _look(self, uri: str, paths: Sequence[str]) -> list[IngestedFile]:
        """Return the files that use the object at `uri`, after one `stat` and one read of the object's first bytes."""
        storage, key = self._external.place(uri)
        try:
            stat = await storage.stat(key)
        except NotFound:
            raise NotFound(f"There is no object for {paths[0]!r} at the given URI") from None
        stored = ObjectLocation(stat.size, uri=uri, etag=stat.etag)
        head = await storage.get_range(key, 0, min(HEAD, stat.size), if_etag=stat.etag)
        found = []
        for path in paths:
            detection = detect(head, path.rpartition("/")[2], stat.size)
            scan = Scan(detection.type_name if detection.kind == "proto" else None)
            found.append(IngestedFile(File(path, stat.size, None), PendingLocation(stored), detection, scan))
        return found

    async def _prepare(self, root: IngestedFile) -> tuple[RootRecords | None, None]:
        request, worker = self._request, self._worker
        kind, type_name = root.detection.kind, root.detection.type_name
        if kind == "text" and type_name is not None and request.type is None:
            raise Unsupported(
                f"{root.detection.why}; only binary protobufs can be registered in place: upload the file instead"
            )
        if kind == "refused" and request.type is None:
            raise NotAModel(root.detection.why)
        opened = await self._external.open(root.stored, worker)
        opened.save_reads(0, SavedReads())
        source = _Bounded(opened)
        try:
            prepared = await worker.run_long(
                lambda: prepare_root(
                    source, root, _NoSide(), self._types, request, kept_rules=self._kept_rules, texts=False
                )
            )
            return prepared, None
        finally:
            source.end()
            opened.close()


class _Bounded:
    """A source that allows at most `REQUESTS` reads of an object during indexing, and none after a call of `end`."""

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
        """Refuse further reads, because a worker thread cannot be cancelled."""
        self._left = 0


class _Compressed(Unsupported):
    """The exception for a compressed chunked proto: its decoded chunks would need a side object."""


class _NoSide:
    """A destination of decoded bytes for external roots, which accepts no bytes."""

    room: Final = sys.maxsize

    def write(self, data: bytes, /) -> None:
        """Raise an error unless `data` is empty."""
        if data:
            raise _Compressed("A compressed chunked proto cannot be registered in place: upload it")

    def source(self) -> RangeSource:
        """Return an empty source."""
        return BytesSource(b"")
