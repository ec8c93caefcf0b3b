"""Heads of views that are costly to make, kept with the store: their lengths are computed once."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any, Final

from protoslice.concurrency.results import Results
from protoslice.errors import ProtosliceError
from protoslice.identity import ONNX_FILES, READERS
from protoslice.stores.derived_facts import LARGEST_ROW, DerivedFacts
from protoslice.stores.objects.representation import Head
from protoslice.tensors.omitted import Omitted

_NAME: Final = f"heads-{READERS}-{ONNX_FILES}"
_LARGEST: Final = LARGEST_ROW // 2
"""Bytes of the row, about: a store has some two hundred heads, and no more are kept."""
_WEIGHT: Final = 1000
"""Bytes of memory of a head, about."""

_Heads = dict[str, list[Any]]


class KeptHeads:
    """Heads of one store by entity tag, in one row of the catalogue."""

    def __init__(self, row: int, derived: DerivedFacts, results: Results) -> None:
        self._row = row
        self._derived = derived
        self._results = results
        self._turn = asyncio.Lock()

    async def get(self, etag: str) -> Head | None:
        """The head of the view with this entity tag, if its length was computed before."""
        async with self._turn:
            known = self._results.find((self._row, "heads"))
            known = self._kept(await self._loaded()) if known is None else known
        found = known.get(etag)
        if found is None:
            return None
        size, filename, media_type, omitted = found
        left_out = None if omitted is None else Omitted(omitted[0], tuple(omitted[1]))
        return Head(etag, filename, media_type, size=size, omitted=left_out)

    async def put(self, head: Head) -> None:
        """Keep a head, also for other processes, while there is room; errors of the database are ignored."""
        left_out = None if head.omitted is None else [head.omitted.count, head.omitted.names]
        async with self._turn:
            # Another process may have added some meanwhile: of two that write at once, one computes a length again.
            known = (self._results.find((self._row, "heads")) or {}) | (await self._loaded() or {})
            more = known | {head.etag: [head.size, head.filename, head.media_type, left_out]}
            data = json.dumps(more).encode()
            if len(data) <= _LARGEST:
                self._kept(more)
                if more != known:
                    await self._derived.save(_NAME, data)

    def _kept(self, known: _Heads | None) -> _Heads:
        if known is not None:
            self._results.put((self._row, "heads"), known, _WEIGHT * len(known))
        return known or {}

    async def _loaded(self) -> _Heads | None:
        """Heads in the catalogue; None while the database is away."""
        with suppress(ProtosliceError):
            data = await self._derived.load(_NAME)
            return {} if data is None else dict(json.loads(data))
        return None
