"""A collector removes what nobody needs, and nothing else."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TypeVar

import pytest
from tests.support.interrupted import InterruptedStorage, at_every_call
from tests.support.seeded import Counting, seed
from tests.support.stores import (
    assert_whole,
    collect_garbage,
    in_files,
    in_memory,
    keys_in,
    onnx,
    opened,
    some,
    upload,
    visible,
)

from protoslice.catalog.repositories import HUB, CommitRow, HistoryTable, RepositoryTable
from protoslice.errors import NotFound
from protoslice.storage import FileStorage, MemoryStorage, ObjectKey
from protoslice.stores import IngestRequest, Stores
from protoslice.stores.catalog.claims import Claims
from protoslice.stores.layout import keys
from protoslice.stores.uploads import Body, NewUpload, Upload

T = TypeVar("T")

HOUR = 3600.0


async def settled() -> None:
    """Let an object's time, which is up to a millisecond ahead, pass."""
    await asyncio.sleep(0.002)


def test_a_removed_store_is_kept_for_its_readers_and_goes_then() -> None:
    async def work(stores: Stores, storage: MemoryStorage) -> None:
        info = (await upload(stores, onnx(3_000_000))).store
        view = (await stores.view(info.id)).file("model.onnx")
        async with aclosing(view.pieces(0, view.size)) as pieces:
            parts = [bytes(await anext(pieces))]
            await stores.delete(info.id)
            report = await collect_garbage(storage, grace_seconds=HOUR)
            assert (report.objects, report.stores) == (0, 0)
            parts.extend([bytes(piece) async for piece in pieces])
        assert b"".join(parts) == onnx(3_000_000)
        later = lambda: time.time() + HOUR + 1  # noqa: E731
        report = await collect_garbage(storage, grace_seconds=HOUR, clock=later)
        assert (report.objects, report.stores, report.leftovers) == (1, 1, 0)
        assert report.bytes > 3_000_000
        assert await keys_in(storage) == ["protoslice.json"]

    in_memory(work)


def test_a_store_removed_twice_is_kept_for_the_readers_of_both() -> None:
    async def work(stores: Stores, storage: MemoryStorage) -> None:
        for _ in range(2):
            info = (await upload(stores, onnx(90_000))).store
            await stores.delete(info.id)
        later = lambda: time.time() + HOUR / 2  # noqa: E731
        assert (await collect_garbage(storage, grace_seconds=HOUR, clock=later)).objects == 0
        assert len({key.split("/")[1] for key in await keys_in(storage, "objects")}) == 2

    in_memory(work)


def test_an_upload_under_way_is_left_alone() -> None:
    async def work(stores: Stores, storage: FileStorage) -> None:
        async with await stores.ingest(IngestRequest()) as ingest:
            for path, data in {"model.onnx": onnx(90_000), "notes": b"text"}.items():
                sink = await ingest.file(path)
                await sink.write(data)
                await settled()
                assert (await stores.collect_garbage(grace_seconds=HOUR)).objects == 0
                await sink.close()
                assert (await stores.collect_garbage(grace_seconds=HOUR)).objects == 0
            info = (await ingest.commit()).store
        await settled()
        await stores.collect_garbage(grace_seconds=0)
        await assert_whole(stores, info)

    in_files(work)


def test_a_long_upload_that_gets_on_is_left_alone() -> None:
    """The upload and its first file are two graces old; its last file is young."""

    async def work(_: Stores, storage: MemoryStorage) -> None:
        attempt = f"{int(time.time()) - 7200:010x}-abc"
        await storage.put(ObjectKey(f"objects/{attempt}/file-0"), b"x")
        await asyncio.sleep(0.6)
        await storage.put(ObjectKey(f"objects/{attempt}/file-1"), b"x")
        assert (await collect_garbage(storage, grace_seconds=0.5)).objects == 0
        assert (await collect_garbage(storage, grace_seconds=0.5, clock=lambda: time.time() + 1)).objects == 2

    in_memory(work)


def test_collections_while_others_upload_and_delete() -> None:
    async def work(stores: Stores, storage: FileStorage) -> None:
        done = False

        async def collect() -> None:
            async with opened(storage) as others:
                while not done:
                    await others.collect_garbage(grace_seconds=HOUR)

        async def come_and_go(seed: int) -> str:
            for _ in range(3):
                store_id = (await upload(stores, onnx(90_000, seed=seed))).store.id
                await stores.delete(store_id)
            return (await upload(stores, onnx(90_000, seed=seed))).store.id

        collecting = asyncio.create_task(collect())
        ids = await asyncio.gather(*(come_and_go(seed) for seed in range(6)))
        done = True
        await collecting
        await settled()
        await stores.collect_garbage(grace_seconds=0)
        found = await visible(stores)
        assert set(found) == set(ids)
        for info in found.values():
            await assert_whole(stores, info)
        assert len({key.split("/")[1] for key in await keys_in(storage, "objects")}) == 6

    in_files(work)


@pytest.mark.parametrize("named", ["before", "since"])
def test_a_store_that_was_named_since_its_removal_can_be_restored(named: str) -> None:
    async def work(stores: Stores, storage: MemoryStorage) -> None:
        info = (await upload(stores, onnx(90_000))).store
        table = HistoryTable(
            stores.database, stores.space, await RepositoryTable(stores.database, "default", HUB).create("m")
        )
        commit = CommitRow(id="c", digits=info.id[:40], store=info.id, parent=None, number=1)
        if named == "since":
            await stores.delete(info.id)
            await settled()
        await table.move("heads", "main", commit, None, new=True)
        if named == "before":
            await settled()
            await stores.delete(info.id)
        await collect_garbage(storage, grace_seconds=HOUR, clock=lambda: time.time() + 2 * HOUR)
        if named == "since":
            await stores.restore(info.id)
            await assert_whole(stores, info)
            await stores.delete(info.id)
            await upload(stores, onnx(90_000))
            await table.move("tags", "v1", commit, None, new=False)
            await collect_garbage(storage, grace_seconds=HOUR, clock=lambda: time.time() + 2 * HOUR)
            assert await keys_in(storage, "removed") == [], "the store is there"
        else:
            with pytest.raises(NotFound):
                await stores.restore(info.id)

    in_memory(work)


@pytest.mark.parametrize("folder", ["stores", "removed"])
def test_a_manifest_that_cannot_be_read_keeps_everything(folder: str) -> None:
    async def work(stores: Stores, storage: MemoryStorage) -> None:
        infos = [(await upload(stores, onnx(90_000, seed=seed))).store for seed in range(3)]
        await stores.delete(infos[0].id)
        await stores.delete(infos[1].id)
        (key, *_) = await keys_in(storage, folder)
        await storage.put(ObjectKey(key), b"{}")
        before = await keys_in(storage)
        report = await collect_garbage(storage, grace_seconds=HOUR)
        assert (report.objects, report.stores) == (0, 0)
        assert await keys_in(storage) == before

    in_memory(work)


def test_only_an_upload_that_is_over_is_swept() -> None:
    async def work(stores: Stores, storage: MemoryStorage) -> None:
        info = (await upload(stores, onnx(90_000))).store
        for key in ("objects/0000000001-a/file-0", "objects/odd/file-0", "derived/abc/digests"):
            await storage.put(ObjectKey(key), b"x")
        await settled()
        report = await stores.collect_garbage(grace_seconds=0)
        assert (report.objects, report.bytes, report.leftovers) == (3, 3, 0)
        await assert_whole(stores, info)

    in_memory(work)


def test_a_collection_with_nothing_to_collect_only_lists() -> None:
    """Each folder is listed once, a page at a time, whatever the number of stores."""

    async def work(stores: Stores, storage: MemoryStorage) -> None:
        await seed(storage, 1100)
        await upload(stores, onnx(100))
        await settled()
        counting = Counting(storage)
        report = await collect_garbage(counting, grace_seconds=HOUR, clock=lambda: time.time() + 2 * HOUR)
        assert (report.objects, report.stores, report.leftovers) == (0, 0, 0)
        others = {name for name, folder in counting.calls if folder != "usage"}  # the ledger takes the count
        assert others == {"list", "collect_garbage"}
        listed = {folder: count for (name, folder), count in counting.calls.items() if name == "list"}
        assert listed == {
            "removed": 1, "stores": 2, "objects": 4, "derived": 1, "probe": 1, "tags": 2,
            "indexes": 2 + 2 + 1 + 1 + 1 + 1,
        }  # fmt: skip

    in_memory(work)


def test_a_collection_reads_the_manifests_of_suspects_alone() -> None:
    async def work(stores: Stores, storage: MemoryStorage) -> None:
        await seed(storage, 50)
        one, two = await some(stores, 2)
        await stores.delete(one)
        await storage.put(keys.object_key((await stores.view(two)).manifest.attempt, "left"), b"x")
        for number in range(3):
            await storage.put(ObjectKey(f"objects/000000000{number}-a/file-0"), b"x")
        counting = Counting(storage)
        report = await collect_garbage(counting, grace_seconds=HOUR, clock=lambda: time.time() + 2 * HOUR)
        assert (report.objects, report.stores) == (1 + 3, 1), "the file of the removed store lay in its manifest"
        assert counting.calls["get", "stores"] < 13, "of the stores beside whose objects something was left"
        assert counting.calls["list", "objects"] < 20
        assert len(await visible(stores)) == 51

    in_memory(work)


def test_an_upload_that_begins_while_a_collector_is_at_work_goes_on() -> None:
    """The collector's clock is so far ahead that whatever begins seems old to it."""
    data = onnx(3000)

    async def body(piece: bytes) -> AsyncIterator[bytes]:
        yield piece

    async def at(number: int) -> bool:
        inner = MemoryStorage()
        async with opened(inner) as stores:
            begun: list[Upload] = []

            async def begin() -> None:
                upload = await stores.uploads.create(NewUpload(length=len(data), path="model.onnx"))
                begun.append(await stores.uploads.append(upload.id, Body(pieces=body(data[:2000]), offset=0)))

            storage = InterruptedStorage(inner, begin)
            storage.arm(number)
            await collect_garbage(storage, grace_seconds=0, clock=lambda: time.time() + 100)
            for upload in begun:
                done = await stores.uploads.append(upload.id, Body(pieces=body(data[2000:]), offset=2000))
                assert done.state == "stored"
                assert set(await visible(stores)) == {done.store}
            return storage.reached

    asyncio.run(at_every_call(at, 8))


@pytest.mark.parametrize("state", ["doomed", "missing", "alive"])
def test_a_store_without_objects_is_withdrawn_if_nobody_can_have_been_told_of_it(state: str) -> None:
    """Writers that were too late may die before they withdraw; with a claim alive, a stranger did it."""

    async def work(stores: Stores, storage: MemoryStorage) -> None:
        info = (await upload(stores, {"model.onnx": onnx(3000), "b": bytes(3 << 20)})).store
        kept = (await upload(stores, onnx(5000))).store
        attempt = (await stores.view(info.id)).manifest.attempt
        claims = Claims(storage)
        if state == "doomed":
            condemned = await claims.condemn(attempt)
            assert condemned is not None
            assert await claims.doom(condemned)
        elif state == "missing":
            await claims.drop(attempt)
        await storage.delete(ObjectKey(f"objects/{attempt}/file-0"))
        await settled()
        await stores.collect_garbage(grace_seconds=HOUR, dry_run=True)
        assert {*await visible(stores)} == {info.id, kept.id}
        await stores.collect_garbage(grace_seconds=0)
        assert {*await visible(stores)} == {kept.id, *([info.id] if state == "alive" else [])}
        await assert_whole(stores, kept)
        again = await upload(stores, {"model.onnx": onnx(3000), "b": bytes(3 << 20)})
        assert again.store.id == info.id
        await assert_whole(stores, again.store)

    in_memory(work)
