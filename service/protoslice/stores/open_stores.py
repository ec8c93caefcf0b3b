"""Opened stores of a storage, the most recently used ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from protoslice.concurrency.gather import run_concurrently
from protoslice.concurrency.results import Results
from protoslice.concurrency.shares import Shares
from protoslice.concurrency.singleflight import SingleFlight
from protoslice.stores.cache import BlockCache
from protoslice.stores.catalog.derived_facts import DerivedSources
from protoslice.stores.catalog.schemas import Schemas
from protoslice.stores.ingest.external import ExternalObjects
from protoslice.stores.manifest import Manifest, ObjectLocation
from protoslice.stores.objects.joined import open_file_objects
from protoslice.stores.objects.stored import StoredFile, StoredObject, open_object
from protoslice.stores.reading.opened import OpenStore
from protoslice.stores.reading.records import FindType, key_passes
from protoslice.stores.reading.root import open_root, records_of
from protoslice.stores.tag_cache import STALE_SECONDS

AWAY_SECONDS: Final = 2.0
"""Seconds for which the database is not asked again about a store after it did not answer."""
_STORE: Final = "store"
"""Kind of an opened store among the results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpeningTerms:
    """Number of stores held open, seconds of trust in one, and whether reads are verified."""

    most: int
    trust_seconds: float
    verify: bool
    cache: BlockCache | None = None
    """Cache of distant objects; None where objects are local files."""


class OpenStores:
    """Cache of opened stores, by id."""

    def __init__(
        self,
        space: str,
        derived: DerivedSources,
        schemas: Schemas,
        external: ExternalObjects,
        find_type: FindType,
        terms: OpeningTerms,
        results: Results,
        beside: OpenStores | None = None,
    ) -> None:
        """`results` keeps the stores; `beside`: those of another space, with which these share their number."""
        self._storage = derived.storage
        self._space = space
        self._derived = derived
        self._worker = derived.worker
        self._schemas = schemas
        self._external = external
        self._find_type = find_type
        self._terms = terms
        self._shares = beside is not None
        self._results = results
        self._passes: Shares = beside._passes if beside else key_passes()
        self._rows: dict[tuple[str, str], int] = beside._rows if beside else {}
        """Rows of the stores that were opened, by space and id, the most recently used last."""
        self._opening: SingleFlight[tuple[str, int], OpenStore] = SingleFlight()

    def get_fresh(self, store_id: str) -> OpenStore | None:
        """The opened store, if its manifest was read at most `trust_seconds` ago; else None."""
        opened = self._find(store_id)
        fresh = opened is not None and self._worker.loop.time() - opened.seen_at < self._terms.trust_seconds
        return opened if fresh else None

    def get_stale(self, store_id: str) -> OpenStore | None:
        """The opened store, if its row was seen in the last minute; for readers while the database is away.

        It counts as fresh for a while: not every reader waits for the database.
        """
        opened, time = self._find(store_id), self._worker.loop.time()
        if opened is None or time - opened.read_at >= STALE_SECONDS:
            return None
        opened.seen_at = time - self._terms.trust_seconds + AWAY_SECONDS
        return opened

    async def get(self, manifest: Manifest) -> OpenStore:
        """The opened store of a manifest that was read just now."""
        opened = self._find(manifest.id)
        if opened is None or opened.manifest.row != manifest.row:
            return await self._opening.get((manifest.id, manifest.row), lambda: self._open(manifest))
        opened.seen_at = opened.read_at = self._worker.loop.time()
        self._use(opened)
        return opened

    def forget(self, store_id: str) -> None:
        """Drop a store, such as one that has been removed, and what was computed of it."""
        row = self._rows.pop((self._space, store_id), None)
        if row is not None:
            self._results.drop(row)

    async def assemble(self, manifest: Manifest) -> OpenStore:
        """The opened store of a manifest, which the caller closes; closes its files on failure."""
        opened: list[StoredFile] = []
        records: dict[str, bytes] = {}

        async def open_files() -> None:
            side = [manifest.side] if manifest.side is not None else []
            opened.extend(await open_file_objects([*manifest.objects, *side], self._open_object))

        async def read_records() -> None:
            if manifest.indexed:
                records.update(await records_of(self._storage, manifest, self._worker, self._terms.cache))

        try:
            await run_concurrently(open_files, read_records)
            proto = None
            files, side = opened[: len(manifest.objects)], opened[len(manifest.objects) :]
            if manifest.indexed:
                proto = await open_root(manifest, records, files, side, self._worker, self._schemas)
        except BaseException:
            for stored in opened:
                stored.close()
            raise
        derived = self._derived.of(manifest.row)
        return OpenStore(manifest, files, proto, self._worker, derived, self._results, self._passes, self._find_type)

    async def close(self) -> None:
        """Close all opened stores, after waiting for stores being opened; those that are shared stay open."""
        await self._opening.idle()
        if self._shares:
            return
        for row in self._rows.values():
            opened: OpenStore | None = self._results.find((row, _STORE))
            if opened is not None:
                opened.close()
            self._results.drop(row)
        self._rows.clear()

    async def _open(self, manifest: Manifest) -> OpenStore:
        store = await self.assemble(manifest)
        store.seen_at = store.read_at = self._worker.loop.time()
        known = self._find(manifest.id)
        if known is None or known.manifest.row <= manifest.row:  # else the store was removed and sent again meanwhile
            self._results.put((manifest.row, _STORE), store, store.weight)
            self._use(store)
        return store

    def _find(self, store_id: str) -> OpenStore | None:
        row = self._rows.get((self._space, store_id))
        found: OpenStore | None = None if row is None else self._results.find((row, _STORE))
        return found

    def _use(self, store: OpenStore) -> None:
        """Note a use of a store; of too many, the one that was used longest ago goes."""
        place = (self._space, store.manifest.id)
        self._rows.pop(place, None)
        self._rows[place] = store.manifest.row
        if len(self._rows) > self._terms.most:
            # Not closed, as a reader may hold it: files are closed with the last reference.
            self._results.drop(self._rows.pop(next(iter(self._rows))))

    async def _open_object(self, stored: ObjectLocation) -> StoredObject:
        if stored.uri is not None:
            return await self._external.open(stored, self._worker)
        terms = self._terms
        return await open_object(self._storage, stored, self._worker, verify=terms.verify, cache=terms.cache)
