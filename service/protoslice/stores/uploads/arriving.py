"""Records of uploads under way: durable ones have numbers, and readers wait for more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from typing import Final

from protoslice import _core
from protoslice.concurrency.executor import Worker
from protoslice.concurrency.singleflight import SingleFlight
from protoslice.errors import InvalidInput
from protoslice.storage import Storage
from protoslice.stores.objects.joined import opened_parts
from protoslice.stores.objects.representation import Representation
from protoslice.stores.objects.stored import StoredFile
from protoslice.stores.uploads.arriving_index import ArrivingIndex, ArrivingIndexes, Shifted, covering
from protoslice.stores.uploads.model import Upload
from protoslice.stores.uploads.records import UploadRecords, VersionedUpload
from protoslice.streams.framing import MEDIA_TYPES, Framing, checked_framing

_PAUSE: Final = 0.5
"""Seconds between two looks at an upload that readers wait for; all of them share one look."""
_LONGEST_WAIT: Final = 30.0
_BYTES: Final = 4 << 20
"""Bytes of one answer, unless its first record is longer."""
_RECORDS: Final = 1 << 16
"""Records of one answer: small ones are framed anew within the pieces that a rope may have."""


@dataclass(frozen=True, slots=True)
class ArrivingRequest:
    """Records asked for: those behind the first `after`."""

    after: int = 0
    wait: float = 0.0
    """Seconds to wait while there are none; 30 at most."""
    framing: str | None = None
    """Framing of the upload; None leaves it to detection."""
    form: str = "delimited"
    """Framing of the answer."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """Records of an upload, in the order of their numbers."""

    upload: Upload
    records: Representation
    next: int | None
    """Number to ask for next; None when the upload has ended and all its records have been given."""


class Arriving:
    """Records of one storage's uploads, under way or ended."""

    def __init__(self, storage: Storage, worker: Worker, records: UploadRecords) -> None:
        self._storage = storage
        self._worker = worker
        self._records = records
        self._indexes = ArrivingIndexes(storage, worker)
        self._looks: SingleFlight[tuple[str, int], VersionedUpload] = SingleFlight()

    @asynccontextmanager
    async def after(self, upload_id: str, request: ArrivingRequest) -> AsyncIterator[Arrived]:
        """The records behind the first `request.after`, some MiB of them, readable within the context.

        Waits for the first of them; there are none when the wait is over, or the upload has ended. `Conflict` when
        another replica merged the parts meanwhile: ask again.
        """
        form = checked_framing(request.form)
        held = await self._records.read(upload_id)
        if held.upload.joined:
            raise InvalidInput("This upload was concatenated from others: read the records of its store")
        until = monotonic() + min(request.wait, _LONGEST_WAIT)
        while True:
            async with self._records.unless_changed(held):
                index = await self._indexes.of(held.upload, request.framing)
            ended = held.upload.state != "open" or held.upload.is_whole
            count = index.records.count if index is not None else 0
            if count > request.after or ended or monotonic() >= until:
                break
            held = await self._later(held, until)
        if index is None or count <= request.after:
            nothing = _represented(_core.Rope([]), [], form, held.upload)
            yield Arrived(held.upload, nothing, None if ended else request.after)
            return
        stop = min(index.records.within(request.after, _BYTES), request.after + _RECORDS)
        async with self._opened(held, index, request.after, stop, form) as found:
            yield Arrived(held.upload, found, None if ended and stop == count else stop)

    async def _later(self, held: VersionedUpload, until: float) -> VersionedUpload:
        """The upload once its record has changed, or `held` at the time `until`; readers share the looks."""

        async def look() -> VersionedUpload:
            later = held
            while later.epoch == held.epoch:
                await asyncio.sleep(_PAUSE)
                later = await self._records.again(held)
            return later

        # A thousand readers are woken when there is something to read, and not at every look.
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, until - monotonic())):
                return await self._looks.get((held.upload.id, held.epoch), look, cancellable=True)
        return held

    @asynccontextmanager
    async def _opened(
        self, held: VersionedUpload, index: ArrivingIndex, start: int, stop: int, form: Framing
    ) -> AsyncIterator[Representation]:
        first, last = index.records.place(start)[0], index.records.place(stop - 1)[3]
        begin, parts = covering(held.upload.parts, first, last)
        opened = opened_parts(self._storage, parts, self._worker)
        async with self._records.unless_changed(held), opened as source:
            rope = await self._worker.bulk(lambda: _rope(index, source, begin, (start, stop), form))
            yield _represented(rope, [source], form, held.upload)


def _rope(index: ArrivingIndex, source: StoredFile, begin: int, records: tuple[int, int], form: Framing) -> _core.Rope:
    """Records in the framing `form`, over `source`, the stream's bytes from `begin` on."""
    rope = index.records.rope(_core.Sources([Shifted(source, begin)]), [records], form)
    return rope.through(0, _core.Rope([(1, 0, begin), (0, 0, source.size)]))


def _represented(rope: _core.Rope, sources: Sequence[StoredFile], form: Framing, upload: Upload) -> Representation:
    media_type = MEDIA_TYPES.get(form, "application/octet-stream")
    name = f"{upload.filename.rpartition('/')[2]}.{form}"
    return Representation(rope, sources, "", name, kind="records", media_type=media_type)
