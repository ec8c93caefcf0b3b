"""Taking the next bytes of an upload: part by part into storage, each durable before the record tells of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from time import monotonic

from protoslice.concurrency.executor import Worker
from protoslice.errors import ProtosliceError
from protoslice.storage import ObjectKey, Storage
from protoslice.stores.clock import now
from protoslice.stores.ingest.inspection import Examination
from protoslice.stores.ingest.writers import Batches, SummedObject
from protoslice.stores.layout import keys
from protoslice.stores.layout.fresh import put_new
from protoslice.stores.uploads.model import Saved, Upload
from protoslice.stores.uploads.records import Held

__all__ = ["Appender", "Means"]

LARGEST_PART = 1 << 30
PARTS_PER_DOUBLING = 64
STATE_SHARE = 4
"""A state is saved once this many times its size have come since the last: so what must be read again stays small."""


@dataclass(frozen=True, slots=True)
class Means:
    """What appending works with."""

    storage: Storage
    worker: Worker
    part_bytes: int
    change: Callable[[Held, Upload], Awaitable[Held]]


class Appender:
    """Appends to one upload. While one part becomes durable and is recorded, the next one is being written.

    Where a checksum is due, nothing is recorded before `finish`: a part that is not recorded does not count.
    """

    def __init__(
        self,
        means: Means,
        held: Held,
        examination: Examination | None,
        *,
        watch: Callable[[bytes], None] | None = None,
    ) -> None:
        self._means = means
        self._held = held
        self._upload = held.upload
        self._examination = examination
        self._watch = watch
        self._batches = Batches(self._work)
        self._part: SummedObject | None = None
        self._landing: asyncio.Future[None] | None = None
        self._unrecorded: list[ObjectKey] = []
        """Parts that no record can name: an attempt to write one may have gone well, whatever was answered."""
        self._failed = False
        self._stays_until = 0.0
        self._settle_in()

    @property
    def sound(self) -> bool:
        """Whether nothing has gone wrong with what was added, as far as it has been worked on."""
        return not self._failed

    async def add(self, piece: bytes) -> None:
        """Take the next piece; waits when storage is slower than the client."""
        await self._batches.add(piece)

    async def stay(self) -> None:
        """Have the upload kept while its bytes come, however long it takes until some of them are recorded."""
        if monotonic() < self._stays_until:
            return
        await self._settled()
        self._held = await self._means.change(self._held, self._held.upload)
        self._upload = replace(self._upload, expires=self._held.upload.expires)
        self._settle_in()

    def _settle_in(self) -> None:
        """Take half the time that the upload is kept for as the time to tell that it still gets on."""
        self._stays_until = monotonic() + (self._held.upload.expires - now()).total_seconds() / 2

    async def flush(self) -> None:
        """All that was added has been written and watched, though not recorded yet."""
        await self._batches.flush()

    async def finish(self, *, length: int | None = None) -> Held:
        """Make all that was added durable, then record it; `length` is that of the whole, where it is known now."""
        await self._batches.flush()
        part, self._part = self._part, None
        state = await self._state()
        await self._settled()
        if part is not None:
            await self._land(part, state)
        changed = self._upload if length is None else replace(self._upload, length=length)
        if changed != self._held.upload:
            await self._record(changed)
        return self._held

    async def abort(self) -> None:
        """Leave nothing behind of what was not recorded."""
        await self._batches.stop()
        with suppress(ProtosliceError):
            await self._settled()
        part, self._part = self._part, None
        if part is not None:
            await part.abort()
        for key in self._unrecorded:
            with suppress(ProtosliceError):
                await self._means.storage.delete(key)
                await self._means.storage.delete(keys.sums_of(key))

    async def _work(self, batch: bytes) -> None:
        try:
            await self._take(batch)
        except BaseException:
            self._failed = True
            raise

    async def _take(self, batch: bytes) -> None:
        if self._part is None:
            key = keys.new_object(self._upload.id, "part")
            self._part = await SummedObject.open(self._means.storage, key)
        part = self._part
        digesting = asyncio.ensure_future(self._means.worker.run(lambda: self._digest(part, batch)))
        try:
            await part.write(batch)
        finally:
            await digesting
        if part.size >= self._enough():
            self._part = None
            state = await self._state()
            await self._settled()
            self._landing = asyncio.ensure_future(self._land(part, state))

    def _digest(self, part: SummedObject, batch: bytes) -> None:
        part.sum(batch)
        if self._examination is not None:
            self._examination.take(batch)
        if self._watch is not None:
            self._watch(batch)

    def _enough(self) -> int:
        """Parts grow with the upload, so that there are never very many."""
        return max(self._means.part_bytes, min(self._upload.offset // PARTS_PER_DOUBLING, LARGEST_PART))

    async def _settled(self) -> None:
        """The part before has been recorded."""
        if self._landing is not None:
            landing, self._landing = self._landing, None
            await landing

    async def _land(self, part: SummedObject, state: tuple[int, bytes] | None) -> None:
        try:
            stored = await part.commit()
        except BaseException:
            await part.abort()
            raise
        self._unrecorded.append(part.key)
        upload = replace(self._upload, parts=(*self._upload.parts, stored))
        if state is not None:
            upload = await self._with_state(upload, *state)
        self._upload = upload
        if self._watch is None:
            await self._record(upload)

    async def _record(self, upload: Upload) -> None:
        before = self._held.upload.saved
        # Whatever is answered, a record may name the parts from here on: what none names, a collector takes.
        self._unrecorded.clear()
        self._held = await self._means.change(self._held, upload)
        self._upload = self._held.upload
        if before is not None and before != self._upload.saved:
            with suppress(ProtosliceError):
                await self._means.storage.delete(ObjectKey(before.key))

    async def _state(self) -> tuple[int, bytes] | None:
        """The state of the examination now, when it is time to keep it: after how many bytes, and what it is."""
        examination, saved = self._examination, self._upload.saved
        if examination is None or (saved and examination.size < saved.after + STATE_SHARE * saved.bytes):
            return None
        state = await self._means.worker.run(examination.save)
        return None if state is None else (examination.size, state)

    async def _with_state(self, upload: Upload, after: int, state: bytes) -> Upload:
        key = keys.new_object(upload.id, "state")
        await put_new(self._means.storage, key, state)
        return replace(upload, saved=Saved(str(key), after, len(state)))
