"""Upgrade of a storage of layout 1, written by protoslice 0.1, or 2 to layout 3, and interruptions.

`tests/golden/storage/layout1.tar.xz` is a storage that commit ef13719 wrote: a model with two tags, a store of a type
of its own, a chunked proto beside a text, a store that was removed, and an upload under way.
"""

from __future__ import annotations

import asyncio
import tarfile

import pytest
from tests.support.golden import GOLDEN
from tests.support.seeded import Counting
from tests.support.stores import assert_whole, keys_in, onnx, open_stores, opened, upload, visible

from protoslice.errors import ProtosliceError, Unsupported
from protoslice.facts import Store
from protoslice.storage import MemoryStorage, ObjectKey
from protoslice.stores import IngestRequest, Stores
from protoslice.stores.catalog import piece_index
from protoslice.stores.catalog.upgrade import upgrade
from protoslice.stores.layout.version import MARK, SECOND
from protoslice.testing import FaultyStorage

LAYOUT1 = GOLDEN / "storage" / "layout1.tar.xz"
MODEL = "fc10c07cacef9c91ffa186ecc57a17d28b53f26c6bdf10cf05a875eeb9a3f23e"
OWN = "4779ed095981ea7946f298912f8ec4a6e880a31c2b3cbece22494884bd51cea4"
CHUNKED = "4b0d17d50cde5275089950309fb813a7416ec51c14926790be1af3a60b64c1c7"
REMOVED = "d3e00a7374bae7ef848c3e208c262665b62dc2834aa48e41d6228947e7721118"
UPLOAD = "006b02de2c-680db2838f91ee43b02d"
TAGS = {"net:1": MODEL, "net:best": MODEL, "own": OWN}


async def old_storage() -> MemoryStorage:
    storage = MemoryStorage()
    with tarfile.open(LAYOUT1) as archive:
        for member in archive:
            content = archive.extractfile(member)
            if content is not None:
                await storage.put(ObjectKey(member.name), content.read())
    return storage


async def marker(storage: MemoryStorage) -> bytes:
    key = ObjectKey("protoslice.json")
    return await storage.get_range(key, 0, (await storage.stat(key)).size)


async def assert_upgraded(stores: Stores) -> None:
    """All that the old storage held is there, and found in every way."""
    found = await visible(stores)
    assert set(found) == {MODEL, OWN, CHUNKED}
    for info in found.values():
        await assert_whole(stores, info)
        assert info.schema is not None
    assert found[MODEL].tags == ("net:1", "net:best")
    assert [info.id for info in (await stores.list(tag="own")).items] == [OWN]
    assert {info.id for info in (await stores.list(type="onnx.ModelProto")).items} == {MODEL}
    assert {tag.name: tag.store for tag in (await stores.tags()).items} == TAGS
    merged = await (await stores.view("own")).merge("label", None, None)
    assert b"".join([bytes(piece) async for piece in merged.pieces(0, merged.size)]) == b"hello"
    assert (await stores.restore(REMOVED)).store.id == REMOVED


def test_nothing_opens_a_storage_of_the_first_layout_before_it_is_upgraded() -> None:
    async def run() -> None:
        storage = await old_storage()
        with pytest.raises(Unsupported, match="protoslice storage upgrade"):
            await open_stores(storage)
        report = await upgrade(storage)
        assert (report.stores, report.tags, report.unreadable) == (3, 3, ())
        async with opened(storage) as stores:
            await assert_upgraded(stores)

    asyncio.run(run())


def test_a_collection_after_an_upgrade_takes_nothing_that_is_needed() -> None:
    async def run() -> None:
        storage = await old_storage()
        await upgrade(storage)
        async with opened(storage) as stores:
            await stores.collect_garbage()
            await assert_upgraded(stores)
            again = await upload(stores, onnx(2000, seed=1), IngestRequest(min_chunk=500))
            assert again.created, "an id of the first layout is a name: what comes now has an id of the second"
            await asyncio.sleep(0.002)
            await stores.collect_garbage(grace_seconds=0)
            assert set(await visible(stores)) == {MODEL, OWN, CHUNKED, REMOVED, again.store.id}
            for info in (await visible(stores)).values():
                await assert_whole(stores, info)

    asyncio.run(run())


@pytest.mark.parametrize("after", [False, True])
def test_an_upgrade_that_breaks_off_anywhere_is_taken_up_again(after: bool) -> None:
    async def run() -> int:
        fail_at = 0
        while True:
            fail_at += 1
            storage = await old_storage()
            faulty = FaultyStorage(storage, fail_at, after=after, stays_down=True)
            try:
                await upgrade(faulty)
            except ProtosliceError:
                if await marker(storage) != MARK:  # else the last answer alone got lost
                    with pytest.raises(Unsupported, match="storage upgrade"):
                        await open_stores(storage)
            if not faulty.failed:
                return fail_at
            await upgrade(storage)
            async with opened(storage) as stores:
                await assert_upgraded(stores)

    assert asyncio.run(run()) > 20


def test_indexes_that_were_lost_are_made_anew() -> None:
    async def run() -> None:
        storage = MemoryStorage()
        async with opened(storage) as stores:
            info = (await upload(stores, onnx(10), IngestRequest(tags=("a",)))).store
        for key in await keys_in(storage, "indexes"):
            await storage.delete(ObjectKey(key))
        before = await keys_in(storage)
        await upgrade(storage)
        async with opened(storage) as stores:
            assert await visible(stores) == {info.id: info}
        assert set(before) < set(await keys_in(storage))

    asyncio.run(run())


def test_entries_of_pieces_that_were_computed_are_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(piece_index, "LEAST_INDEXED", 100_000)

    async def run() -> None:
        storage = MemoryStorage()
        async with opened(storage) as stores:
            for number in (1, 2):
                store = (
                    await upload(stores, {f"{each}": bytes([each]) * 70_000 for each in (number, number + 1)})
                ).store
                await stores.pieces(store.id, limit=1, cursor=None)
            await upload(stores, {f"{each}": bytes([each]) * 70_000 for each in (8, 9)})
        before = await keys_in(storage, "indexes/piece")
        assert len(before) == 4
        for key in before:
            await storage.delete(ObjectKey(key))
        await upgrade(storage)
        assert await keys_in(storage, "indexes/piece") == before

    asyncio.run(run())


def test_a_storage_of_the_second_layout_has_cheap_lists_after_an_upgrade() -> None:
    async def shown(storage: MemoryStorage) -> tuple[dict[str, Store], list[Store], int]:
        counting = Counting(storage)
        async with opened(counting) as stores:
            counting.calls.clear()
            listed = await visible(stores)
            requests = counting.requests
            return listed, list((await stores.list(tag="t")).items), requests

    async def run() -> None:
        storage = MemoryStorage()
        await storage.put(ObjectKey("protoslice.json"), SECOND)
        async with opened(storage) as stores:
            ids = [(await upload(stores, onnx(9, seed=n), IngestRequest(tags=(f"t{n}",)))).store.id for n in range(9)]
            await stores.put_tag("t0", ids[1])
            await stores.put_tag("x" * 120, ids[2])
            await stores.put_tag("y" * 120, ids[2])
            await stores.delete(ids[3])
        before = await shown(storage)
        assert before[2] == 1 + 9 * 2 + 11, "manifests and lists of tags, also of what is gone, and tags"
        for _ in range(2):
            await upgrade(storage)
            after = await shown(storage)
            assert after[:2] == before[:2]
            assert after[2] == 1 + 5 + 1 + 2 + 5 + 2, (
                "five with a tag, one with none, with two, with three, and one gone"
            )
        async with opened(storage) as stores:
            assert (await stores.restore(ids[3])).store.tags == ("t3",)
            await stores.delete(ids[2])
            assert set(await visible(stores)) == {*ids} - {ids[2]}
            assert "t2" not in {tag.name for tag in (await stores.tags()).items}

    asyncio.run(run())


def test_a_damaged_manifest_is_named_and_harms_no_other() -> None:
    async def run() -> None:
        storage = await old_storage()
        await storage.put(ObjectKey(f"stores/{OWN}"), b"{}")
        report = await upgrade(storage)
        assert (report.stores, report.unreadable) == (2, (f"stores/{OWN}",))
        async with opened(storage) as stores:
            assert set(await visible(stores)) == {MODEL, CHUNKED}

    asyncio.run(run())
