"""Stores in a bucket behind a cache: the saved requests, and damage, which is never served.

Opening of stores: everything needed from a distant storage is read in parallel, each thing once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from tests.support.counted import CountedBucket, counted_bucket
from tests.support.stores import collect_garbage, keys_of, onnx, opened, read, records_apart, upload, written

from protoslice.errors import Conflict, IntegrityError, NotFound, StorageUnavailable
from protoslice.facts import Store
from protoslice.serving import StoreOptions
from protoslice.serving.cache import CacheOptions
from protoslice.storage import FileStorage, MemoryStorage, ObjectKey
from protoslice.stores import Stores
from protoslice.views import documents, tensors

MODEL = onnx(300_000, 2_000_000, 70_000)


def gets(bucket: CountedBucket) -> int:
    return sum(method == "get" and size > 0 for method, size in bucket.requests)


async def filled(bucket: CountedBucket) -> Store:
    async with opened(bucket) as stores:
        return (await upload(stores, MODEL)).store


def options(directory: Path | None, trust_seconds: float = 60) -> StoreOptions:
    return StoreOptions(cache=CacheOptions(directory=directory), trust_seconds=trust_seconds)


@pytest.mark.parametrize("on_disk", [True, False])
def test_the_same_range_again_asks_the_bucket_for_nothing(on_disk: bool, tmp_path: Path) -> None:
    async def work(bucket: CountedBucket) -> None:
        info = await filled(bucket)
        async with opened(bucket, options(tmp_path if on_disk else None)) as stores:
            for _ in range(2):
                view = (await stores.view(info.id)).file("model.onnx")
                assert await read(view, 1_000_000, 1_004_096) == MODEL[1_000_000:1_004_096]
                assert stores.shared.cache is not None
                await stores.shared.cache.written()
            bucket.requests.clear()
            view = (await stores.view(info.id)).file("model.onnx")
            assert view.read_cached(1_000_000, 1_004_096) == MODEL[1_000_000:1_004_096], "by the fast path too"
            assert await read(view, 1_000_000, 1_004_096) == MODEL[1_000_000:1_004_096]
            assert bucket.requests == []

    with counted_bucket() as bucket:
        asyncio.run(work(bucket))


@pytest.mark.parametrize("on_disk", [True, False])
def test_a_whole_file_again_asks_the_bucket_for_nothing_and_half_of_it_for_the_rest(
    on_disk: bool, tmp_path: Path
) -> None:
    """The whole file is one stream, which begins where the cache ends."""

    async def work(bucket: CountedBucket) -> None:
        info = await filled(bucket)
        async with opened(bucket, options(tmp_path if on_disk else None)) as stores:
            view = (await stores.view(info.id)).file("model.onnx")
            assert await read(view, 0, 1_000_000) == MODEL[:1_000_000]
            assert stores.shared.cache is not None
            await stores.shared.cache.written()
            before = stores.shared.cache.counts.missed_bytes
            assert await read(view) == MODEL
            assert stores.shared.cache.counts.missed_bytes - before <= len(MODEL) - 1_000_000 + (1 << 20)
            await stores.shared.cache.written()
            bucket.requests.clear()
            assert await read(view) == MODEL
            assert bucket.requests == []

    with counted_bucket() as bucket:
        asyncio.run(work(bucket))


def test_another_process_asks_for_nothing(tmp_path: Path) -> None:
    async def work(bucket: CountedBucket) -> None:
        with records_apart():
            info = await filled(bucket)
        for turn in range(2):
            async with opened(bucket, options(tmp_path)) as stores:
                bucket.requests.clear()
                store = await stores.view(info.id)
                assert await read(store.file("model.onnx")) == MODEL
                assert await read(await documents.merge(store, "", None, None)) == MODEL
            assert gets(bucket) == 0 if turn else gets(bucket) > 4, "sums, schema, index, plan and blocks are there"

    with counted_bucket() as bucket:
        asyncio.run(work(bucket))


def test_blocks_damaged_in_the_bucket_are_refused_and_not_kept(tmp_path: Path) -> None:
    async def work(bucket: CountedBucket) -> None:
        info = await filled(bucket)
        (key,) = await written(bucket)
        whole = await bucket.objects.get_range(key, 0, len(MODEL))
        await bucket.objects.put(key, whole[:1_000_000] + b"\xff\x00" + whole[1_000_002:])
        async with opened(bucket, options(tmp_path)) as stores:
            view = (await stores.view(info.id)).file("model.onnx")
            with pytest.raises(IntegrityError):
                await read(view, 1_000_000, 1_000_010)
            await bucket.objects.put(key, whole)
            assert await read(view, 1_000_000, 1_000_010) == MODEL[1_000_000:1_000_010]

    with counted_bucket() as bucket:
        asyncio.run(work(bucket))


async def test_a_local_storage_has_no_cache(tmp_path: Path) -> None:
    for storage in (MemoryStorage(), FileStorage(str(tmp_path))):
        async with opened(storage) as stores:
            assert stores.shared.cache is None


COUNT = 9
FILES: Mapping[str, bytes] = {
    "model.onnx": onnx(30_000),
    **{f"part-{number}": bytes([number]) * 1_500_000 for number in range(COUNT)},
    **{f"small-{number}": bytes([number]) * 100 for number in range(COUNT)},
}


class Distant(CountedBucket):
    """A bucket that records which objects are read at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []
        self.together: list[set[str]] = []
        """The names of the reads in progress at the beginning of each read."""
        self._under_way: list[str] = []

    async def get_range(self, key: ObjectKey, start: int, end: int, *, if_etag: str | None = None) -> bytes:
        """See `Storage.get_range`."""
        name = key.segments[-1]
        self.reads.append(name)
        self._under_way.append(name)
        self.together.append(set(self._under_way))
        try:
            for _ in range(50):  # as many turns of the loop as all the others may need to begin
                await asyncio.sleep(0)
            return await super().get_range(key, start, end, if_etag=if_etag)
        finally:
            self._under_way.remove(name)


@records_apart()
def test_objects_and_records_are_read_side_by_side() -> None:
    async def work() -> None:
        bucket = Distant()
        async with opened(bucket) as stores:
            info = (await upload(stores, FILES)).store
            keys = await keys_of(stores, info.id)
        async with opened(bucket) as stores:
            bucket.reads.clear()
            bucket.together.clear()
            store = await stores.view(info.id)
            sums = {name for name in bucket.reads if name.endswith(".sums")}
            assert len(sums) == COUNT + 1, "those of the large files, and of the pack of all others"
            assert max(bucket.together, key=len) >= sums | {keys[name].segments[-1] for name in ("index", "plan")}
            assert len(bucket.reads) == len(set(bucket.reads)), "each once"
            for path, data in FILES.items():
                assert await read(store.file(path)) == data

    asyncio.run(work())


async def uploaded(stores: Stores, count: int) -> list[str]:
    """Upload stores of many files with equal weights; return their ids."""
    files = [{f"f{name}": b"%d" % number for name in range(200)} for number in range(count)]
    return [(await upload(stores, each)).store.id for each in files]


async def test_opened_stores_are_kept_by_their_bytes(stores: Stores, storage: MemoryStorage) -> None:
    ids = await uploaded(stores, 6)
    weight = (await stores.view(ids[0])).results.weight
    async with opened(storage, StoreOptions(open_stores_bytes=3 * weight, trust_seconds=60)) as others:
        for store in ids:
            await others.view(store)
        assert [others.view_if_open(store) is not None for store in ids] == [False] * 3 + [True] * 3
        await others.view(ids[3])

    async with opened(storage, StoreOptions(open_stores_bytes=1, trust_seconds=60)) as others:
        kept = await others.view(ids[0])
        assert others.view_if_open(ids[0]) is kept, "the one that is used stays, however large"
        await others.view(ids[1])
        assert others.view_if_open(ids[0]) is None


async def test_stores_that_grow_as_they_are_used_push_out_others(stores: Stores, storage: MemoryStorage) -> None:
    ids = [(await upload(stores, onnx(*[8] * 300, seed=seed))).store.id for seed in range(3)]
    view = await stores.view(ids[0])
    before = view.results.weight
    assert len(await tensors.listed(view)) == 300
    grown = view.results.weight - before
    assert grown >= 300 * 100
    room = 3 * before + grown // 2
    async with opened(storage, StoreOptions(open_stores_bytes=room, trust_seconds=60)) as others:
        await tensors.listed(await others.view(ids[0]))
        for store in ids[1:]:
            await others.view(store)
        assert [others.view_if_open(store) is not None for store in ids] == [False, True, True]


class Held(CountedBucket):
    """A bucket that delays reads until an event is set."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = asyncio.Event()

    async def get_range(self, key: ObjectKey, start: int, end: int, *, if_etag: str | None = None) -> bytes:
        """See `Storage.get_range`."""
        if not self.gate.is_set():
            self.waiting.set()
            await self.gate.wait()
        return await super().get_range(key, start, end, if_etag=if_etag)


@pytest.mark.parametrize("delay_seconds", [0, 10**6], ids=["bytes-gone", "bytes-kept"])
@records_apart()
def test_a_store_that_was_sent_again_is_not_opened_by_its_former_row(delay_seconds: float) -> None:
    """An opening begins before the store is removed, and ends after it was collected and sent again."""

    async def work() -> None:
        bucket = Held()
        async with opened(bucket) as stores:
            info = (await upload(stores, FILES)).store
        async with opened(bucket, StoreOptions(trust_seconds=60)) as readers:
            bucket.gate.clear()
            former = asyncio.create_task(readers.view(info.id))
            await bucket.waiting.wait()
            held, bucket.gate = bucket.gate, asyncio.Event()
            bucket.gate.set()
            async with opened(bucket) as stores:
                await stores.delete(info.id)
            for days in range(1, 4):
                clock = partial(float, time.time() + days * 90_000)
                await collect_garbage(bucket, clock=clock, delay_seconds=delay_seconds)
            async with opened(bucket) as stores:
                assert (await upload(stores, FILES)).store.id == info.id
            later = asyncio.create_task(readers.view(info.id))
            for _ in range(1000):  # as many turns as it may need to join the former one
                await asyncio.sleep(0)
            held.set()
            for path, data in FILES.items():
                assert await read((await later).file(path)) == data
            with suppress(NotFound, StorageUnavailable, Conflict, IntegrityError):
                await former
            assert readers.view_if_open(info.id) is await later, "the former one does not take its place"

    asyncio.run(work())
