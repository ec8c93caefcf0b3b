"""Appends to uploads: bytes go into parts, and each part is durable before the upload's record names it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from time import monotonic

from protoslice.catalog.new_objects import ObjectWriter
from protoslice.catalog.uploads import SavedInspection, Upload, UploadTable
from protoslice.database.transactions import now
from protoslice.errors import ProtosliceError
from protoslice.ingest.file_writer import Batches
from protoslice.ingest.inspection import Inspection
from protoslice.serving.shared import Space
from protoslice.uploads.parts import change, compact

LARGEST_PART = 1 << 30
PARTS_PER_DOUBLING = 64
CHECKPOINT_SECONDS = 5.0
"""Seconds after which new bytes are recorded even if they are few, so that readers of a slow stream do not wait."""
STATE_SHARE = 4
"""Number of new bytes before the next save of the inspection's state, as a multiple of the saved state's size.

This limits how many bytes a resumed upload reads again.
"""


class Appender:
    """A writer that appends to one upload; it writes a part while the previous part is committed and recorded.

    If `apart` is True, no part is recorded before `finish`, so a failed request leaves the upload unchanged.
    """

    def __init__(
        self,
        space: Space,
        records: UploadTable,
        held: Upload,
        inspection: Inspection | None,
        *,
        watch: Callable[[bytes | memoryview], None] | None = None,
        apart: bool = False,
    ) -> None:
        self._space = space
        self._records = records
        self._objects = space.new_objects()
        self._held = held
        self._upload = held
        self._inspection = inspection
        self._watch = watch
        self._apart = apart
        self._batches = Batches(self._work)
        self._turn = asyncio.Lock()
        """The lock that a method call or a checkpoint holds."""
        self._checkpoints: asyncio.Task[None] | None = None
        self._part: ObjectWriter | None = None
        self._landing: asyncio.Future[None] | None = None
        self._failed = False
        self._stays_until = 0.0
        self._settle_in()

    @property
    def sound(self) -> bool:
        """True while no batch has failed."""
        return not self._failed

    async def add(self, piece: bytes) -> None:
        """Append `piece`; wait when the storage is slower than the client."""
        if self._checkpoints is None and not self._apart:
            self._checkpoints = asyncio.create_task(self._checkpoint_often())
        elif self._checkpoints is not None and self._checkpoints.done():
            self._checkpoints.result()
        async with self._turn:
            await self._batches.add(piece)

    async def stay(self) -> None:
        """Extend the upload's expiry when half of its lifetime has passed without a recorded part."""
        if monotonic() < self._stays_until:
            return
        async with self._turn:
            await self._settled()
            self._held = await change(self._space, self._records, self._held, self._held, self._objects)
            self._upload = replace(self._upload, expires=self._held.expires)
            self._settle_in()

    def _settle_in(self) -> None:
        """Schedule the next extension for the time when half of the remaining lifetime has passed."""
        self._stays_until = monotonic() + (self._held.expires - now()).total_seconds() / 2

    async def flush(self) -> None:
        """Wait until all pieces are written and inspected; they need not be recorded yet."""
        await self._batches.flush()

    async def finish(self, *, length: int | None = None) -> Upload:
        """Make all pieces durable and record them; also record the upload's total `length` unless it is None."""
        await self._end_checkpoints()
        await self._land_all()
        changed = self._upload if length is None else replace(self._upload, length=length)
        if changed != self._held:
            await self._record(changed)
        return self._held

    async def abort(self) -> None:
        """Discard all pieces that were not recorded."""
        try:
            with suppress(ProtosliceError):
                await self._end_checkpoints()
            await self._batches.stop()
            with suppress(ProtosliceError):
                await self._settled()
            part, self._part = self._part, None
            if part is not None:
                await part.abort()
        finally:  # even if the storage fails here, or the caller is cancelled again
            self._objects.end()

    async def _checkpoint_often(self) -> None:
        """Record the bytes so far every few seconds; if this fails, the next call raises the error."""
        while True:
            await asyncio.sleep(CHECKPOINT_SECONDS)
            async with self._turn:
                # A batch may have failed meanwhile. A checkpoint would then record later batches in its place.
                if self._failed:
                    return
                await self._checkpoint()

    async def _checkpoint(self) -> None:
        before = self._held
        try:
            await self._land_all()
            if self._held != before and not self._held.is_whole:
                self._held = await compact(self._space, self._records, self._held)
                self._upload = self._held
        except BaseException:
            self._failed = True
            raise

    async def _end_checkpoints(self) -> None:
        """Wait for the running checkpoint, stop further checkpoints, and raise the error of a failed checkpoint."""
        async with self._turn:  # the lock prevents cancelling a checkpoint during a write
            task, self._checkpoints = self._checkpoints, None
            if task is not None and not task.cancel():
                task.result()

    async def _land_all(self) -> None:
        """Make all pieces durable and record them."""
        await self._batches.flush()
        part, self._part = self._part, None
        state = await self._state()
        await self._settled()
        if part is not None:
            await self._land(part, state)

    async def _work(self, batch: bytes | memoryview) -> None:
        try:
            await self._take(batch)
        except BaseException:
            self._failed = True
            raise

    async def _take(self, batch: bytes | memoryview) -> None:
        if self._part is None:
            self._part = await self._objects.writer()
        part = self._part
        digesting = asyncio.ensure_future(self._space.worker.run(lambda: self._digest(part, batch)))
        try:
            await part.write(batch)
        finally:
            await digesting
        if part.size >= self._enough():
            self._part = None
            state = await self._state()
            await self._settled()
            self._landing = asyncio.ensure_future(self._land(part, state))

    def _digest(self, part: ObjectWriter, batch: bytes | memoryview) -> None:
        if self._inspection is None:
            part.sums.update(batch)
        else:
            self._inspection.take(batch, part.sums)
        if self._watch is not None:
            self._watch(batch)

    def _enough(self) -> int:
        """Return the size at which the current part ends.

        The size grows with the upload, which limits the number of parts.
        """
        return max(
            self._space.shared.options.uploads.part_bytes, min(self._upload.offset // PARTS_PER_DOUBLING, LARGEST_PART)
        )

    async def _settled(self) -> None:
        """Wait until the previous part is recorded."""
        if self._landing is not None:
            landing, self._landing = self._landing, None
            await landing

    async def _land(self, part: ObjectWriter, state: tuple[int, bytes] | None) -> None:
        try:
            stored = await part.commit()
        except BaseException:
            await part.abort()
            raise
        upload = replace(self._upload, parts=(*self._upload.parts, stored))
        if state is not None:
            upload = await self._with_state(upload, *state)
        self._upload = upload
        if not self._apart:
            await self._record(upload)

    async def _record(self, upload: Upload) -> None:
        self._held = await change(self._space, self._records, self._held, upload, self._objects)
        self._upload = self._held

    async def _state(self) -> tuple[int, bytes] | None:
        """Return the number of inspected bytes and the state of the inspection, or None if no save is due now."""
        inspection, saved = self._inspection, self._upload.saved
        if inspection is None or (saved and inspection.size < saved.after + STATE_SHARE * saved.bytes):
            return None
        state = await self._space.worker.run(inspection.save)
        return None if state is None else (inspection.size, state)

    async def _with_state(self, upload: Upload, after: int, state: bytes) -> Upload:
        key = await self._objects.put(state)
        return replace(upload, saved=SavedInspection(key.text, after, len(state)))
