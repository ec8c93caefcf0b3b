"""Removing stores, also while others take them in or look at them."""

import asyncio

import pytest
from tests.support.stores import assert_whole, in_memory, keys_in, onnx, opened, some, upload, visible

from protoslice.errors import (
    Conflict,
    NotFound,
)
from protoslice.facts import Removed
from protoslice.storage import MemoryStorage, ObjectKey
from protoslice.stores import Stores


def test_a_store_that_is_deleted_is_gone_with_its_tags() -> None:
    async def work(stores: Stores, _: MemoryStorage) -> None:
        ids = await some(stores, 2)
        await stores.put_tag("a", ids[0])
        await stores.put_tag("b", ids[1])
        await stores.view(ids[0])
        assert (await stores.delete(ids[0])).tags == ("a",)
        assert set(await visible(stores)) == {ids[1]}
        assert [tag.name for tag in (await stores.tags()).items] == ["b"]
        for call in (stores.get, stores.view, stores.delete):
            with pytest.raises(NotFound):
                await call(ids[0])
        with pytest.raises(NotFound):
            await stores.put_tag("c", ids[0])
        again = await upload(stores, onnx(10, seed=0))
        assert (again.store.id, again.created, again.store.tags) == (ids[0], True, ())
        await assert_whole(stores, again.store)

    in_memory(work)


def test_a_store_deleted_elsewhere_and_sent_again_is_read_where_it_lies_now() -> None:
    async def work(ours: Stores, storage: MemoryStorage) -> None:
        async with opened(storage) as theirs:
            info = (await upload(ours, onnx(90_000))).store
            await assert_whole(ours, info)
            await theirs.delete(info.id)
            assert (await upload(theirs, onnx(90_000))).created
            await asyncio.sleep(0.002)
            await theirs.collect_garbage(grace_seconds=0)
            await assert_whole(ours, info)
            assert set(await visible(ours)) == {info.id}

    in_memory(work)


class Forgetful(MemoryStorage):
    """Loses the answer to the first creation of a manifest, as a remote storage that retries may."""

    lost = False

    async def put_if_absent(self, key: ObjectKey, data: bytes | bytearray | memoryview) -> str:
        etag = await super().put_if_absent(key, data)
        if key.segments[0] == "stores" and not self.lost:
            self.lost = True
            raise Conflict("it already exists")
        return etag


def test_a_store_that_seems_to_be_there_already_may_be_our_own() -> None:
    async def run() -> None:
        storage = Forgetful()
        storage.lost = True
        async with opened(storage) as ours, opened(storage) as theirs:
            info = (await upload(ours, onnx(90_000))).store
            await assert_whole(ours, info)
            await theirs.delete(info.id)
            storage.lost = False
            assert (await upload(ours, onnx(90_000))).created
            await assert_whole(ours, info)

    asyncio.run(run())


class Vanishing(MemoryStorage):
    """Removes a manifest right after it has stood in the way of another."""

    vanish = False

    async def put_if_absent(self, key: ObjectKey, data: bytes | bytearray | memoryview) -> str:
        try:
            return await super().put_if_absent(key, data)
        except Conflict:
            if self.vanish and key.segments[0] == "stores":
                await self.delete(key)
            raise


def test_an_upload_whose_double_is_deleted_meanwhile_makes_the_store() -> None:
    async def run() -> None:
        storage = Vanishing()
        async with opened(storage) as stores:
            await upload(stores, onnx(90_000))
            storage.vanish = True
            again = await upload(stores, onnx(90_000))
            assert again.created
            await assert_whole(stores, again.store)

    asyncio.run(run())


def test_a_store_cut_down_twice_at_once() -> None:
    async def work(ours: Stores, storage: MemoryStorage) -> None:
        async with opened(storage) as theirs:
            info = (await upload(ours, onnx(90_000))).store
            answers = await asyncio.gather(ours.delete(info.id), theirs.delete(info.id), return_exceptions=True)
            assert all(isinstance(answer, Removed | NotFound) for answer in answers)
            assert any(isinstance(answer, Removed) for answer in answers)
            assert await visible(ours) == await visible(theirs) == {}
            await asyncio.sleep(0.002)
            await ours.collect_garbage(grace_seconds=0)
            assert await keys_in(storage) == ["protoslice.json"]

    in_memory(work)
