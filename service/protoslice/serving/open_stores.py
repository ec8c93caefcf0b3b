"""Opened stores of a process, the most recently used ones."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from protoslice.catalog.manifest import Manifest
from protoslice.concurrency.executor import Worker
from protoslice.concurrency.results import Results
from protoslice.concurrency.singleflight import SingleFlight
from protoslice.serving.opened import OpenStore
from protoslice.serving.options import StoreOptions
from protoslice.serving.tag_cache import STALE_SECONDS

AWAY_SECONDS: Final = 2.0
"""Seconds for which the database is not asked again about a store after it did not answer."""
_STORE: Final = "store"
"""Kind of an opened store among the results."""


class OpenStores:
    """Opened stores by space and id, kept among the results of the process."""

    def __init__(self, worker: Worker, options: StoreOptions, results: Results) -> None:
        self._worker = worker
        self._options = options
        self._results = results
        self._rows: dict[tuple[str, str], int] = {}
        """Rows of the stores that were opened, by space and id, the most recently used last."""
        self._opening: SingleFlight[tuple[str, str, int], OpenStore] = SingleFlight()

    def get_fresh(self, space: str, store_id: str) -> OpenStore | None:
        """The opened store, if its manifest was read at most `trust_seconds` ago; else None."""
        opened = self._find((space, store_id))
        fresh = opened is not None and self._worker.loop.time() - opened.seen_at < self._options.trust_seconds
        return opened if fresh else None

    def get_stale(self, space: str, store_id: str) -> OpenStore | None:
        """The opened store, if its row was seen in the last minute; for readers while the database is away.

        It counts as fresh for a while: not every reader waits for the database.
        """
        opened, time = self._find((space, store_id)), self._worker.loop.time()
        if opened is None or time - opened.read_at >= STALE_SECONDS:
            return None
        opened.seen_at = time - self._options.trust_seconds + AWAY_SECONDS
        return opened

    async def get(
        self, space: str, manifest: Manifest, assemble: Callable[[], Coroutine[Any, Any, OpenStore]]
    ) -> OpenStore:
        """The opened store of a manifest that was read just now, by `assemble` unless it is open."""
        place = (space, manifest.id)
        opened = self._find(place)
        if opened is not None and opened.manifest.row == manifest.row:
            opened.seen_at = opened.read_at = self._worker.loop.time()
            self._use(place, opened)
            return opened

        async def open() -> OpenStore:
            store = await assemble()
            store.seen_at = store.read_at = self._worker.loop.time()
            known = self._find(place)
            if known is None or known.manifest.row <= manifest.row:  # else it was removed and sent again meanwhile
                self._results.put((manifest.row, _STORE), store, store.weight)
                self._use(place, store)
            return store

        # A store that was removed and sent again has another row: its caller must not get the opening of the old one.
        return await self._opening.get((*place, manifest.row), open)

    def forget(self, space: str, store_id: str) -> None:
        """Drop a store, such as one that has been removed, and what was computed of it."""
        row = self._rows.pop((space, store_id), None)
        if row is not None:
            self._results.drop(row)

    async def close(self) -> None:
        """Close all opened stores, after waiting for stores being opened."""
        await self._opening.idle()
        for row in self._rows.values():
            opened: OpenStore | None = self._results.find((row, _STORE))
            if opened is not None:
                opened.close()
            self._results.drop(row)
        self._rows.clear()

    def _find(self, place: tuple[str, str]) -> OpenStore | None:
        row = self._rows.get(place)
        found: OpenStore | None = None if row is None else self._results.find((row, _STORE))
        return found

    def _use(self, place: tuple[str, str], store: OpenStore) -> None:
        """Note a use of a store; of too many, the one that was used longest ago goes."""
        self._rows.pop(place, None)
        self._rows[place] = store.manifest.row
        if len(self._rows) > self._options.open_stores:
            # Not closed, as a reader may hold it: files are closed with the last reference.
            self._results.drop(self._rows.pop(next(iter(self._rows))))
