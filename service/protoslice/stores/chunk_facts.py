"""What only reading a store's chunks tells: their digests, and the hashes of a chunked file. Kept once known."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from typing import Any, Final

from protoslice.stores.derived import Derived
from protoslice.stores.runner import Worker
from protoslice.stores.serving import Representation

__all__ = ["ChunkFacts"]

_DIGESTS: Final = "digests"
_HASHES: Final = "hashes"


class ChunkFacts:
    """Facts of one store's chunks: computed when asked for, then kept beside the store. They can be made anew."""

    def __init__(self, derived: Derived, worker: Worker) -> None:
        self._derived = derived
        self._worker = worker
        self._digests: dict[int, bytes] | None = None
        self._hashes: list[int] | None = None
        self._unsaved = False
        self._hashing = asyncio.Lock()

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
        if found is None:
            sha = hashlib.sha256()
            async for piece in chunk.pieces(0, chunk.size):
                await self._worker.run(lambda piece=piece: sha.update(piece))  # type: ignore[misc]
            found = self._digests[n] = sha.digest()
            self._unsaved = True
        return found

    async def hashes(self, compute: Callable[[], list[int]]) -> list[int]:
        """The hash of each chunk in a chunked file; `compute` reads them all, in a thread."""
        async with self._hashing:
            if self._hashes is None:
                kept = await self._load(_HASHES)
                self._hashes = list(kept["hashes"]) if kept else None
            if self._hashes is None:
                self._hashes = await self._worker.run(compute)
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
