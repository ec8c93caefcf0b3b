"""Indexes of streams under way, each made from the one before and the bytes that came since."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from protoslice import _core
from protoslice.concurrency.executor import Worker
from protoslice.concurrency.lru import LruCache
from protoslice.concurrency.singleflight import SingleFlight
from protoslice.errors import Unsupported
from protoslice.sources.source import RangeSource
from protoslice.storage import Storage
from protoslice.stores.manifest import ObjectLocation
from protoslice.stores.objects.joined import opened_parts
from protoslice.stores.uploads.model import Upload
from protoslice.streams.framing import DECODED, Framing, checked_framing, framing_of

_MOST: Final = 16
_ROOM: Final = 64 << 20
_LIMITS: Final = _core.Limits(records=_ROOM, decoded=_ROOM, held=_ROOM, pieces=1 << 18)
_STEP: Final = 64 << 20
"""Bytes indexed at a time, about; between two steps other long work has its turn."""
_TOLD: Final = 64 << 10
"""Bytes from which on a framing that is not named can be told."""


@dataclass(frozen=True, slots=True)
class ArrivingIndex:
    """Index of the durable bytes of a stream; the last of them may be of a record that is not whole."""

    saved: bytes
    records: _core.Records


class Shifted:
    """Range source of a stream from which the bytes before `begin` are left out."""

    def __init__(self, source: RangeSource, begin: int) -> None:
        self.size = begin + source.size
        self._source = source
        self._begin = begin

    def read(self, offset: int, length: int, /) -> bytes:
        """Bytes of the stream, none before `begin`."""
        return self._source.read(offset - self._begin, length)


class ArrivingIndexes:
    """Indexes of uploads by framing, the most recently used in memory."""

    def __init__(self, storage: Storage, worker: Worker) -> None:
        self._storage = storage
        self._worker = worker
        self._recent: LruCache[tuple[str, Framing], ArrivingIndex] = LruCache(most=_MOST, room=_ROOM)
        self._once: SingleFlight[tuple[str, Framing, int], ArrivingIndex] = SingleFlight()

    async def of(self, upload: Upload, named: str | None) -> ArrivingIndex | None:
        """Index of all durable bytes of `upload`; None while there are none.

        `Unsupported` for files that have to be decoded, and for a framing that is neither named nor told so far.
        """
        if not upload.offset:
            return None
        framing = checked_framing(named) if named is not None else await self._told(upload)
        if framing in DECODED:
            raise Unsupported(f"Records of {framing} files can only be read after the upload has finished")
        recent = self._recent.get((upload.id, framing))
        if recent is not None and recent.records.size >= upload.offset:
            return recent
        view = (upload.id, framing, upload.offset)
        return await self._once.get(view, lambda: self._extended(upload, framing), cancellable=True)

    async def _told(self, upload: Upload) -> Framing:
        """The framing that the first durable bytes tell."""
        ended = upload.state != "open" or upload.is_whole
        _, parts = covering(upload.parts, 0, min(upload.offset, _TOLD))
        async with opened_parts(self._storage, parts, self._worker) as source:
            framing = await self._worker.run(lambda: framing_of(source))
        # A guess by few bytes could be another one later, and records would have other numbers.
        if ended or upload.offset >= _TOLD or framing in {"tfrecord", *DECODED}:
            return framing
        raise Unsupported(f"Too few bytes to detect the framing (less than {_TOLD}): pass framing=")

    async def _extended(self, upload: Upload, framing: Framing) -> ArrivingIndex:
        index = self._recent.get((upload.id, framing))
        while index is None or index.records.size < upload.offset:
            index = await self._step(upload, framing, index)
        self._recent.put((upload.id, framing), index, 2 * len(index.saved))
        return index

    async def _step(self, upload: Upload, framing: Framing, index: ArrivingIndex | None) -> ArrivingIndex:
        """`index`, and what the next parts add to it; reads nothing before the end of its last record."""
        known, seen = (0, 0) if index is None else (index.records.end, index.records.size)
        begin, parts = covering(upload.parts, known, min(upload.offset, seen + _STEP))

        def indexed(source: RangeSource) -> ArrivingIndex:
            behind = None if index is None else index.saved
            sources = _core.Sources([Shifted(source, begin)])
            saved = _core.index_records(sources, framing, limits=_LIMITS, behind=behind)
            return ArrivingIndex(saved, _core.Records(saved, limits=_LIMITS))

        async with opened_parts(self._storage, parts, self._worker) as source:
            return await self._worker.bulk(lambda: indexed(source))


def covering(parts: Sequence[ObjectLocation], first: int, last: int) -> tuple[int, list[ObjectLocation]]:
    """Offset of the first part that holds bytes from `first` up to `last`, and all such parts."""
    begin, offset, found = 0, 0, list[ObjectLocation]()
    for part in parts:
        end = offset + part.size
        if end > first and (offset < last or not found):
            begin = begin if found else offset
            found.append(part)
        offset = end
    return begin, found
