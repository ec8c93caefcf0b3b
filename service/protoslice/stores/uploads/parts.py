"""Parts of uploads: reading and compacting them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace

from protoslice.concurrency.executor import Worker
from protoslice.detection import HEAD
from protoslice.errors import ProtosliceError
from protoslice.sources.source import RangeSource
from protoslice.storage import ObjectKey, Storage
from protoslice.stores.ingest.file_writer import BATCH
from protoslice.stores.ingest.inspection import Inspection
from protoslice.stores.manifest import ObjectLocation
from protoslice.stores.objects.joined import open_file_object, opened_parts
from protoslice.stores.schemas import Types
from protoslice.stores.shared import Space
from protoslice.stores.uploads.model import Upload
from protoslice.stores.uploads.records import UploadRecords, VersionedUpload
from protoslice.stores.writing.new_objects import NewObjects

RUN = 16
"""Number of small parts that are compacted into one, so that tiny requests do not leave many parts.

Each byte is copied once for each power of this number, up to the size of a part.
"""


async def resumed_inspection(
    storage: Storage, worker: Worker, upload: Upload, types: Types, *, path: str, wanted: str | None
) -> Inspection:
    """Resume an upload's inspection from its saved state; a fresh one when there is no usable state."""
    saved = upload.saved
    if saved is not None:
        with suppress(ProtosliceError, ValueError, KeyError, TypeError):
            state = await storage.get_range(ObjectKey(saved.key), 0, saved.bytes)
            head = None if path == upload.filename else await _head(storage, worker, upload)
            return await worker.run(lambda: Inspection.load(state, path, wanted, types, head))
    return Inspection(path, wanted, types)


async def _head(storage: Storage, worker: Worker, upload: Upload) -> bytes:
    """First bytes of an upload that has more, as detection wants them."""
    async with aclosing(bytes_of(storage, worker, upload.parts, end=HEAD)) as pieces:
        return b"".join([piece async for piece in pieces])


async def feed_parts(storage: Storage, worker: Worker, inspection: Inspection, parts: Sequence[ObjectLocation]) -> None:
    """Feed an inspection the bytes of `parts` that it has not seen."""
    begin = 0
    for part in parts:
        end = begin + part.size
        if inspection.size < end:
            source = await open_file_object(storage, part, worker, verify=True)
            try:
                await worker.run(lambda source=source, begin=begin: _take(inspection, source, begin))  # type: ignore[misc]
            finally:
                source.close()
        begin = end


def _take(inspection: Inspection, source: RangeSource, begin: int) -> None:
    while (at := inspection.size - begin) < source.size:
        inspection.take(bytes(source.read(at, min(BATCH, source.size - at))))


async def bytes_of(
    storage: Storage, worker: Worker, parts: Sequence[ObjectLocation], start: int = 0, end: int | None = None
) -> AsyncGenerator[bytes]:
    """Verified bytes of `parts` from `start` to `end`, piece by piece; all of them when `end` is None."""
    if not parts:
        return
    async with opened_parts(storage, parts, worker) as source:
        stop = source.size if end is None else end
        for at in range(start, stop, BATCH):
            yield await worker.run(lambda at=at: source.read(at, min(BATCH, stop - at)))  # type: ignore[misc]


async def change(
    space: Space, records: UploadRecords, held: VersionedUpload, upload: Upload, objects: NewObjects | None = None
) -> VersionedUpload:
    """Replace an upload, which is kept for as long as the options say; see `UploadRecords.change`."""
    keep_seconds = space.shared.options.uploads.kept_seconds(begun=upload.is_begun)
    return await records.change(held, upload, keep_seconds=keep_seconds, objects=objects)


async def compact(space: Space, records: UploadRecords, held: VersionedUpload) -> VersionedUpload:
    """Merge small parts at the end of an upload until there are fewer than `RUN` of a size class."""
    while True:
        before, objects = held.upload, space.new_objects()
        try:
            async with records.unless_changed(held):
                changed = await _compacted(space, objects, before)
            if changed is before:
                return held
            held = await change(space, records, held, changed, objects)
        finally:
            objects.end()


async def _compacted(space: Space, objects: NewObjects, upload: Upload) -> Upload:
    """The upload with the small parts at its end merged into one, if there are `RUN` or more.

    Else `upload` itself.
    """
    run = _small_run(upload.parts, space.shared.options.uploads.part_bytes)
    if run < RUN:
        return upload
    target = await objects.writer()
    try:
        async with aclosing(bytes_of(space.storage, space.worker, upload.parts[-run:])) as pieces:
            async for piece in pieces:
                target.sums.update(piece)
                await target.write(piece)
        stored = await target.commit()
    except BaseException:
        await target.abort()
        raise
    return replace(upload, parts=(*upload.parts[:-run], stored))


def _small_run(parts: Sequence[ObjectLocation], part_bytes: int) -> int:
    """Number of parts at the end that are in the size class of the last part or below."""
    most = part_bytes if not parts else min(part_bytes, RUN ** (_power(parts[-1].size) + 1))
    count = 0
    for part in reversed(parts):
        if part.size >= most:
            break
        count += 1
    return count


def _power(size: int) -> int:
    """Size class of a part: exponent of the largest power of `RUN` that is at most `size`."""
    return max(0, size.bit_length() - 1) // 4
