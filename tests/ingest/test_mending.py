"""Sending again mends a store, whatever is wrong with the copy that is there."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.stores import (
    assert_whole,
    collect_garbage,
    in_files,
    in_memory,
    keys_of,
    objects_in,
    onnx,
    opened,
    records_apart,
    upload,
    usage_of,
)

from protoslice.database.transactions import Transaction
from protoslice.errors import IntegrityError
from protoslice.storage import FileStorage, MemoryStorage, ObjectKey, Storage
from protoslice.stores import IngestRequest, Stores

MODEL = onnx(3000, 90_000, seed=4)
FILES = {"model.onnx": MODEL, "large.bin": bytes(range(256)) * 8000, "note": b"text"}


async def spoil(storage: Storage, key: ObjectKey, how: str) -> None:
    """Damage an object as a failing disk, or a stranger, would."""
    data = await storage.get_range(key, 0, (await storage.stat(key)).size)
    await storage.delete(key)
    if how == "flipped":
        await storage.put(key, data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 4]) + data[len(data) // 2 + 1 :])
    elif how == "cut":
        await storage.put(key, data[:-1])


async def spoil_manifest(stores: Stores, how: str) -> None:
    """Damage the manifest of the only store that is there."""

    def work(tx: Transaction) -> None:
        (row,) = tx.all("SELECT id, manifest FROM stores WHERE deleted IS NULL")
        data = bytearray(row[1])
        data[len(data) // 2] ^= 4
        values = {"missing": b"", "flipped": bytes(data), "cut": bytes(row[1][:-1])}
        tx.run("UPDATE stores SET manifest = :data WHERE id = :id", data=values[how], id=row[0])

    await stores.database.write(work)


@pytest.mark.parametrize("how", ["missing", "flipped", "cut"])
@records_apart()
def test_each_object_of_a_store_in_turn(how: str) -> None:
    async def work(stores: Stores, storage: Storage) -> None:
        info = (await upload(stores, FILES, IngestRequest(tags=("a",)))).store
        objects = len(await objects_in(storage))
        names = [*await keys_of(stores, info.id), "manifest"]
        assert len(names) > objects >= 7
        for name in names:
            if name == "manifest":
                await spoil_manifest(stores, how)
            else:
                await spoil(storage, (await keys_of(stores, info.id))[name], how)
            async with opened(storage) as damaged:
                with pytest.raises(IntegrityError):
                    await assert_whole(damaged, info)
            again = await upload(stores, FILES)
            assert again.store.id == info.id
            async with opened(storage) as fresh:
                views = await assert_whole(fresh, again.store)
                assert views["file large.bin"] == FILES["large.bin"]
                assert (await fresh.get("a")).id == info.id
            await asyncio.sleep(0.002)
            await collect_garbage(storage, grace_seconds=0)
            assert len(await objects_in(storage)) == objects, "those of the damaged copy are gone"

    in_memory(work)


def test_a_damaged_store_is_said_to_be_new_when_it_is_sent_again() -> None:
    async def work(stores: Stores, storage: FileStorage) -> None:
        info = (await upload(stores, FILES)).store
        assert not (await upload(stores, FILES)).created
        await spoil(storage, (await keys_of(stores, info.id))["file-1"], "flipped")
        async with opened(storage) as fresh:
            with pytest.raises(IntegrityError):
                await assert_whole(fresh, info)
        assert (await upload(stores, FILES)).created
        assert not (await upload(stores, FILES)).created
        await assert_whole(stores, info)
        async with opened(storage) as fresh:
            await assert_whole(fresh, info)
        assert (await usage_of(storage)).stores == 1, "it was mended, and did not become two"

    in_files(work)


async def test_readers_of_the_old_copy_get_to_the_end(stores: Stores, storage: MemoryStorage) -> None:
    info = (await upload(stores, FILES)).store
    keys = await keys_of(stores, info.id)
    async with opened(storage) as others:
        view = (await others.view(info.id)).file("large.bin")
        pieces = view.pieces(0, view.size)
        data = bytes(await anext(pieces))
        await spoil(storage, keys["file-0"], "missing")
        assert (await upload(stores, FILES)).created
        await collect_garbage(storage, grace_seconds=3600)
        async for piece in pieces:
            data += bytes(piece)
        assert data == FILES["large.bin"]


async def test_a_store_that_is_mended_is_not_created_again(stores: Stores, storage: MemoryStorage) -> None:
    info = (await upload(stores, FILES)).store
    await spoil(storage, (await keys_of(stores, info.id))["file-0"], "missing")
    assert (await upload(stores, FILES)).created
    changes = await stores.database.read(lambda tx: tx.all("SELECT what FROM audit ORDER BY number"))
    assert changes == [("store.created",), ("store.repaired",)]
