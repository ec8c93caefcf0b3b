"""The order of eviction, and what of a trace of reads it spares."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from protoslice.serving.disk_cache import CacheEntry, Rank, victims


def entry(name: str, used: int, rank: Rank = Rank.ONCE, size: int = 10) -> CacheEntry:
    return CacheEntry(name, size, used, rank)


def names(entries: Sequence[CacheEntry], room: int) -> list[str]:
    return [removed.name for removed in victims(entries, room)]


def test_nothing_goes_while_there_is_room() -> None:
    assert names([entry("a", 1), entry("b", 2, Rank.AGAIN), entry("r", 0, Rank.RECORD)], 40) == []


def test_what_was_read_once_goes_before_what_was_read_again() -> None:
    entries = [entry("again", 1, Rank.AGAIN), entry("late", 3), entry("early", 2), entry("later", 4)]
    assert names(entries, 20) == ["early", "late"]


def test_what_was_read_once_keeps_its_share() -> None:
    again = [entry(f"again-{age}", age, Rank.AGAIN) for age in range(9)]
    assert names([*again, entry("new", 100), entry("old", 99)], 100) == ["again-0"], "the two are a fifth of the room"


def test_records_stay_before_all_payload() -> None:
    assert names([entry("r", 0, Rank.RECORD), entry("a", 5), entry("b", 6, Rank.AGAIN)], 40) == []
    assert names([entry("r", 0, Rank.RECORD, 5), entry("a", 5), entry("b", 6, Rank.AGAIN)], 20) == ["a"]


def test_records_beyond_a_quarter_of_the_room_go_the_oldest_first() -> None:
    records = [entry(f"r{age}", age, Rank.RECORD) for age in range(5)]
    assert names([*records, entry("a", 9)], 100) == ["r0", "r1", "r2"]


def trace(rng: random.Random) -> Iterator[str]:
    """Reads of 40 hot segments and 400 others, through which a reader of one huge model goes three times."""
    for turn in range(6000):
        yield f"hot-{rng.randrange(40)}" if rng.random() < 0.7 else f"cold-{int(400 * rng.random() ** 2)}"
        if turn // 1000 % 2:
            yield f"scan-{turn}"


def spared(room: int) -> float:
    """Share of the reads that segments of one byte in a cache of `room` spare, of all but the scan."""
    kept: dict[str, CacheEntry] = {}
    hits = reads = 0
    for now, name in enumerate(trace(random.Random(7))):
        reads += not name.startswith("scan")
        hits += name in kept
        kept[name] = entry(name, now, Rank.AGAIN if name in kept else Rank.ONCE, 1)
        if len(kept) > room:
            for removed in victims(kept.values(), room * 7 // 8):
                del kept[removed.name]
    return hits / reads


def spared_by_lru(room: int) -> float:
    """The same of a plain LRU."""
    kept: OrderedDict[str, None] = OrderedDict()
    hits = reads = 0
    for name in trace(random.Random(7)):
        reads += not name.startswith("scan")
        hits += name in kept
        kept[name] = None
        kept.move_to_end(name)
        if len(kept) > room:
            kept.popitem(last=False)
    return hits / reads


def test_a_scan_of_one_huge_model_does_not_push_out_what_is_read_again() -> None:
    ours, lru = spared(100), spared_by_lru(100)
    assert ours > lru + 0.02, f"{ours:.3f} against {lru:.3f}"
