"""Stores in a bucket behind a cache: which requests are spared, and that damage is no answer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.counted import CountedBucket, counted_bucket
from tests.support.stores import onnx, opened, read, records_apart, upload, written

from protoslice.errors import IntegrityError
from protoslice.facts import Store
from protoslice.serving import StoreOptions
from protoslice.serving.cache import CacheOptions
from protoslice.storage import FileStorage, MemoryStorage
from protoslice.views import documents

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
    """The whole is one stream, which begins where the cache ends."""

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
