"""Eviction order of a cache: records stay longest, then segments that were used again, then the rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

RECORDS_SHARE: Final = 4
"""Records take at most one part in so many of the room, so that payload keeps the rest."""
ONCE_SHARE: Final = 5
"""Segments used once keep one part in so many of the room, or nothing new could ever be used again."""


class Rank(Enum):
    """Worth of an entry."""

    ONCE = auto()
    """Segment of payload whose blocks were read once, as in a scan."""
    AGAIN = auto()
    """Segment of payload that was read again later."""
    RECORD = auto()
    """Index, plan, sums or the like: without one, no byte of its store is served."""


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """File of a cache: its name, its bytes on the disk, and the time of its last use in nanoseconds."""

    name: str
    size: int
    used: int
    rank: Rank


def victims(entries: Iterable[CacheEntry], room: int) -> list[CacheEntry]:
    """Entries to remove so that all others have at most `room` bytes, in the order of removal.

    A segmented LRU: segments used once go first, down to their share of the room; then the oldest segments of all.
    """
    oldest = sorted(entries, key=lambda entry: entry.used)
    records = [entry for entry in oldest if entry.rank is Rank.RECORD]
    removed = _oldest(records, sum(entry.size for entry in records) - room // RECORDS_SHARE)
    excess = sum(entry.size for entry in oldest) - room - sum(entry.size for entry in removed)
    once = [entry for entry in oldest if entry.rank is Rank.ONCE]
    spare = sum(entry.size for entry in once) - room // ONCE_SHARE
    removed += _oldest(once, min(excess, spare))
    gone = {entry.name for entry in removed}
    excess = sum(entry.size for entry in oldest if entry.name not in gone) - room
    return removed + _oldest(
        [entry for entry in oldest if entry.rank is not Rank.RECORD and entry.name not in gone], excess
    )


def _oldest(entries: Sequence[CacheEntry], size: int) -> list[CacheEntry]:
    """The first of `entries`, with `size` bytes together at least, or all of them."""
    taken: list[CacheEntry] = []
    for entry in entries:
        if size <= 0:
            break
        taken.append(entry)
        size -= entry.size
    return taken
