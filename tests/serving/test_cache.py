"""Blocks and records from the cache: they are right, read once, within the cache's size, for any fault of its disk.

The order of eviction, and the reads of a trace that the cache saves.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from protoslice import _core
from protoslice.errors import StorageUnavailable
from protoslice.serving import cache, disk_cache
from protoslice.serving.cache import BlockCache, CacheOptions, MemoryBlocks
from protoslice.serving.disk_cache import CacheEntry, Rank, victims
from protoslice.storage import Span

BLOCK = 64 << 10
DATA = random.Random(1).randbytes(9 * (1 << 20) + 12345)
ROOM = 64 << 20


def sums_of(data: bytes) -> bytes:
    sums = _core.BlockSums()
    sums.update(data)
    return sums.finish()


SUMS = sums_of(DATA)


class Origin:
    """The storage behind a cache; it counts its calls."""

    def __init__(self, data: bytes = DATA) -> None:
        self.data = data
        self.asked: list[Span] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def fetch(self, spans: Sequence[Span]) -> Sequence[bytes]:
        self.asked += spans
        await self.gate.wait()
        return [self.data[start:end] for start, end in spans]


class CachedObject:
    """An object that is read through a cache."""

    def __init__(self, kept: BlockCache, name: str, sums: bytes) -> None:
        self.keep = partial(kept.keep, name)
        self._kept, self._name, self._sums = kept, name, sums

    async def fetch(self, spans: Sequence[Span], fetch: Callable[[Sequence[Span]], Any]) -> list[bytes]:
        return await self._kept.fetch(self._name, spans, self._sums, fetch)

    def read_now(self, start: int, end: int) -> bytes | None:
        return self._kept.read_now(self._name, start, end, self._sums)


def files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("b*-*"))


def cached(options: CacheOptions, work: Callable[[BlockCache, CachedObject, Origin], Awaitable[None]]) -> None:
    async def run() -> None:
        kept, origin = BlockCache(options), Origin()
        try:
            await work(kept, CachedObject(kept, "objects/a/file-1", SUMS), origin)
        finally:
            await kept.close()

    asyncio.run(run())


def on_disk(directory: Path, room: int = ROOM) -> CacheOptions:
    return CacheOptions(directory=directory, bytes=room)


@pytest.fixture(params=["disk", "memory"])
def options(request: pytest.FixtureRequest, tmp_path: Path) -> CacheOptions:
    return on_disk(tmp_path) if request.param == "disk" else CacheOptions(memory_bytes=ROOM)


def test_blocks_come_from_the_storage_once(options: CacheOptions) -> None:
    async def work(kept: BlockCache, blocks: CachedObject, origin: Origin) -> None:
        spans = [(0, len(DATA)), (BLOCK, 3 * BLOCK), (144 * BLOCK, len(DATA))]
        for _ in range(2):
            for span in spans:
                assert await blocks.fetch([span], origin.fetch) == [DATA[slice(*span)]]
                await kept.written()
        assert origin.asked == [(0, len(DATA))]
        assert (kept.counts.misses, kept.counts.hits) == (1, 5)
        assert kept.counts.missed_bytes == len(DATA)
        assert blocks.read_now(BLOCK, 2 * BLOCK) == DATA[BLOCK : 2 * BLOCK]

    cached(options, work)


def test_callers_that_wait_share_one_fetch(options: CacheOptions) -> None:
    async def work(kept: BlockCache, blocks: CachedObject, origin: Origin) -> None:
        origin.gate.clear()
        readers = [asyncio.create_task(blocks.fetch([(0, BLOCK)], origin.fetch)) for _ in range(8)]
        while not origin.asked:
            await asyncio.sleep(0)
        readers[0].cancel()  # as when a client leaves; all others get their bytes
        origin.gate.set()
        found = await asyncio.gather(*readers, return_exceptions=True)
        assert found[1:] == [[DATA[:BLOCK]]] * 7
        assert origin.asked == [(0, BLOCK)]

    cached(options, work)


def test_a_failed_fetch_is_the_error_of_its_callers_and_not_kept(options: CacheOptions) -> None:
    async def work(kept: BlockCache, blocks: CachedObject, origin: Origin) -> None:
        async def fails(spans: Sequence[Span]) -> Sequence[bytes]:
            raise StorageUnavailable("away")

        with pytest.raises(StorageUnavailable):
            await blocks.fetch([(0, BLOCK)], fails)
        assert await blocks.fetch([(0, BLOCK)], origin.fetch) == [DATA[:BLOCK]]

    cached(options, work)


def test_records_come_from_the_storage_once(options: CacheOptions) -> None:
    async def work(kept: BlockCache, blocks: CachedObject, origin: Origin) -> None:
        read = 0

        async def reading() -> bytes:
            nonlocal read
            read += 1
            return b"an index"

        assert await asyncio.gather(*(kept.record("objects/a/index", reading) for _ in range(3))) == [b"an index"] * 3
        await kept.written()
        assert await kept.record("objects/a/index", reading) == b"an index"
        assert read == 1
        assert await kept.record("objects/b/index", reading) == b"an index"
        assert read == 2

    cached(options, work)


def fill(directory: Path) -> None:
    async def work(kept: BlockCache, blocks: CachedObject, origin: Origin) -> None:
        await blocks.fetch([(0, len(DATA))], origin.fetch)

        async def index() -> bytes:
            return b"an index"

        await kept.record("objects/a/index", index)

    cached(on_disk(directory), work)
    assert len(files(directory)) == 3


def asked_again(directory: Path) -> list[Span]:
    """Read everything by mebibyte, and return the spans that were read from the storage."""
    asked: list[Span] = []

    async def work(kept: BlockCache, blocks: CachedObject, origin: Origin) -> None:
        for start in range(0, len(DATA), 1 << 20):
            end = min(len(DATA), start + (1 << 20))
            assert await blocks.fetch([(start, end)], origin.fetch) == [DATA[start:end]]
        asked.extend(origin.asked)

    cached(on_disk(directory), work)
    return asked


def test_a_restart_forgets_nothing(tmp_path: Path) -> None:
    fill(tmp_path)
    assert asked_again(tmp_path) == []


def test_a_damaged_block_is_fetched_again_and_mended(tmp_path: Path) -> None:
    fill(tmp_path)
    with files(tmp_path)[0].open("r+b") as file:
        file.seek(os.path.getsize(file.name) - 100_000)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    assert len(asked_again(tmp_path)) == 1
    assert asked_again(tmp_path) == []


def test_truncated_and_missing_files_are_fetched_again(tmp_path: Path) -> None:
    fill(tmp_path)
    first, second, _ = files(tmp_path)
    first.unlink()
    os.truncate(second, os.path.getsize(second) - 1)
    assert 1 < len(asked_again(tmp_path)) < 10
    assert asked_again(tmp_path) == []


def test_a_damaged_record_is_read_again(tmp_path: Path) -> None:
    fill(tmp_path)
    (record,) = (path for path in tmp_path.rglob("r*") if path.is_file())
    record.write_bytes(record.read_bytes()[:-1] + b"x")

    async def work(kept: BlockCache, blocks: CachedObject, origin: Origin) -> None:
        async def index() -> bytes:
            return b"from the storage"

        assert await kept.record("objects/a/index", index) == b"from the storage"

    cached(on_disk(tmp_path), work)


def test_a_file_that_shrinks_while_it_is_open_is_fetched_again(tmp_path: Path) -> None:
    async def work(kept: BlockCache, blocks: CachedObject, origin: Origin) -> None:
        for _ in range(2):
            await blocks.fetch([(0, BLOCK)], origin.fetch)
            await kept.written()
        os.truncate(files(tmp_path)[0], 10)
        assert await blocks.fetch([(0, BLOCK)], origin.fetch) == [DATA[:BLOCK]]
        assert origin.asked == [(0, BLOCK)] * 2

    cached(on_disk(tmp_path), work)


def test_processes_share_one_directory(tmp_path: Path) -> None:
    async def work(kept: BlockCache, blocks: CachedObject, origin: Origin) -> None:
        other = BlockCache(on_disk(tmp_path))
        await blocks.fetch([(0, BLOCK)], origin.fetch)
        await kept.written()
        await CachedObject(other, "objects/a/file-1", SUMS).fetch([(0, BLOCK)], origin.fetch)
        await other.close()
        assert origin.asked == [(0, BLOCK)]

    cached(on_disk(tmp_path), work)


def disk_bytes(directory: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())


async def test_each_process_exceeds_the_size_by_a_sixteenth_at_most(tmp_path: Path) -> None:
    room = 16 << 20
    data = random.Random(2).randbytes(1 << 20)
    sums = sums_of(data)
    caches = [BlockCache(on_disk(tmp_path, room)) for _ in range(3)]
    origin = Origin(data)
    largest = 0
    for number in range(14):
        for kept in caches:
            name = f"objects/{number}-{id(kept)}"
            assert await CachedObject(kept, name, sums).fetch([(0, len(data))], origin.fetch) == [data]
            await kept.written()
            largest = max(largest, disk_bytes(tmp_path))
    for kept in caches:
        await kept.close()
    assert room // 2 < largest <= room + 3 * (room // 16 + len(data))
    assert sum(kept.evicted for kept in caches) > 20


def test_a_segment_evicted_while_it_is_open_frees_its_room(tmp_path: Path) -> None:
    kept = disk_cache.DiskBlocks(tmp_path, ROOM)
    kept.write("a", 0, memoryview(DATA[:BLOCK]))
    assert kept.read("a", 0, BLOCK, SUMS) == DATA[:BLOCK]
    assert kept.read_now("a", 0, BLOCK, SUMS) == DATA[:BLOCK]
    (file,) = files(tmp_path)
    held = os.open(file, os.O_RDONLY)
    disk_cache.DiskBlocks(tmp_path, ROOM).remove(file.name)
    assert os.fstat(held).st_blocks == 0
    assert kept.read_now("a", 0, BLOCK, SUMS) is None
    assert kept.read("a", 0, BLOCK, SUMS) is None
    os.close(held)


def test_a_use_long_after_the_first_is_marked_and_a_near_one_is_not(tmp_path: Path) -> None:
    blocks = disk_cache.DiskBlocks(tmp_path, ROOM)
    for name in ("near", "far"):
        blocks.write(name, 0, memoryview(DATA[:BLOCK]))
    blocks.read("near", 0, BLOCK, SUMS)
    before = files(tmp_path)
    far = next(path for path in before if path.name == disk_cache._file("far", 0))
    os.utime(far, (1, 1))
    blocks.read("far", 0, BLOCK, SUMS)
    assert {entry.name: entry.rank.name for entry in blocks.entries()} == {
        disk_cache._file("near", 0): "ONCE",
        disk_cache._file("far", 0): "AGAIN",
    }


def failing(number: int) -> Callable[..., int]:
    def call(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    return call


@pytest.mark.parametrize("number", [28, 30, 5])  # no space left, read-only, input/output error
def test_a_disk_that_takes_nothing_is_told_once_and_served_without(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(kept: BlockCache, blocks: CachedObject, origin: Origin) -> None:
        monkeypatch.setattr(os, "pwrite", failing(number))
        monkeypatch.setattr(cache, "_PAUSE_SECONDS", 0)
        for start in range(0, 8 * BLOCK, BLOCK):
            assert await blocks.fetch([(start, start + BLOCK)], origin.fetch) == [DATA[start : start + BLOCK]]
            await kept.written()
        assert kept.counts.failures > 1
        monkeypatch.undo()

    cached(on_disk(tmp_path), work)
    assert [record.message for record in caplog.records] == [
        f"cannot write to the cache, continuing without: {os.strerror(number)}"
    ]


@pytest.mark.parametrize("wrong", ["accessible to others", "a file", "below a file"])
def test_a_directory_that_cannot_be_ours_is_told_once_and_memory_used(
    wrong: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if wrong == "accessible to others":
        (tmp_path / "protoslice").mkdir()
        (tmp_path / "protoslice").chmod(0o777)
    elif wrong == "a file":
        (tmp_path / "protoslice").write_text("of somebody")
    directory = tmp_path / "file" if wrong == "below a file" else tmp_path
    if wrong == "below a file":
        directory.write_text("of somebody")

    async def work(kept: BlockCache, blocks: CachedObject, origin: Origin) -> None:
        for _ in range(2):
            assert await blocks.fetch([(0, BLOCK)], origin.fetch) == [DATA[:BLOCK]]
        assert origin.asked == [(0, BLOCK)]

    cached(on_disk(directory), work)
    (line,) = caplog.records
    assert "cannot use PROTOSLICE_CACHE_DIRECTORY" in line.message


def test_files_of_others_in_the_directory_stay(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(bytes(10 << 20))
    blocks = disk_cache.DiskBlocks(tmp_path, 1 << 20)
    for number in range(40):
        blocks.write(f"a-{number}", 0, memoryview(DATA[:BLOCK]))
    assert blocks.evicted > 20
    assert (tmp_path / "mine").stat().st_size == 10 << 20


def test_memory_keeps_within_its_room() -> None:
    async def work(kept: BlockCache, blocks: CachedObject, origin: Origin) -> None:
        for start in range(0, 100 * BLOCK, BLOCK):
            await blocks.fetch([(start, start + BLOCK)], origin.fetch)
        there = [start for start in range(0, 100 * BLOCK, BLOCK) if blocks.read_now(start, start + BLOCK)]
        assert there == [98 * BLOCK, 99 * BLOCK], "a fifth of eleven blocks: these were read once"

    cached(CacheOptions(memory_bytes=11 * BLOCK), work)


def test_memory_counts_what_small_blocks_take_beside_their_data() -> None:
    blocks = MemoryBlocks(100_000)
    for number in range(1000):
        blocks.write(f"small-{number}", 0, memoryview(DATA[:10]))
    kept = [number for number in range(1000) if blocks.read_now(f"small-{number}", 0, 10)]
    assert kept == [*range(1000 - len(kept), 1000)]
    assert 10 < len(kept) < 100, "each takes some hundred bytes of a fifth of the room"


def test_memory_keeps_the_beginning_of_a_scan_and_what_others_read() -> None:
    async def work(kept: BlockCache, blocks: CachedObject, origin: Origin) -> None:
        await blocks.fetch([(0, BLOCK)], origin.fetch)
        for block in range(1, 100):
            start = block * BLOCK
            blocks.keep(start, memoryview(DATA[start : start + BLOCK]), passed=start - BLOCK)
        there = [start // BLOCK for start in range(0, 100 * BLOCK, BLOCK) if blocks.read_now(start, start + BLOCK)]
        assert there == [*range(11)]
        assert kept.counts.missed_bytes == 100 * BLOCK, "all of it was read from the storage"

    cached(CacheOptions(memory_bytes=100 * BLOCK), work)


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
    """Yield reads of 40 hot segments and of 400 others; in between, one huge model is scanned in three passes."""
    for turn in range(6000):
        yield f"hot-{rng.randrange(40)}" if rng.random() < 0.7 else f"cold-{int(400 * rng.random() ** 2)}"
        if turn // 1000 % 2:
            yield f"scan-{turn}"


def spared(room: int) -> float:
    """Return the share of the reads, except the scan's, that a cache of `room` segments of one byte saves."""
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
    """Return the same share for a plain LRU."""
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
