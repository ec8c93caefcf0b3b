"""Sample of the pieces of a store, by which stores are found that have pieces in common with a file.

Few pieces of a store can be found, those of the lowest digests: two stores that have much in common have such pieces in
common too, and a search begins with the lowest digests that are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nsmallest
from typing import Final

from protoslice.pieces import LEAST

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


def sampled(pieces: Iterable[tuple[bytes, int]]) -> list[bytes]:
    """Digests of a store's `pieces` (digest, size) that are to have an entry; none for a small store."""
    sizes = {digest: size for digest, size in pieces if size >= LEAST_SAMPLED}
    if sum(sizes.values()) < LEAST_INDEXED:
        return []
    return nsmallest(min(_MOST, max(_FEWEST, len(sizes) // _SAMPLED)), sizes)
