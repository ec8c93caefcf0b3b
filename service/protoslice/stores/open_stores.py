"""Opened stores of a storage, the most recently used ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from protoslice.concurrency.gather import run_concurrently
from protoslice.concurrency.singleflight import SingleFlight
from protoslice.stores.cache import BlockCache
from protoslice.stores.catalog.derived_facts import DerivedSources
from protoslice.stores.catalog.schemas import Schemas
from protoslice.stores.catalog.trust import STALE_SECONDS
from protoslice.stores.ingest.external import ExternalObjects
from protoslice.stores.manifest import Manifest, ObjectLocation
from protoslice.stores.objects.joined import open_file_objects
from protoslice.stores.objects.stored import StoredFile, StoredObject, open_object
from protoslice.stores.reading.opened import CommonWork, OpenStore
from protoslice.stores.reading.records import FindType
from protoslice.stores.reading.root import open_root, records_of

AWAY_SECONDS: Final = 2.0
"""Seconds for which the database is not asked again about a store after it did not answer."""
_WEIGH_SECONDS: Final = 0.25
"""Seconds between two looks at what opened stores weigh, which grow as they are used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpeningTerms:
    """Number and bytes of stores held open, seconds of trust in one, and whether reads are verified."""

    most: int
    room: int
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
        beside: OpenStores | None = None,
    ) -> None:
        """`beside`: those of another space, with which these share their number and memory."""
        self._storage = derived.storage
        self._space = space
        self._derived = derived
        self._worker = derived.worker
        self._schemas = schemas
        self._external = external
        self._find_type = find_type
        self._terms = terms
        self._shares = beside is not None
        self._common: CommonWork = beside._common if beside else CommonWork()
        self._opened: dict[tuple[str, str], OpenStore] = beside._opened if beside else {}
        self._opening: SingleFlight[tuple[str, int], OpenStore] = SingleFlight()
        self._weighed_at = float("-inf")

    def get_fresh(self, store_id: str) -> OpenStore | None:
        """The opened store, if its manifest was read at most `trust_seconds` ago; else None."""
        opened = self._opened.get((self._space, store_id))
        fresh = opened is not None and self._worker.loop.time() - opened.seen_at < self._terms.trust_seconds
        return opened if fresh else None

    def get_stale(self, store_id: str) -> OpenStore | None:
        """The opened store, if its row was seen in the last minute; for readers while the database is away.

        It counts as fresh for a while: not every reader waits for the database.
        """
        opened, time = self._opened.get((self._space, store_id)), self._worker.loop.time()
        if opened is None or time - opened.read_at >= STALE_SECONDS:
            return None
        opened.seen_at = time - self._terms.trust_seconds + AWAY_SECONDS
        return opened

    async def get(self, manifest: Manifest) -> OpenStore:
        """The opened store of a manifest that was read just now."""
        place = (self._space, manifest.id)
        opened = self._opened.pop(place, None)
        if opened is not None and opened.manifest.row == manifest.row:
            opened.seen_at = opened.read_at = self._worker.loop.time()
            self._opened[place] = opened  # moved to the end, as the most recently used
            self._make_room()
            return opened
        return await self._opening.get((manifest.id, manifest.row), lambda: self._open(manifest))

    def forget(self, store_id: str) -> None:
        """Drop a store, such as one that has been removed."""
        self._opened.pop((self._space, store_id), None)

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
        return OpenStore(manifest, files, proto, self._worker, derived, self._common, self._find_type)

    async def close(self) -> None:
        """Close all opened stores, after waiting for stores being opened; those that are shared stay open."""
        await self._opening.idle()
        if self._shares:
            return
        for opened in self._opened.values():
            opened.close()
        self._opened.clear()

    async def _open(self, manifest: Manifest) -> OpenStore:
        store = await self.assemble(manifest)
        store.seen_at = store.read_at = self._worker.loop.time()
        place = (self._space, manifest.id)
        held = self._opened.get(place)
        if held is None or held.manifest.row <= manifest.row:  # else the store was removed and sent again meanwhile
            self._opened[place] = store
            self._make_room()
        return store

    def _make_room(self) -> None:
        """Drop the stores that were used longest ago, until number and bytes of the others are within bounds."""
        dropped, time = len(self._opened) - self._terms.most, self._worker.loop.time()
        if time - self._weighed_at >= _WEIGH_SECONDS:
            self._weighed_at = time
            weights = [store.weight for store in self._opened.values()]
            over = sum(weights) - self._terms.room
            for number, weight in enumerate(weights[:-1], 1):  # the last is in use
                if over <= 0:
                    break
                over, dropped = over - weight, max(dropped, number)
        for _ in range(dropped):
            # Not closed, as a reader may hold it: files are closed with the last reference.
            self._opened.pop(next(iter(self._opened)))

    async def _open_object(self, stored: ObjectLocation) -> StoredObject:
        if stored.uri is not None:
            return await self._external.open(stored, self._worker)
        terms = self._terms
        return await open_object(self._storage, stored, self._worker, verify=terms.verify, cache=terms.cache)
