"""Reads that find tensors are made once per store, and not again when the store is opened later."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, cycle, islice
from pathlib import Path
from random import Random

import pytest
from tests.support.catalogues import catalogue_of
from tests.support.golden import CHUNKED
from tests.support.stores import collect_garbage, derived_in, in_files, onnx, opened, read, upload

from protoslice.server.api.encoding import encode_items
from protoslice.serving import StoreOptions, shared
from protoslice.serving.prefetch import SavedReads, StridePredictor
from protoslice.serving.stored import SUM_BLOCK
from protoslice.storage import Call, FileStorage, MemoryStorage, MeteredStorage
from protoslice.stores import IngestRequest, Stores
from protoslice.views import chunks, tensors

COUNT = 150
MODEL = onnx(*[70_000] * COUNT)


async def listed(stores: Stores, store_id: str) -> bytes:
    page = await tensors.page((await stores.view(store_id)), name=None, dtype=None, limit=1000, cursor=None)
    return encode_items(page.items)


def reading(calls: list[Call]) -> list[Call]:
    return [call for call in calls if call.name.startswith("get_range") and call.bytes_read]


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Record every call for objects in place, which are in the temporary folder."""
    calls: list[Call] = []
    monkeypatch.setattr(
        shared, "open_source", lambda root, *_, **__: MeteredStorage(FileStorage(str(tmp_path)), calls.append)
    )
    return calls


def registered(folder: Path, work: Callable[[MemoryStorage, StoreOptions, str], Awaitable[None]]) -> None:
    """Do `work` with a store over a file in `folder`."""
    (folder / "model.onnx").write_bytes(MODEL)

    async def run() -> None:
        storage, options = MemoryStorage(), StoreOptions(register_prefixes=(f"file://{folder}",))
        async with opened(storage, options) as stores:
            info = (await stores.register({"model.onnx": f"file://{folder}/model.onnx"}, IngestRequest())).store
        await work(storage, options, info.id)

    asyncio.run(run())


async def kept_reads(storage: MemoryStorage, store_id: str) -> bytes:
    return (await derived_in(storage))[f"{store_id}/reads"]


def test_a_registered_model_is_listed_without_a_read_of_it(tmp_path: Path, calls: list[Call]) -> None:
    async def work(storage: MemoryStorage, options: StoreOptions, store_id: str) -> None:
        calls.clear()
        async with opened(storage, options) as stores:
            first = await listed(stores, store_id)
        assert sum(call.bytes_read for call in reading(calls)) > COUNT * 50_000, "a block for each tensor"
        calls.clear()
        async with opened(storage, options) as stores:
            assert await listed(stores, store_id) == first
            assert reading(calls) == []
            view = await tensors.one((await stores.view(store_id)), "weight-7", None, "raw")
            assert await read(view) in MODEL
            assert len(reading(calls)) == 1

    registered(tmp_path, work)


DAMAGES = {
    "flipped": "UPDATE derived SET data = CAST(substr(data, 1, length(data) - 1) || x'00' AS blob)",
    "cut off": "UPDATE derived SET data = substr(data, 1, length(data) - 1)",
    "gone": "DELETE FROM derived",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_was_kept_is_made_anew_when_it_is_damaged(tmp_path: Path, calls: list[Call], damage: str) -> None:
    async def work(storage: MemoryStorage, options: StoreOptions, store_id: str) -> None:
        async with opened(storage, options) as stores:
            first = await listed(stores, store_id)
        kept = await kept_reads(storage, store_id)
        assert len(kept) < 40_000, "only what lies between the tensors is kept"
        await catalogue_of(storage).write(lambda tx: tx.run(DAMAGES[damage]))
        calls.clear()
        async with opened(storage, options) as stores:
            assert await listed(stores, store_id) == first
        assert sum(call.bytes_read for call in reading(calls)) > COUNT * 50_000
        assert await kept_reads(storage, store_id) == kept

    registered(tmp_path, work)


async def test_our_own_objects_far_away_are_read_once_too() -> None:
    calls: list[Call] = []
    storage = MeteredStorage(MemoryStorage(), calls.append)
    async with opened(storage) as stores:
        store_id = (await upload(stores, MODEL)).store.id
        first = await listed(stores, store_id)
    calls.clear()
    async with opened(storage) as stores:
        await stores.view(store_id)
        opening = len(reading(calls))
        assert await listed(stores, store_id) == first
    assert len(reading(calls)) == opening, "the memo alone was read"


@pytest.mark.parametrize(("count", "size"), [(150, 1000), (150, 20_000), (100, 70_000), (30, 300_000)])
async def test_a_list_reads_no_block_twice(count: int, size: int, tmp_path: Path, calls: list[Call]) -> None:
    """Bytes after a tensor and bytes before the next one are adjacent, often in one block."""
    model = onnx(*[size] * count)
    (tmp_path / "model.onnx").write_bytes(model)
    most = min(-(-len(model) // SUM_BLOCK), count) + 3
    storage, options = (
        MeteredStorage(MemoryStorage(), calls.append),
        StoreOptions(register_prefixes=(f"file://{tmp_path}",)),
    )
    async with opened(storage, options) as stores:
        own = (await upload(stores, {"own.onnx": model})).store
        placed = (await stores.register({"model.onnx": f"file://{tmp_path}/model.onnx"}, IngestRequest())).store
    for info in (own, placed):
        async with opened(storage, options) as stores:
            await stores.view(info.id)
            calls.clear()
            assert (await listed(stores, info.id)).count(b'"name"') == count
            reads = reading(calls)
        assert len(reads) <= most
        assert sum(call.bytes_read for call in reads) <= most * SUM_BLOCK


def test_nothing_is_kept_of_what_is_near() -> None:
    async def work(stores: Stores, storage: FileStorage) -> None:
        await listed(stores, (await upload(stores, MODEL)).store.id)
        assert await derived_in(storage) == {}

    in_files(work)


async def test_it_is_collected_with_its_store() -> None:
    storage = MemoryStorage()
    async with opened(storage) as stores:
        store_id = (await upload(stores, MODEL)).store.id
        await listed(stores, store_id)
        assert list(await derived_in(storage)) == [f"{store_id}/reads"]
        await collect_garbage(storage, grace_seconds=0)
        assert len(await derived_in(storage)) == 1
        await stores.delete(store_id)
        await asyncio.sleep(0.001)
        await collect_garbage(storage, grace_seconds=0)
        assert await derived_in(storage) == {}


def test_notes_are_bounded_and_come_back_as_they_were() -> None:
    memo = SavedReads()
    memo.put(0, 10, b"abcdef")
    memo.put(0, 10, b"abc")
    memo.put(1, 10, b"xyz")
    memo.put(1, 0, bytes(1 << 20))
    memo.put(1, 5, b"")
    assert memo.is_new
    again = SavedReads.decode(memo.encode())
    for each in (memo, again):
        assert (each.get(0, 10, 6), each.get(0, 10, 2), each.get(0, 10, 7)) == (b"abcdef", b"ab", None)
        assert (each.get(1, 10, 3), each.get(1, 0, 10), each.get(2, 10, 1), each.get(1, 5, 0)) == (
            b"xyz",
            None,
            None,
            None,
        )
    assert (memo.is_new, again.is_new) == (False, False)
    for at in range(100):
        again.put(3, at, bytes(256 << 10))
    assert len(again.encode()) < 9 << 20


def test_reads_of_two_views_at_once_are_both_kept() -> None:
    async def at_once(stores: Stores, store_id: str) -> bytes:
        store = await stores.view(store_id)
        opening = len(reading(calls))
        page, _ = await asyncio.gather(listed(stores, store_id), chunks.planned(store, "policy"))
        beyond.append(len(reading(calls)) - opening)
        return page

    calls, beyond = list[Call](), list[int]()

    async def run() -> None:
        storage = MeteredStorage(MemoryStorage(), calls.append)
        data = (CHUNKED / "graph_large_constants.max70000.zstd.cpb").read_bytes()
        async with opened(storage) as stores:
            store_id = (await upload(stores, {"x.cpb": data}, IngestRequest(min_chunk=500, max_chunk=5000))).store.id
        async with opened(storage) as stores:
            first = await at_once(stores, store_id)
        async with opened(storage) as stores:
            assert await at_once(stores, store_id) == first

    asyncio.run(run())
    assert beyond[0] > 0
    assert beyond[1] == 0, "what one of the views had read was not kept"


def test_threads_that_share_a_memo_find_what_each_has_read() -> None:
    memo, count, before = SavedReads(), 3000, sys.getswitchinterval()

    def read_all(first: int) -> None:
        for number in range(count):
            offset = (first + number) * SUM_BLOCK
            memo.note(0, offset)
            memo.predicted(0, SUM_BLOCK)
            memo.get_recent(0, offset, 1)
            memo.put_recent(0, offset, bytes(SUM_BLOCK))
            memo.put(first, number, b"x")
            if number % 500 == 0:
                memo.encode()

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(3) as pool:
            for done in [pool.submit(read_all, first) for first in range(3)]:
                done.result()
    finally:
        sys.setswitchinterval(before)
    assert all(memo.get(first, number, 1) == b"x" for first in range(3) for number in range(count))


def asked(offsets: list[int]) -> int:
    """Return the reads that a caller had to wait for, where predicted reads are complete already."""
    rhythm, there, waited = StridePredictor(), set[int](), 0
    for offset in offsets:
        rhythm.note(offset)
        if not any(abs(offset - each) < 60_000 for each in there):
            waited += 1
            there = {offset, *rhythm.predicted(1000)}
    return waited


@pytest.mark.parametrize(
    "steps", [[70_000], [100_000, 400_000], [100_000, 2_000_000, 300_000], [*range(80_000, 720_000, 80_000)]]
)
def test_reads_in_steps_that_repeat_wait_for_a_few(steps: list[int]) -> None:
    offsets = list(accumulate(islice(cycle(steps), 999), initial=0))
    assert asked(offsets) < 2 * len(steps) + 6 + 1000 // 60


def test_small_differences_and_looks_nearby_disturb_no_rhythm() -> None:
    random, offsets, at = Random(1), list[int](), 0
    for _ in range(300):
        offsets += [at, at + 40, at + 300]
        at += 500_000 + random.randrange(20)
    assert asked(offsets) < 20


def test_reads_without_a_rhythm_foresee_nothing() -> None:
    random, rhythm = Random(1), StridePredictor()
    for at in accumulate(random.randrange(70_000, 9_000_000) for _ in range(300)):
        rhythm.note(at)
        assert rhythm.predicted(100) == []
