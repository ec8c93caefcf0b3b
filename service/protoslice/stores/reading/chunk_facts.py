"""SHA-256 and riegeli hashes of a store's chunks, computed on demand and cached."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

from protoslice.concurrency.executor import Worker
from protoslice.concurrency.singleflight import SingleFlight
from protoslice.stores.derived_facts import DerivedFacts
from protoslice.stores.objects.digests import sha256_of
from protoslice.stores.objects.representation import Representation

# Version 2: facts without the number were made by older planners, maybe of other chunks.
# Digests of version 2 were one table of all chunks.
_DIGESTS: Final = "digests-3"
_HASHES: Final = "hashes-2"
_GROUP: Final = 512
"""Chunks whose digests are one derived fact: a page writes what it changed, of however many chunks."""
_DIGEST_SIZE: Final = 32
_UNKNOWN: Final = bytes(_DIGEST_SIZE)
_ROWS: Final = struct.Struct(f"{_DIGEST_SIZE}s")


class ChunkFacts:
    """Digests and hashes of one store's chunks, computed when first asked for and kept as derived facts."""

    def __init__(self, derived: DerivedFacts, worker: Worker, plan: str = "") -> None:
        self._derived = derived
        self._plan = plan
        """End of the facts' names, which tells the store's own plan (empty) from others."""
        self._worker = worker
        self._groups: dict[int, bytearray] = {}
        """Digests of each group of chunks in a row; zeros where none is known."""
        self._known = 0
        self._unsaved: set[int] = set()
        """Groups with digests that are not among the derived facts."""
        self._loading: SingleFlight[int, None] = SingleFlight()
        self._hashes: list[int] | None = None
        self._begun: list[int] = []
        """Hashes of the first chunks, from calculations that were cancelled."""
        self._digesting: SingleFlight[int, bytes] = SingleFlight()
        self._hashing: SingleFlight[str, list[int]] = SingleFlight()

    @property
    def known(self) -> int:
        """Number of digests in memory."""
        return self._known

    def known_digest(self, n: int) -> bytes | None:
        """The SHA-256 of chunk `n`; None when it is not in memory."""
        group, at = _place(n)
        digest = bytes(self._groups.get(group, b"")[at : at + _DIGEST_SIZE]) or _UNKNOWN
        return None if digest == _UNKNOWN else digest

    async def digest(self, n: int, chunk: Representation) -> bytes:
        """The SHA-256 of chunk `n`, loaded or computed by reading `chunk`; concurrent callers share the work."""
        group, _ = _place(n)
        if group not in self._groups:
            await self._loading.get(group, lambda: self._load_group(group))
        found = self.known_digest(n)
        if found is not None:
            return found
        return await self._digesting.get(n, lambda: self._digest(n, chunk), cancellable=True)

    async def hashes(self, compute: Callable[[int], Iterator[list[int]]]) -> list[int]:
        """The hash of each chunk, needed to write a `.cpb`.

        `compute(first)` yields lists of hashes from chunk `first` on, in slices of work. The work stops when no caller
        waits any more, and the next caller resumes it.
        """
        if self._hashes is not None:
            return self._hashes
        return await self._hashing.get(_HASHES, lambda: self._hash(compute), cancellable=True)

    async def _load_group(self, group: int) -> None:
        kept = await self._derived.load(f"{_DIGESTS}{self._plan}-{group}") or b""
        digests = bytearray(kept.ljust(_GROUP * _DIGEST_SIZE, b"\0"))
        self._known += sum(digest != _UNKNOWN for (digest,) in _ROWS.iter_unpack(digests))
        self._groups[group] = digests

    async def _digest(self, n: int, chunk: Representation) -> bytes:
        digest = await sha256_of(chunk, self._worker)
        group, at = _place(n)
        self._groups[group][at : at + _DIGEST_SIZE] = digest
        self._unsaved.add(group)
        self._known += 1
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
        """Write the groups with new digests to the derived facts."""
        while self._unsaved:
            group = self._unsaved.pop()
            digests = bytes(self._groups[group]).rstrip(b"\0")  # most stores have fewer chunks than a group
            await self._derived.save(f"{_DIGESTS}{self._plan}-{group}", digests)

    async def _load(self, name: str) -> dict[str, Any] | None:
        kept = await self._derived.load(name + self._plan)
        loaded: dict[str, Any] | None = None if kept is None else json.loads(kept)
        return loaded

    async def _save(self, name: str, facts: object) -> None:
        await self._derived.save(name + self._plan, json.dumps(facts, separators=(",", ":")).encode())


def _place(n: int) -> tuple[int, int]:
    """The group of chunk `n`, and the offset of its digest there in bytes."""
    return n // _GROUP, n % _GROUP * _DIGEST_SIZE
