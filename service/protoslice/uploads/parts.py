"""Parts of uploads: how they are read and merged, and how they are composed from extents of stored objects."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Final

from protoslice.catalog.manifest import ObjectExtent, ObjectLocation
from protoslice.catalog.new_objects import NewObjects, ObjectWriter
from protoslice.catalog.uploads import SavedInspection, Upload, UploadTable
from protoslice.detection import HEAD
from protoslice.errors import ChecksumMismatch, ProtosliceError
from protoslice.ingest.file_writer import BATCH, Batches
from protoslice.ingest.inspection import Inspection
from protoslice.ingest.sharing import Layout, Sharing
from protoslice.serving.joined import open_file_object, opened_parts
from protoslice.serving.schemas import Types
from protoslice.serving.shared import Space
from protoslice.sources.source import RangeSource
from protoslice.storage import ObjectKey, Span

RUN = 16
"""Number of small parts that are merged into one, so that tiny requests do not leave many parts.

A byte is copied each time its part grows by this factor, until the part has full size.
"""


async def resumed_inspection(
    space: Space, upload: Upload, types: Types, *, path: str, wanted: str | None
) -> Inspection:
    """Resume an upload's inspection from its saved state; return a new inspection if no usable state is saved."""
    saved = upload.saved
    if saved is not None:
        with suppress(ProtosliceError, ValueError, KeyError, TypeError):
            state = await space.storage.get_range(ObjectKey(saved.key), 0, saved.bytes)
            head = None if path == upload.filename else await _head(space, upload)
            return await space.worker.run(lambda: Inspection.load(state, path, wanted, types, head))
    return Inspection(path, wanted, types)


async def _head(space: Space, upload: Upload) -> bytes:
    """Return the first bytes of an upload, which suffice for detection."""
    async with aclosing(bytes_of(space, upload.parts, end=HEAD)) as pieces:
        return b"".join([piece async for piece in pieces])


async def feed_parts(space: Space, inspection: Inspection, parts: Sequence[ObjectLocation]) -> None:
    """Feed an inspection those bytes of `parts` that it has not seen."""
    begin = 0
    for part in parts:
        end = begin + part.size
        if inspection.size < end:
            source = await open_file_object(space.storage, part, space.worker, verify=True)
            try:
                await space.worker.run(lambda source=source, begin=begin: _take(inspection, source, begin))  # type: ignore[misc]
            finally:
                source.close()
        begin = end


def _take(inspection: Inspection, source: RangeSource, begin: int) -> None:
    while (at := inspection.size - begin) < source.size:
        inspection.take(bytes(source.read(at, min(BATCH, source.size - at))))


async def bytes_of(
    space: Space, parts: Sequence[ObjectLocation], start: int = 0, end: int | None = None
) -> AsyncGenerator[bytes]:
    """Yield the verified bytes of `parts` from `start` to `end` in pieces; None means up to the end."""
    if not parts:
        return
    async with opened_parts(space.storage, parts, space.worker) as source:
        stop = source.size if end is None else end
        for at in range(start, stop, BATCH):
            yield await space.worker.run(lambda at=at: source.read(at, min(BATCH, stop - at)))  # type: ignore[misc]


async def change(
    space: Space, records: UploadTable, held: Upload, upload: Upload, objects: NewObjects | None = None
) -> Upload:
    """Replace the record of an upload, and extend the upload's expiry as the options say; see `UploadTable.change`."""
    keep_seconds = space.shared.options.uploads.kept_seconds(begun=upload.is_begun)
    return await records.change(held, upload, keep_seconds=keep_seconds, objects=objects)


async def compact(space: Space, records: UploadTable, held: Upload) -> Upload:
    """Merge small parts at the end of an upload until fewer than `RUN` parts of one size class are left."""
    while True:
        objects = space.new_objects()
        try:
            async with records.unless_changed(held):
                changed = await _compacted(space, objects, held)
            if changed is held:
                return held
            held = await change(space, records, held, changed, objects)
        finally:
            objects.end()


async def _compacted(space: Space, objects: NewObjects, upload: Upload) -> Upload:
    """Return the upload after merging the small parts at its end, if these are `RUN` or more.

    Otherwise, return `upload` itself.
    """
    run = _small_run(upload.parts, space.shared.options.uploads.part_bytes)
    if run < RUN:
        return upload
    target = await objects.writer()
    try:
        async with aclosing(bytes_of(space, upload.parts[-run:])) as pieces:
            async for piece in pieces:
                target.sums.update(piece)
                await target.write(piece)
        stored = await target.commit()
    except BaseException:
        await target.abort()
        raise
    return replace(upload, parts=(*upload.parts[:-run], stored))


def _small_run(parts: Sequence[ObjectLocation], part_bytes: int) -> int:
    """Return how many parts at the end are in the size class of the last part or in a lower class."""
    most = part_bytes if not parts else min(part_bytes, RUN ** (_power(parts[-1].size) + 1))
    count = 0
    for part in reversed(parts):
        if part.size >= most:
            break
        count += 1
    return count


def _power(size: int) -> int:
    """Return the size class of a part: the exponent of the largest power of `RUN` that is at most `size`."""
    return max(0, size.bit_length() - 1) // 4


READ_AT_ONCE: Final = 8 << 20
"""Number of bytes of a file that one call reads, so that neighbouring extents of one object share reads."""


class Composer:
    """A writer that makes one upload's file from extents.

    Extents that are small or too many are copied into an object.
    """

    def __init__(
        self,
        space: Space,
        objects: NewObjects,
        upload: Upload,
        inspection: Inspection,
        extents: Sequence[ObjectExtent],
    ) -> None:
        """Set up the composer; `inspection` must not have seen any bytes of the file."""
        self._space = space
        self._objects = objects
        self._upload = upload
        self._inspection = inspection
        self._extents = extents
        self._layout = Layout()
        self._copied: deque[Span] = deque()
        """The spans of the file that are copied, in order."""
        self._own: ObjectWriter | None = None
        self._plan()

    async def compose(self) -> Upload:
        """Return the upload with its parts and the state of its inspection.

        Raise `ChecksumMismatch` if the bytes do not have the upload's SHA-256.
        """
        try:
            await self._read()
            if self._inspection.sha256.hex() != self._upload.sha256:
                raise ChecksumMismatch("The file made of the chunks does not match its SHA-256: nothing was stored")
            own = None if self._own is None else await self._own.commit()
        except BaseException:
            if self._own is not None:
                await self._own.abort()
            raise
        return replace(self._upload, parts=(self._layout.location(own),), saved=await self._saved())

    def _plan(self) -> None:
        sharing, at = Sharing(), 0
        worth = frozenset(each.object.key for each in self._extents if each.object.key is not None)
        for extent in self._extents:
            if sharing.takes(extent, worth, goes_on=self._layout.ends_before(extent)):
                self._layout.share(extent)
            else:
                self._layout.write(extent.size)
                start = self._copied.pop()[0] if self._copied and self._copied[-1][1] == at else at
                self._copied.append((start, at + extent.size))
            at += extent.size

    async def _read(self) -> None:
        """Inspect all bytes and copy the planned spans; a window is read while the previous window is processed."""
        if self._copied:
            self._own = await self._objects.writer()
        batches, at = Batches(self._look_at), 0
        try:
            async with aclosing(self._windows()) as windows:
                async for window in windows:
                    await batches.add(window)
                    await self._copy(window, at)
                    at += len(window)
            await batches.flush()
        finally:
            await batches.stop()

    async def _look_at(self, window: bytes | memoryview) -> None:
        await self._space.worker.run(lambda: self._inspection.take(window))

    async def _windows(self) -> AsyncGenerator[bytes]:
        locations = [extent.location for extent in self._extents]
        async with opened_parts(self._space.storage, locations, self._space.worker) as source:
            for at in range(0, source.size, READ_AT_ONCE):
                yield (await source.fetch([(at, min(at + READ_AT_ONCE, source.size))]))[0]

    async def _copy(self, window: bytes, at: int) -> None:
        """Write those spans of a window that are copied; the window begins at byte `at` of the file."""
        while self._copied and self._copied[0][0] < at + len(window):
            start, end = self._copied.popleft()
            piece = window[start - at : end - at]
            if end > at + len(window):
                self._copied.appendleft((at + len(window), end))
            own = self._own
            assert own is not None
            await self._space.worker.run(lambda own=own, piece=piece: own.sums.update(piece))  # type: ignore[misc]
            await own.write(piece)

    async def _saved(self) -> SavedInspection | None:
        """Save the inspection's state and return it, so that a commit reads no bytes again.

        Return None for a small file.
        """
        state = await self._space.worker.run(self._inspection.save)
        if state is None:
            return None
        key = await self._objects.put(state)
        return SavedInspection(key.text, self._inspection.size, len(state))
