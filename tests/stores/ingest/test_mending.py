"""Sending again mends a store, whatever is wrong with the copy that is there."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.stores import (
    assert_whole,
    in_files,
    in_memory,
    keys_in,
    onnx,
    opened,
    records_apart,
    upload,
    visible,
)

from protoslice.errors import IntegrityError
from protoslice.storage import FileStorage, MemoryStorage, ObjectKey, Storage
from protoslice.stores import IngestRequest, Stores

MODEL = onnx(3000, 90_000, seed=4)
FILES = {"model.onnx": MODEL, "large.bin": bytes(range(256)) * 8000, "note": b"text"}


async def spoil(storage: Storage, key: str, how: str) -> None:
    """Damage an object as a failing disk, or a stranger, would."""
    name = ObjectKey(key)
    data = await storage.get_range(name, 0, (await storage.stat(name)).size)
    await storage.delete(name)
    if how == "flipped":
        await storage.put(name, data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 4]) + data[len(data) // 2 + 1 :])
    elif how == "cut":
        await storage.put(name, data[:-1])


@pytest.mark.parametrize("how", ["missing", "flipped", "cut"])
@records_apart()
def test_each_object_of_a_store_in_turn(how: str) -> None:
    async def work(stores: Stores, storage: Storage) -> None:
        info = (await upload(stores, FILES, IngestRequest(tags=("a",)))).store
        spoilt = 0
        for key in await keys_in(storage, "objects") + await keys_in(storage, "stores"):
            if "/of-" in key or key.endswith("/claim"):
                continue
            # The keys change as copies replace each other: the one of this name now.
            (now,) = [found for found in await keys_in(storage) if _is_current(key, found)]
            await spoil(storage, now, how)
            again = await upload(stores, FILES)
            assert again.store.id == info.id
            async with opened(storage) as fresh:
                views = await assert_whole(fresh, again.store)
                assert views["file large.bin"] == FILES["large.bin"]
                assert (await fresh.get("a")).id == info.id
            await asyncio.sleep(0.002)
            await stores.collect_garbage(grace_seconds=0)
            spoilt += 1
        assert spoilt >= 7

    in_memory(work)


def _is_current(key: str, found: str) -> bool:
    """True if `found`, after a collection, is the object of the same name, in any attempt."""
    return found == key or (key.startswith("objects/") and found.split("/")[2:] == key.split("/")[2:])


def test_a_damaged_store_is_said_to_be_new_when_it_is_sent_again() -> None:
    async def work(stores: Stores, storage: FileStorage) -> None:
        info = (await upload(stores, FILES)).store
        assert not (await upload(stores, FILES)).created
        (key,) = [key for key in await keys_in(storage, "objects") if key.endswith("/file-1")]
        await spoil(storage, key, "flipped")
        async with opened(storage) as fresh:
            with pytest.raises(IntegrityError):
                await assert_whole(fresh, info)
        assert (await upload(stores, FILES)).created
        assert not (await upload(stores, FILES)).created
        for replica in (stores, Stores):
            async with opened(storage) as fresh:
                await assert_whole(fresh if replica is Stores else stores, info)

    in_files(work)


def test_readers_of_the_old_copy_get_to_the_end() -> None:
    async def work(stores: Stores, storage: MemoryStorage) -> None:
        await upload(stores, FILES)
        async with opened(storage) as others:
            view = (await others.view((await visible(stores)).popitem()[0])).file("large.bin")
            pieces = view.pieces(0, view.size)
            data = bytes(await anext(pieces))
            (key,) = [key for key in await keys_in(storage, "objects") if key.endswith("/file-0")]
            await spoil(storage, key, "missing")
            assert (await upload(stores, FILES)).created
            await stores.collect_garbage(grace_seconds=3600)
            async for piece in pieces:
                data += bytes(piece)
            assert data == FILES["large.bin"]

    in_memory(work)
