"""Pages of stores and of tags, and what a store may be called by."""

import asyncio
from contextlib import suppress

import pytest
from tests.support import seeded
from tests.support.catalogues import catalogue_of
from tests.support.interrupted import InterruptedDatabase, Interruption, at_every_call
from tests.support.stores import collect_garbage, onnx, opened, some, upload

from protoslice.catalog.paging import PageBudget
from protoslice.catalog.store_lists import StoreQuery
from protoslice.errors import (
    InvalidInput,
    NotFound,
)
from protoslice.server.api.encoding import encode_items
from protoslice.storage import MemoryStorage
from protoslice.stores import IngestRequest, Stores


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8])
async def test_pages_of_stores_newest_first(stores: Stores, limit: int) -> None:
    ids = await some(stores, 7)
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = await stores.list(limit=limit, cursor=cursor)
        assert 0 < len(page.items) <= limit
        seen.extend(info.id for info in page.items)
        if (cursor := page.next) is None:
            break
    assert seen == ids[::-1]


async def test_a_list_goes_on_where_it_was_though_stores_have_gone(stores: Stores) -> None:
    ids = await some(stores, 6)
    page = await stores.list(limit=2)
    await stores.delete(page.items[-1].id)
    rest = await stores.list(limit=10, cursor=page.next)
    assert [info.id for info in rest.items] == ids[3::-1]


@pytest.mark.parametrize("cursor", ["", "x", "../x", "0" * 64 + "0", "ffff", "-" * 80])
async def test_cursors_nobody_gave(stores: Stores, cursor: str) -> None:
    await some(stores, 1)
    with pytest.raises(InvalidInput, match="cursor"):
        await stores.list(cursor=cursor)


async def test_lists_by_tag_and_type(stores: Stores) -> None:
    one = (await upload(stores, onnx(1, seed=1), IngestRequest(tags=("net:1", "other")))).store.id
    two = (await upload(stores, onnx(1, seed=2), IngestRequest(tags=("net:2",)))).store.id
    odd = (await upload(stores, {"odd": b"\x92\x4e\x03abc"})).store.id
    assert [info.id for info in (await stores.pages.family("net:")).items] == [one, two]
    assert [info.id for info in (await stores.pages.family("net:1")).items] == [one]
    assert [info.id for info in (await stores.pages.family("none")).items] == []
    assert [info.id for info in (await stores.list(StoreQuery(type="onnx.ModelProto"))).items] == [two, one]
    assert [info.id for info in (await stores.list(StoreQuery(type="unknown"))).items] == [odd]
    assert [info.id for info in (await stores.pages.family("oth", type="onnx.ModelProto")).items] == [one]
    page = await stores.pages.family("net:", limit=1)
    assert [info.id for info in (await stores.pages.family("net:", limit=1, cursor=page.next)).items] == [two]


async def test_what_a_store_may_be_called_by(stores: Stores) -> None:
    store_id = (await upload(stores, onnx(5), IngestRequest(tags=("resnet50:3",)))).store.id
    for ref in (store_id, store_id[:12], store_id[:63], "resnet50:3"):
        assert (await stores.get(ref)).id == store_id
        assert (await stores.view(ref)).info.id == store_id
    other = "f" * 64 if store_id[0] != "f" else "0" * 64
    for ref in (other, other[:12], "resnet50:4", store_id[:-1] + ("0" if store_id[-1] != "0" else "1")):
        with pytest.raises(NotFound):
            await stores.get(ref)
    for ref in (store_id[:11] + "!", "", ".", "../x", "a b", "é", "a" * 129, "-a"):
        with pytest.raises(InvalidInput):
            await stores.get(ref)


async def test_a_beginning_of_several_ids_is_not_enough(stores: Stores, storage: MemoryStorage) -> None:
    store_id = (await upload(stores, onnx(5))).store.id
    twin = store_id[:20] + ("0" if store_id[20] != "0" else "1") * 44
    await seeded.seed(catalogue_of(storage), 1)
    sql = "UPDATE stores SET digest = :twin WHERE type = 'seeded.Model'"
    await catalogue_of(storage).write(lambda tx: tx.run(sql, twin=twin))
    with pytest.raises(InvalidInput, match="Several ids start with"):
        await stores.get(store_id[:20])
    assert (await stores.get(store_id[:21])).id == store_id


async def test_pages_of_tags(stores: Stores) -> None:
    (store_id,) = await some(stores, 1)
    names = [*(f"t{n}" for n in range(7)), "t~:@+"]
    for name in names:
        await stores.put_tag(name, store_id)
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page, cursor = await stores.tags.page(3, cursor)
        seen.extend(tag.name for tag in page)
        if cursor is None:
            break
    assert sorted(seen) == sorted(names)
    for bad in ("a/b", ""):
        with pytest.raises(InvalidInput):
            await stores.tags.page(3, bad)


async def test_tags_that_come_and_go_disturb_no_reader(stores: Stores, storage: MemoryStorage) -> None:
    one, two = await some(stores, 2)
    done = False

    async def restless(name: str) -> None:
        while not done:
            await stores.put_tag(name, two)
            await stores.put_tag(name, one)
            await stores.tags.remove(name)
            await asyncio.sleep(0)

    async with opened(storage) as others:
        tasks = [asyncio.create_task(restless(name)) for name in ("a", "b")]
        await others.put_tag("fixed", one)
        for _ in range(60):
            assert "fixed" in (await others.get(one)).tags
            assert {info.id for info in (await others.list()).items} == {one, two}
            assert "fixed" in {tag.name for tag in (await others.tags.page(1000))[0]}
            await asyncio.sleep(0)
            with suppress(NotFound):
                assert (await others.tags.get("a")).store in {one, two}
        done = True
        await asyncio.gather(*tasks)


@pytest.mark.parametrize("purged", [False, True])
def test_stores_and_tags_that_go_between_a_list_and_its_reading(purged: bool) -> None:
    async def at(number: int) -> bool:
        storage = MemoryStorage()
        async with opened(storage) as theirs:
            kept, gone, last = await some(theirs, 3)
            for store in (kept, gone, last):
                await theirs.put_tag(f"t-{store[:12]}x", store)

            async def remove() -> None:
                await theirs.delete(gone)
                if purged:
                    await asyncio.sleep(0.001)
                    await collect_garbage(storage, grace_seconds=0)

            interruption = Interruption(remove)
            async with opened(storage, database=InterruptedDatabase(catalogue_of(storage), interruption)) as ours:
                interruption.arm(number)
                listed = [info.id for info in (await ours.list()).items]
                assert listed in ([last, gone, kept], [last, kept])
                by_tag = {info.id for info in (await ours.pages.family("t-")).items}
                assert {kept, last} <= by_tag <= {kept, last, gone}
                assert {tag.store for tag in (await ours.tags.page(1000))[0]} >= {kept, last}
        return interruption.reached

    asyncio.run(at_every_call(at, 3))


async def test_a_page_of_stores_is_bounded_by_bytes(stores: Stores) -> None:
    """Each of these takes a third of a mebibyte as JSON."""
    ids = []
    for seed in range(5):
        notes = {f"notes/{number}-{'x' * 180}": b"" for number in range(1000)}
        ids.append((await upload(stores, {"model.onnx": onnx(1, seed=seed)} | notes)).store.id)
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = await stores.list(limit=100, cursor=cursor)
        assert len(encode_items(page.items)) <= 1 << 20
        seen.extend(info.id for info in page.items)
        if (cursor := page.next) is None:
            break
    assert seen == ids[::-1]


def test_the_first_item_of_a_page_has_room_whatever_it_weighs() -> None:
    room = PageBudget(3, 100)
    assert [room.takes(weight) for weight in (500, 0, 1)] == [True, False, False]
    room = PageBudget(3, 100)
    assert [room.takes(weight) for weight in (40, 40, 40, 1)] == [True, True, False, False]
    room = PageBudget(2, 100)
    assert [room.takes(1) for _ in range(3)] == [True, True, False]
