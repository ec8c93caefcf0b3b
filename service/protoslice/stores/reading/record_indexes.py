"""Saved indexes of a store's streams: made on first use, and kept beside the store."""

from __future__ import annotations

import hashlib
from typing import Final

from protoslice import _core
from protoslice.concurrency import Job
from protoslice.concurrency.executor import SLICE, Worker
from protoslice.identity import RECORDS
from protoslice.stores.derived_facts import DerivedFacts
from protoslice.stores.objects.stored import StoredFile
from protoslice.streams.framing import CHUNKED, Framing

_HEADS: Final = 64 << 10
"""Bytes read at a time where records are so long that reads pass over them."""


class RecordIndexes:
    """Indexes of the streams of one store."""

    def __init__(self, worker: Worker, derived: DerivedFacts) -> None:
        self._worker = worker
        self._derived = derived

    async def of(self, path: str, stored: StoredFile, framing: Framing, limits: _core.Limits) -> bytes:
        """The index of the file at `path`; `LimitExceeded` for one of too many records."""
        name = f"records-{RECORDS}-{hashlib.sha256(f'{framing}/{path}'.encode()).hexdigest()[:32]}"
        saved = await self._derived.load(name)
        if saved is None:
            saved = await self._made(stored, framing, limits)
            await self._derived.save(name, saved)
        return saved

    async def _made(self, stored: StoredFile, framing: Framing, limits: _core.Limits) -> bytes:
        """The index, made slice by slice where the stream is one."""
        if framing in CHUNKED:
            sources = _core.Sources([stored])
            return await self._worker.bulk(lambda: _core.index_records(sources, framing, limits=limits))
        scanner = _core.RecordScanner(framing, limits=limits)
        await self._worker.finish(_scan_job(scanner, stored))
        return await self._worker.bulk(lambda: scanner.finish(stored.size))


def _scan_job(scanner: _core.RecordScanner, stored: StoredFile) -> Job[None]:
    """Show `scanner` the bytes of `stored`, but for those of long records."""
    at, length = 0, _HEADS
    while at < stored.size:
        scanner.feed(stored.read(at, min(length, stored.size - at)))
        seen, at = at + length, scanner.jump()
        length = _HEADS if at > seen + SLICE else min(2 * length, SLICE)
        yield
