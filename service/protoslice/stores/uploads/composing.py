"""Uploads composed of extents of objects in the storage; bytes are read once, and not copied."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Final

from protoslice.concurrency.executor import Worker
from protoslice.errors import ChecksumMismatch
from protoslice.storage import Span, Storage
from protoslice.stores.ingest.file_writer import Batches
from protoslice.stores.ingest.inspection import Inspection
from protoslice.stores.ingest.sharing import Layout, Sharing
from protoslice.stores.manifest import ObjectExtent
from protoslice.stores.objects.joined import opened_parts
from protoslice.stores.uploads.model import SavedInspection, Upload
from protoslice.stores.writing.new_objects import NewObjects, ObjectWriter

READ_AT_ONCE: Final = 8 << 20
"""Bytes of a file that are read at once: extents of one object among them share reads."""


class Composer:
    """Composer of one upload; extents that are small, or too many, are written anew, one behind the other."""

    def __init__(
        self,
        storage: Storage,
        objects: NewObjects,
        worker: Worker,
        upload: Upload,
        inspection: Inspection,
        extents: Sequence[ObjectExtent],
    ) -> None:
        """`inspection` is of the whole file, of which nothing has been inspected."""
        self._storage = storage
        self._objects = objects
        self._worker = worker
        self._upload = upload
        self._inspection = inspection
        self._extents = extents
        self._layout = Layout()
        self._copied: deque[Span] = deque()
        """Spans of the file that are written anew, in order."""
        self._own: ObjectWriter | None = None
        self._plan()

    async def compose(self) -> Upload:
        """The upload, with its bytes and the state of the inspection.

        `ChecksumMismatch` unless they have its SHA-256.
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
        """Inspect all bytes, and write those that are copied; a window is read beside work on the last one."""
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
        await self._worker.run(lambda: self._inspection.take(window))

    async def _windows(self) -> AsyncGenerator[bytes]:
        async with opened_parts(self._storage, [extent.location for extent in self._extents], self._worker) as source:
            for at in range(0, source.size, READ_AT_ONCE):
                yield (await source.fetch([(at, min(at + READ_AT_ONCE, source.size))]))[0]

    async def _copy(self, window: bytes, at: int) -> None:
        """Write the spans of a window, which begins at byte `at`, that are written anew."""
        while self._copied and self._copied[0][0] < at + len(window):
            start, end = self._copied.popleft()
            piece = window[start - at : end - at]
            if end > at + len(window):
                self._copied.appendleft((at + len(window), end))
            own = self._own
            assert own is not None
            await self._worker.run(lambda own=own, piece=piece: own.sums.update(piece))  # type: ignore[misc]
            await own.write(piece)

    async def _saved(self) -> SavedInspection | None:
        """The state of the inspection, so that a commit reads no bytes again; None for a small file."""
        state = await self._worker.run(self._inspection.save)
        if state is None:
            return None
        key = await self._objects.put(state)
        return SavedInspection(key.text, self._inspection.size, len(state))
