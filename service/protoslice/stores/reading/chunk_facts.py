"""SHA-256 and riegeli hashes of a store's chunks, computed on demand and cached."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from protoslice.concurrency.executor import Worker
from protoslice.concurrency.singleflight import SingleFlight
from protoslice.stores.catalog.artifact_cache import ArtifactCache
from protoslice.stores.objects.digests import sha256_of
from protoslice.stores.objects.representation import Representation

__all__ = ["ChunkFacts"]

# Version 2: artifacts without the number were made by older planners, maybe of other chunks.
_DIGESTS: Final = "digests-2"
_HASHES: Final = "hashes-2"


class ChunkFacts:
    """Digests and hashes of one store's chunks, computed when first asked for and saved as artifacts."""

    def __init__(self, derived: ArtifactCache, worker: Worker, plan: str = "") -> None:
        self._derived = derived
        self._plan = plan
        """End of the artifacts' names, which tells the store's own plan (empty) from others."""
        self._worker = worker
        self._digests: dict[int, bytes] | None = None
        self._hashes: list[int] | None = None
        self._begun: list[int] = []
        """Hashes of the first chunks, from calculations that were cancelled."""
        self._unsaved = False
        self._digesting: SingleFlight[int, bytes] = SingleFlight(stops=True)
        self._hashing: SingleFlight[str, list[int]] = SingleFlight(stops=True)

    @property
    def known(self) -> int:
        """Number of digests in memory."""
        return len(self._digests or ())

    def known_digest(self, n: int) -> bytes | None:
        """The SHA-256 of chunk `n`; None when it is not in memory."""
        return (self._digests or {}).get(n)

    async def digest(self, n: int, chunk: Representation) -> bytes:
        """The SHA-256 of chunk `n`, loaded or computed by reading `chunk`; concurrent callers share the work."""
        if self._digests is None:
            kept = await self._load(_DIGESTS)
            self._digests = {int(number): bytes.fromhex(digest) for number, digest in kept.items()} if kept else {}
        found = self._digests.get(n)
        return found if found is not None else await self._digesting.get(n, lambda: self._digest(n, chunk))

    async def hashes(self, compute: Callable[[int], Iterator[list[int]]]) -> list[int]:
        """The hash of each chunk, needed to write a `.cpb`.

        `compute(first)` yields lists of hashes from chunk `first` on, in slices of work. The work stops when no caller
        waits any more, and the next caller resumes it.
        """
        if self._hashes is not None:
            return self._hashes
        return await self._hashing.get(_HASHES, lambda: self._hash(compute))

    async def _digest(self, n: int, chunk: Representation) -> bytes:
        digest = await sha256_of(chunk, self._worker)
        if self._digests is not None:
            self._digests[n] = digest
            self._unsaved = True
        return digest

    async def _hash(self, compute: Callable[[int], Iterator[list[int]]]) -> list[int]:
        kept = await self._load(_HASHES)
        if kept:
            self._hashes = list(kept["hashes"])
            return self._hashes
        async for hashes in self._worker.steps(compute(len(self._begun))):
            self._begun += hashes
        self._hashes, self._begun = self._begun, []
        await self._save(_HASHES, {"hashes": self._hashes})
        return self._hashes

    async def save(self) -> None:
        """Write new digests to the artifact cache."""
        if self._unsaved and self._digests is not None:
            self._unsaved = False
            await self._save(_DIGESTS, {str(n): digest.hex() for n, digest in self._digests.items()})

    async def _load(self, name: str) -> dict[str, Any] | None:
        kept = await self._derived.load(name + self._plan)
        loaded: dict[str, Any] | None = None if kept is None else json.loads(kept)
        return loaded

    async def _save(self, name: str, facts: object) -> None:
        await self._derived.save(name + self._plan, json.dumps(facts, separators=(",", ":")).encode())
