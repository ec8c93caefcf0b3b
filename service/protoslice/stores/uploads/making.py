"""Stores made of complete uploads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from protoslice.errors import Conflict, InvalidInput, ProtosliceError, SpaceRemoved, StorageError
from protoslice.facts import File
from protoslice.stores.finding import FileRef
from protoslice.stores.ingest.file_writer import IngestedFile, PendingLocation
from protoslice.stores.ingest.ingest import Ingest
from protoslice.stores.manifest import ObjectLocation
from protoslice.stores.requests import Created, IngestRequest
from protoslice.stores.schemas import Types
from protoslice.stores.shared import Space
from protoslice.stores.uploads.model import Failure, Upload
from protoslice.stores.uploads.parts import feed_parts, resumed_inspection


async def stored(space: Space, upload: Upload) -> Upload:
    """The upload as `stored` with its store, or `failed` with the reason.

    Errors that a retry may mend are raised.
    """
    try:
        made = await make_store(space, {upload.filename: [upload]}, upload.request, digests_of(upload))
    except (StorageError, Conflict, SpaceRemoved):  # a removed space may be restored
        raise
    except ProtosliceError as error:
        return replace(upload, state="failed", failure=Failure.of(error))
    return replace(upload, state="stored", store=made.store.id, saved=None)


async def make_store(
    space: Space,
    files: Mapping[str, Sequence[Upload]],
    request: IngestRequest,
    digests: Mapping[str, str],
    taken: Mapping[str, FileRef] = MappingProxyType({}),
) -> Created:
    """Create a store of files, each made of consecutive uploads, and of files `taken` from other stores.

    `digests` are expected SHA-256 by path.
    """
    space.shared.options.uploads.check_size(sum(upload.offset for uploads in files.values() for upload in uploads))
    async with await Ingest.begin(space, request) as ingest:
        if taken:
            await ingest.take(taken)
        await fill(space, ingest, files, request, digests)
        return await ingest.commit()


async def fill(
    space: Space,
    ingest: Ingest,
    files: Mapping[str, Sequence[Upload]],
    request: IngestRequest,
    digests: Mapping[str, str],
) -> None:
    """Add files to an ingest, each made of consecutive uploads; see `make_store`."""
    types = await space.schemas.types(request.type)
    for path, uploads in files.items():
        if any(upload.offset for upload in uploads):
            received = await _received(space, path, ingest.wanted_type(path), types, uploads)
            ingest.adopt(received)
            info = received.info
        else:
            info = await (await ingest.file(path)).close()
        if info.sha256 != digests.get(path, info.sha256):
            raise InvalidInput(f"{path!r} does not match its digest: nothing was stored")


async def _received(
    space: Space, path: str, wanted: str | None, types: Types, uploads: Sequence[Upload]
) -> IngestedFile:
    """A file made of consecutive uploads; the inspection resumes from the first upload's saved state."""
    storage, worker = space.storage, space.worker
    inspection = await resumed_inspection(storage, worker, uploads[0], types, path=path, wanted=wanted)
    parts = [part for upload in uploads for part in upload.parts]
    await feed_parts(storage, worker, inspection, parts)
    inspected = await worker.run(inspection.finish)
    info = File(path, inspection.size, inspected.sha256.hex())
    return IngestedFile(info, PendingLocation(ObjectLocation.joined(parts)), inspected.detection, inspected.scan)


def digests_of(upload: Upload) -> dict[str, str]:
    """Expected SHA-256 of an upload's file, by path; empty when the client gave none."""
    return {upload.filename: upload.sha256} if upload.sha256 else {}
