"""Records of running uploads: records whose bytes are durable have numbers, and readers can wait for more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from typing import Final

from protoslice import _core
from protoslice.catalog.manifest import ObjectLocation
from protoslice.catalog.uploads import Upload, UploadTable
from protoslice.concurrency.executor import Worker
from protoslice.concurrency.results import Results, SingleFlight
from protoslice.errors import InvalidInput, Unsupported
from protoslice.serving.joined import opened_parts
from protoslice.serving.representation import Representation
from protoslice.serving.stored import StoredFile
from protoslice.sources.source import RangeSource
from protoslice.storage import Storage
from protoslice.streams.framing import DECODED, MEDIA_TYPES, Framing, checked_framing, framing_of

_ROOM: Final = 64 << 20
_LIMITS: Final = _core.Limits(records=_ROOM, decoded=_ROOM, held=_ROOM, pieces=1 << 18)
_STEP: Final = 64 << 20
"""Approximate number of bytes that are indexed in one step; other long work can run between two steps."""
_DETECTABLE: Final = 64 << 10
"""Number of bytes from which on an upload's framing can be detected if the request does not name the framing."""


@dataclass(frozen=True, slots=True)
class ArrivingIndex:
    """An index of the durable bytes of a stream; the last record may be incomplete."""

    saved: bytes
    records: _core.Records


class Shifted:
    """A range source for a stream whose bytes before `begin` are not available."""

    def __init__(self, source: RangeSource, begin: int) -> None:
        self.size = begin + source.size
        self._source = source
        self._begin = begin

    def read(self, offset: int, length: int, /) -> bytes:
        """Return bytes of the stream; `offset` must not be before `begin`."""
        return self._source.read(offset - self._begin, length)


class ArrivingIndexes:
    """The indexes of uploads by framing; the most recently used indexes are in memory."""

    def __init__(self, storage: Storage, worker: Worker, results: Results) -> None:
        self._storage = storage
        self._worker = worker
        self._results = results
        self._once: SingleFlight[tuple[str, Framing, int], ArrivingIndex] = SingleFlight()

    async def of(self, upload: Upload, named: str | None) -> ArrivingIndex | None:
        """Return the index of all durable bytes of `upload`, or None if there are none.

        Raise `Unsupported` for a framing that must be decoded, and for a framing that is neither named nor detected so
        far.
        """
        if not upload.offset:
            return None
        framing = checked_framing(named) if named is not None else await self._told(upload)
        if framing in DECODED:
            raise Unsupported(f"Records of {framing} files can only be read after the upload has finished")
        recent: ArrivingIndex | None = self._results.find((upload.id, "index of records", framing))
        if recent is not None and recent.records.size >= upload.offset:
            return recent
        view = (upload.id, framing, upload.offset)
        return await self._once.get(view, lambda: self._extended(upload, framing), cancellable=True)

    async def _told(self, upload: Upload) -> Framing:
        """Return the framing that the first durable bytes show."""
        ended = upload.state != "open" or upload.is_whole
        _, parts = covering(upload.parts, 0, min(upload.offset, _DETECTABLE))
        async with opened_parts(self._storage, parts, self._worker) as source:
            framing = await self._worker.run(lambda: framing_of(source))
        # More bytes could lead to another guess, and then the records would have other numbers.
        if ended or upload.offset >= _DETECTABLE or framing in {"tfrecord", *DECODED}:
            return framing
        raise Unsupported(f"Too few bytes to detect the framing (less than {_DETECTABLE}): pass framing=")

    async def _extended(self, upload: Upload, framing: Framing) -> ArrivingIndex:
        index: ArrivingIndex | None = self._results.find((upload.id, "index of records", framing))
        while index is None or index.records.size < upload.offset:
            index = await self._step(upload, framing, index)
        self._results.put((upload.id, "index of records", framing), index, 2 * len(index.saved))
        return index

    async def _step(self, upload: Upload, framing: Framing, index: ArrivingIndex | None) -> ArrivingIndex:
        """Return `index` extended by the next parts; read no byte before the end of the index's last record."""
        known, seen = (0, 0) if index is None else (index.records.end, index.records.size)
        begin, parts = covering(upload.parts, known, min(upload.offset, seen + _STEP))

        def indexed(source: RangeSource) -> ArrivingIndex:
            behind = None if index is None else index.saved
            sources = _core.Sources([Shifted(source, begin)])
            saved = _core.index_records(sources, framing, limits=_LIMITS, behind=behind)
            return ArrivingIndex(saved, _core.Records(saved, limits=_LIMITS))

        async with opened_parts(self._storage, parts, self._worker) as source:
            return await self._worker.run_long(lambda: indexed(source))


def covering(parts: Sequence[ObjectLocation], first: int, last: int) -> tuple[int, list[ObjectLocation]]:
    """Return the offset of the first part with bytes from `first` to `last`, and the list of all such parts."""
    begin, offset, found = 0, 0, list[ObjectLocation]()
    for part in parts:
        end = offset + part.size
        if end > first and (offset < last or not found):
            begin = begin if found else offset
            found.append(part)
        offset = end
    return begin, found


_PAUSE: Final = 0.5
"""Seconds between two queries for an upload that readers wait for; all its readers share the query."""
_LONGEST_WAIT: Final = 30.0
_BYTES: Final = 4 << 20
"""Largest number of bytes in one response, unless its first record is longer."""
_RECORDS: Final = 1 << 16
"""Largest number of records in one response; with framing, more small records could be too many pieces for a rope."""


@dataclass(frozen=True, slots=True)
class ArrivingRequest:
    """A request for the records after the first `after` records."""

    after: int = 0
    wait: float = 0.0
    """Seconds to wait while no such record has arrived; at most 30."""
    framing: str | None = None
    """The framing of the upload; None means that the service detects it."""
    form: str = "delimited"
    """The framing of the response."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """Records of an upload, in the order of their numbers."""

    upload: Upload
    records: Representation
    next: int | None
    """The value of `after` for the next request; None when the upload has ended and these are its last records."""


class Arriving:
    """The records of the running and ended uploads in one storage."""

    def __init__(self, storage: Storage, worker: Worker, records: UploadTable, results: Results) -> None:
        self._storage = storage
        self._worker = worker
        self._records = records
        self._indexes = ArrivingIndexes(storage, worker, results)
        self._looks: SingleFlight[tuple[str, int], Upload] = SingleFlight()

    @asynccontextmanager
    async def after(self, upload_id: str, request: ArrivingRequest) -> AsyncIterator[Arrived]:
        """Yield the records after the first `request.after` records, up to some MiB, for reading within the context.

        Wait for the first of these records. The result has no records if none arrives in time, or if the upload has
        ended. Raise `Conflict` when another replica has merged parts meanwhile; the caller can then try again.
        """
        form = checked_framing(request.form)
        held = await self._records.read(upload_id)
        if held.joined:
            raise InvalidInput("This upload joins other uploads: read the records of its store")
        until = monotonic() + min(request.wait, _LONGEST_WAIT)
        while True:
            async with self._records.unless_changed(held):
                index = await self._indexes.of(held, request.framing)
            ended = held.state != "open" or held.is_whole
            count = index.records.count if index is not None else 0
            if count > request.after or ended or monotonic() >= until:
                break
            held = await self._later(held, until)
        if index is None or count <= request.after:
            nothing = _represented(_core.Rope([]), [], form, held)
            yield Arrived(held, nothing, None if ended else request.after)
            return
        stop = min(index.records.within(request.after, _BYTES), request.after + _RECORDS)
        async with self._opened(held, index, request.after, stop, form) as found:
            yield Arrived(held, found, None if ended and stop == count else stop)

    async def _later(self, held: Upload, until: float) -> Upload:
        """Return the upload once its record has changed, or `held` at the time `until`.

        All readers share the queries.
        """

        async def look() -> Upload:
            later = held
            while later.epoch == held.epoch:
                await asyncio.sleep(_PAUSE)
                later = await self._records.again(held)
            return later

        # So a thousand readers only wake up when the record has changed, and not after every query.
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, until - monotonic())):
                return await self._looks.get((held.id, held.epoch), look, cancellable=True)
        return held

    @asynccontextmanager
    async def _opened(
        self, held: Upload, index: ArrivingIndex, start: int, stop: int, form: Framing
    ) -> AsyncIterator[Representation]:
        first, last = index.records.place(start)[0], index.records.place(stop - 1)[3]
        begin, parts = covering(held.parts, first, last)
        opened = opened_parts(self._storage, parts, self._worker)
        async with self._records.unless_changed(held), opened as source:
            rope = await self._worker.run_long(lambda: _rope(index, source, begin, (start, stop), form))
            yield _represented(rope, [source], form, held)


def _rope(index: ArrivingIndex, source: StoredFile, begin: int, records: tuple[int, int], form: Framing) -> _core.Rope:
    """Return the records in the framing `form`, as a rope over `source`, which begins at byte `begin` of the stream."""
    rope = index.records.rope(_core.Sources([Shifted(source, begin)]), [records], form)
    return rope.through(0, _core.Rope([(1, 0, begin), (0, 0, source.size)]))


def _represented(rope: _core.Rope, sources: Sequence[StoredFile], form: Framing, upload: Upload) -> Representation:
    media_type = MEDIA_TYPES.get(form, "application/octet-stream")
    name = f"{upload.filename.rpartition('/')[2]}.{form}"
    return Representation(rope, sources, "", name, kind="records", media_type=media_type)
