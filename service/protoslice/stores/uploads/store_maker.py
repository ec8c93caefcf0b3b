"""Stores made of complete uploads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from protoslice.concurrency.executor import Worker
from protoslice.errors import Conflict, InvalidInput, ProtosliceError, SpaceRemoved, StorageError
from protoslice.facts import File
from protoslice.storage import Storage
from protoslice.stores.catalog.files import FileRef
from protoslice.stores.ingest.ingest import Ingest
from protoslice.stores.ingest.inspection import Types
from protoslice.stores.ingest.packs import FilePlace
from protoslice.stores.ingest.receive import Received
from protoslice.stores.manifest import ObjectLocation
from protoslice.stores.requests import Created, IngestRequest
from protoslice.stores.uploads.model import Failure, Upload, UploadOptions
from protoslice.stores.uploads.parts import feed_parts, resumed_inspection

Ingesting = Callable[[IngestRequest], Awaitable[Ingest]]
Typing = Callable[[str | None], Awaitable[Types]]


class StoreMaker:
    """Passes complete uploads to an ingest without copying their parts."""

    def __init__(
        self, storage: Storage, worker: Worker, ingest: Ingesting, types: Typing, options: UploadOptions
    ) -> None:
        self._storage = storage
        self._worker = worker
        self._ingest = ingest
        self._types = types
        self._options = options

    async def stored(self, upload: Upload) -> Upload:
        """The upload as `stored` with its store, or `failed` with the reason.

        Errors that a retry may mend are raised.
        """
        try:
            made = await self.make({upload.filename: [upload]}, upload.request, digests_of(upload))
        except (StorageError, Conflict, SpaceRemoved):  # a removed space may be restored
            raise
        except ProtosliceError as error:
            return replace(upload, state="failed", failure=Failure.of(error))
        return replace(upload, state="stored", store=made.store.id, saved=None)

    async def make(
        self,
        files: Mapping[str, Sequence[Upload]],
        request: IngestRequest,
        digests: Mapping[str, str],
        taken: Mapping[str, FileRef] = MappingProxyType({}),
    ) -> Created:
        """Create a store of files, each made of consecutive uploads, and of files `taken` from other stores.

        `digests` are expected SHA-256 by path.
        """
        self._options.check_size(sum(upload.offset for uploads in files.values() for upload in uploads))
        async with await self._ingest(request) as ingest:
            if taken:
                await ingest.take(taken)
            await self.fill(ingest, files, request, digests)
            return await ingest.commit()

    async def fill(
        self, ingest: Ingest, files: Mapping[str, Sequence[Upload]], request: IngestRequest, digests: Mapping[str, str]
    ) -> None:
        """Add files to an ingest, each made of consecutive uploads; see `make`."""
        types = await self._types(request.type)
        for path, uploads in files.items():
            if any(upload.offset for upload in uploads):
                received = await self._received(path, ingest.wanted_type(path), types, uploads)
                ingest.adopt(received)
                info = received.info
            else:
                info = await (await ingest.file(path)).close()
            if info.sha256 != digests.get(path, info.sha256):
                raise InvalidInput(f"{path!r} does not match its digest: nothing was stored")

    async def _received(self, path: str, wanted: str | None, types: Types, uploads: Sequence[Upload]) -> Received:
        """A file made of consecutive uploads; the inspection resumes from the first upload's saved state."""
        storage, worker = self._storage, self._worker
        inspection = await resumed_inspection(storage, worker, uploads[0], types, path=path, wanted=wanted)
        parts = [part for upload in uploads for part in upload.parts]
        await feed_parts(storage, worker, inspection, parts)
        inspected = await worker.run(inspection.finish)
        info = File(path, inspection.size, inspected.sha256.hex())
        return Received(info, FilePlace(ObjectLocation.joined(parts)), inspected.detection, inspected.scan)


def digests_of(upload: Upload) -> dict[str, str]:
    """Expected SHA-256 of an upload's file, by path; empty when the client gave none."""
    return {upload.filename: upload.sha256} if upload.sha256 else {}
