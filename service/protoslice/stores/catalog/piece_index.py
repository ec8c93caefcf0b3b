"""Index of pieces: entries by digest that find stores which have pieces in common with a file.

An entry says that the store at a place in time has a piece, which is true for ever: an id stands for its files. Entries
are written before the table of the store's pieces and believed when the table agrees. Few pieces of a store have one,
those of the lowest digests: two stores that have much in common have such pieces in common too, and a look-up begins
with the lowest digests that are asked for.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable
from heapq import nsmallest
from typing import Final

from protoslice.concurrency.gather import in_turns
from protoslice.pieces import LEAST
from protoslice.storage import Storage
from protoslice.stores.layout import keys

LEAST_SAMPLED: Final = LEAST
"""Bytes of the smallest piece that has an entry; there are smaller ones in any number."""
LEAST_INDEXED: Final = 8 << 20
"""Bytes of such pieces below which a store has no entries: clients send files of less as they are."""
_FEWEST: Final = 8
"""Entries of a store of few pieces; of two that share half of theirs, one pair in 256 is missed."""
_MOST: Final = 1024
_SAMPLED: Final = 64
"""Pieces of a larger store to an entry, so that a file is found in a store that holds much more."""
ASKED: Final = 64
"""Digests of one request that are looked up."""
_LOOKED_AT: Final = 8
"""Entries of one digest that are looked at, newest store first; there may be any number."""


def sampled(pieces: Iterable[tuple[bytes, int]]) -> list[bytes]:
    """Digests of a store's `pieces` (digest, size) that are to have an entry; none for a small store."""
    sizes = {digest: size for digest, size in pieces if size >= LEAST_SAMPLED}
    if sum(sizes.values()) < LEAST_INDEXED:
        return []
    return nsmallest(min(_MOST, max(_FEWEST, len(sizes) // _SAMPLED)), sizes)


class PieceIndex:
    """Entries of the pieces of one storage's stores."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def add(self, place: str, digests: Iterable[bytes]) -> None:
        """Note that the store at `place` has the pieces of `digests`."""
        # Random content: a collector that meant to delete an entry sees that it was written anew.
        note = secrets.token_hex(8).encode()
        await in_turns(lambda digest: self._storage.put(keys.by_piece(digest.hex()) / place, note), digests)

    async def places(self, wanted: Collection[str]) -> dict[str, set[str]]:
        """Places in time of stores that may have pieces of `wanted`, each with digests that it was found by."""
        found: dict[str, set[str]] = {}
        digests = nsmallest(ASKED, wanted)
        for digest, places in zip(digests, await in_turns(self._of, digests), strict=True):
            for place in places:
                found.setdefault(place, set()).add(digest)
        return found

    async def _of(self, digest: str) -> list[str]:
        page = await self._storage.list(keys.by_piece(digest), limit=_LOOKED_AT)
        return [item.key.segments[-1] for item in page.items]


def store_of(place: str) -> str:
    """Id of the store of an entry, by the place that the entry's key ends in."""
    return place.partition("-")[2]
