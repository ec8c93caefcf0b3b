"""Several processes over one storage: they see each other's stores and never damage one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path

import pytest
from tests.support.catalogues import catalogue_of
from tests.support.stores import (
    assert_whole,
    collect_garbage,
    keys_in,
    objects_in,
    onnx,
    opened,
    read,
    upload,
    visible,
)

from protoslice.errors import NotFound
from protoslice.storage import FileStorage, MemoryStorage, ObjectKey, Storage
from protoslice.stores import IngestRequest, Stores
from protoslice.views import documents

MODEL = onnx(100, 2_500_000)


@asynccontextmanager
async def replicas(storage: list[Storage]) -> AsyncIterator[list[Stores]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(opened(each)) for each in storage]


def storages(kind: str, folder: Path) -> list[Storage]:
    """Return the storages of three replicas: one directory opened three times, or one memory."""
    if kind == "files":
        return [FileStorage(str(folder)) for _ in range(3)]
    return [MemoryStorage()] * 3


KINDS = pytest.mark.parametrize("kind", ["files", "memory"])


@KINDS
def test_the_same_upload_everywhere_at_once(kind: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with replicas(storages(kind, tmp_path)) as all_:
            for seed in range(3):
                data = onnx(200_000, seed=seed)
                created = await asyncio.gather(*(upload(stores, data, piece=5000) for stores in all_))
                assert sorted(each.created for each in created) == [False, False, True]
                assert len({each.store for each in created}) == 1
            for stores in all_:
                assert len(await visible(stores)) == 3
                for info in (await visible(stores)).values():
                    await assert_whole(stores, info)
            await collect_garbage(all_[0].storage)
            assert len(await objects_in(all_[0].storage)) == 3

    asyncio.run(run())


@KINDS
def test_what_one_does_the_others_see(kind: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with replicas(storages(kind, tmp_path)) as (first, second, third):
            info = (await upload(first, MODEL, IngestRequest(tags=("a",)))).store
            assert (await second.get("a")).id == info.id
            await assert_whole(second, info)
            await third.put_tag("b", "a")
            assert (await first.get("a")).tags == ("a", "b")
            await second.delete(info.id)
            for stores in (first, third):
                for ref in (info.id, "a", "b"):
                    with pytest.raises(NotFound):
                        await stores.view(ref)
            assert (await upload(third, MODEL)).created
            await assert_whole(first, info)

    asyncio.run(run())


@KINDS
def test_a_store_deleted_under_a_reader(kind: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with replicas(storages(kind, tmp_path)) as (first, second, _):
            info = (await upload(first, MODEL)).store
            store = await first.view(info.id)
            file = store.file("model.onnx")
            async with aclosing(file.pieces(0, file.size)) as pieces:
                parts = [bytes(await anext(pieces))]
                await second.delete(info.id)
                await collect_garbage(second.storage, grace_seconds=60)
                parts.extend([bytes(piece) async for piece in pieces])
            assert b"".join(parts) == MODEL
            assert await read(await documents.merge(store, "", None, None)) == MODEL
            with pytest.raises(NotFound):
                await first.view(info.id)

    asyncio.run(run())


@KINDS
def test_coming_and_going_at_once(kind: str, tmp_path: Path) -> None:
    """All replicas upload and remove the same stores; in the end each store is whole or absent."""

    async def run() -> None:
        async def restless(stores: Stores, seed: int) -> None:
            for _ in range(8):
                info = (await upload(stores, onnx(70_000, seed=seed), IngestRequest(tags=("t",)))).store
                try:
                    await assert_whole(stores, info)
                    await stores.delete(info.id)
                except NotFound:
                    await asyncio.sleep(0)

        async with replicas(storages(kind, tmp_path)) as all_:
            await asyncio.gather(*(restless(stores, seed) for seed in (1, 2) for stores in all_), _collect(all_[0]))
            for stores in all_:
                for info in (await visible(stores)).values():
                    await assert_whole(stores, info)
            await asyncio.sleep(0.002)
            await collect_garbage(all_[0].storage, grace_seconds=0)
            left = await visible(all_[1])
            assert len(await objects_in(all_[0].storage)) == len(left)
            async with opened(all_[0].storage) as fresh:  # a replica that has not just read the removed store
                for info in left.values():
                    await assert_whole(fresh, info)

    asyncio.run(run())


async def _collect(stores: Stores) -> None:
    for _ in range(20):
        await collect_garbage(stores.storage, grace_seconds=60)
        await asyncio.sleep(0)


@KINDS
def test_a_replica_forgets_soon_what_another_has_removed(kind: str, tmp_path: Path) -> None:
    async def gone(stores: Stores, store_id: str) -> bool:
        try:
            await stores.view(store_id)
        except NotFound:
            return True
        return False

    async def run() -> None:
        async with replicas(storages(kind, tmp_path)) as (first, second, _):
            info = (await upload(first, MODEL)).store
            for stores in (first, second, first, second):
                await stores.view(info.id)
            await second.delete(info.id)
            assert await gone(second, info.id)
            async with asyncio.timeout(20):
                while not await gone(first, info.id):
                    await asyncio.sleep(0.05)

    asyncio.run(run())


def test_a_storage_may_be_copied_to_another(tmp_path: Path) -> None:
    """The storage is copied object by object, with the same catalogue; entity tags and times differ there."""

    async def copied(source: Storage, target: Storage) -> None:
        for key in map(ObjectKey, await keys_in(source)):
            size = (await source.stat(key)).size
            await target.put(key, await source.get_range(key, 0, size))

    async def run() -> None:
        memory, files, again = MemoryStorage(), FileStorage(str(tmp_path)), MemoryStorage()
        async with opened(memory) as stores:
            info = (await upload(stores, MODEL, IngestRequest(tags=("a",)))).store
        await copied(memory, files)
        await copied(files, again)
        for storage in (files, again):
            async with opened(storage, database=catalogue_of(memory)) as stores:
                assert await visible(stores) == {info.id: info}
                assert (await assert_whole(stores, info))["merge"] == MODEL
        await files.close()

    asyncio.run(run())
