"""Digests of a store's chunks, and their hashes in a chunked file: computed by reading them, and kept once known."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from protoslice.concurrency.executor import Worker
from protoslice.concurrency.singleflight import SingleFlight
from protoslice.stores.catalog.artifact_cache import ArtifactCache
from protoslice.stores.reading.digests import sha256_of
from protoslice.stores.reading.serving import Representation

__all__ = ["ChunkFacts"]

# Of ids that name schema and planner. Without the number: what an older program kept, maybe of other chunks.
_DIGESTS: Final = "digests-2"
_HASHES: Final = "hashes-2"


class ChunkFacts:
    """Facts of one store's chunks: computed when asked for, then kept beside the store. They can be made anew."""

    def __init__(self, derived: ArtifactCache, worker: Worker) -> None:
        self._derived = derived
        self._worker = worker
        self._digests: dict[int, bytes] | None = None
        self._hashes: list[int] | None = None
        self._begun: list[int] = []
        """The hashes of the first chunks, by calls that were given up."""
        self._unsaved = False
        self._digesting: SingleFlight[int, bytes] = SingleFlight(stops=True)
        self._hashing: SingleFlight[str, list[int]] = SingleFlight(stops=True)

    @property
    def known(self) -> int:
        """How many digests are known."""
        return len(self._digests or ())

    def known_digest(self, n: int) -> bytes | None:
        """The SHA-256 of chunk `n`, if it is known already."""
        return (self._digests or {}).get(n)

    async def digest(self, n: int, chunk: Representation) -> bytes:
        """The SHA-256 of chunk `n`."""
        if self._digests is None:
            kept = await self._load(_DIGESTS)
            self._digests = {int(number): bytes.fromhex(digest) for number, digest in kept.items()} if kept else {}
        found = self._digests.get(n)
        return found if found is not None else await self._digesting.get(n, lambda: self._digest(n, chunk))

    async def hashes(self, compute: Callable[[int], Iterator[list[int]]]) -> list[int]:
        """The hash of each chunk in a chunked file.

        `compute` gives those from a chunk on, some at a time: slices of long work, which stop when nobody waits for
        them, and go on from there for the next caller.
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
        """Keep the digests that are new."""
        if self._unsaved and self._digests is not None:
            self._unsaved = False
            await self._save(_DIGESTS, {str(n): digest.hex() for n, digest in self._digests.items()})

    async def _load(self, name: str) -> dict[str, Any] | None:
        kept = await self._derived.load(name)
        loaded: dict[str, Any] | None = None if kept is None else json.loads(kept)
        return loaded

    async def _save(self, name: str, facts: object) -> None:
        await self._derived.save(name, json.dumps(facts, separators=(",", ":")).encode())
