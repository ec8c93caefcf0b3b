"""Pages of stores and of tags, and the names of a store.

Removal of stores, also while others upload or read them.
"""

import asyncio
from collections.abc import Collection
from contextlib import suppress

import pytest
from tests.support import rows
from tests.support.catalogues import catalogue_of
from tests.support.interrupted import (
    FaultyDatabase,
    FaultyStorage,
    InterruptedDatabase,
    InterruptedStorage,
    Interruption,
    at_every_call,
)
from tests.support.stores import (
    assert_whole,
    collect_a_day_later,
    collect_garbage,
    keys_in,
    onnx,
    opened,
    some,
    upload,
    usage_of,
    visible,
)

from protoslice.catalog.paging import PageBudget
from protoslice.catalog.store_lists import StoreQuery
from protoslice.errors import (
    Conflict,
    InvalidInput,
    NotFound,
)
from protoslice.facts import Removed
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
    await rows.seed(catalogue_of(storage), 1)
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


async def test_a_store_that_is_deleted_is_gone_with_its_tags(stores: Stores) -> None:
    ids = await some(stores, 2)
    await stores.put_tag("a", ids[0])
    await stores.put_tag("b", ids[1])
    await stores.view(ids[0])
    assert (await stores.delete(ids[0])).tags == ("a",)
    assert set(await visible(stores)) == {ids[1]}
    assert [tag.name for tag in (await stores.tags.page(1000))[0]] == ["b"]
    for call in (stores.get, stores.view, stores.delete):
        with pytest.raises(NotFound):
            await call(ids[0])
    with pytest.raises(NotFound):
        await stores.put_tag("c", ids[0])
    again = await upload(stores, onnx(10, seed=0))
    assert (again.store.id, again.created, again.store.tags) == (ids[0], True, ())
    await assert_whole(stores, again.store)


async def test_a_store_deleted_elsewhere_and_sent_again_is_read_where_it_lies_now(
    stores: Stores, storage: MemoryStorage
) -> None:
    async with opened(storage) as theirs:
        info = (await upload(stores, onnx(90_000))).store
        await assert_whole(stores, info)
        await theirs.delete(info.id)
        assert (await upload(theirs, onnx(90_000))).created
        await asyncio.sleep(0.002)
        assert (await collect_garbage(storage, grace_seconds=0)).deleted == 1
        await assert_whole(stores, info)
        assert set(await visible(stores)) == {info.id}


async def test_an_upload_whose_commit_is_not_answered_made_the_store() -> None:
    """The same transaction is run again, and finds that it has taken effect."""
    storage = MemoryStorage()
    faulty = FaultyStorage(storage, 1 << 40, after=True)
    async with opened(storage, database=FaultyDatabase(catalogue_of(storage), faulty)) as stores:
        await upload(stores, onnx(90_000, seed=1))
        faulty.calls.clear()
        await upload(stores, onnx(90_000, seed=2))
        (commit,) = [number for number, name in enumerate(faulty.calls, 1) if name == "write"]
        faulty.calls.clear()
        faulty._fail_at = commit
        created = await upload(stores, onnx(90_000, seed=3), IngestRequest(tags=("a",)))
        assert faulty.failed
        assert created.created
        assert created.store.tags == ("a",)
        await assert_whole(stores, created.store)
        assert len(await visible(stores)) == 3


async def test_an_upload_whose_double_is_deleted_meanwhile_makes_the_store() -> None:
    made = []

    async def at(number: int) -> bool:
        storage = MemoryStorage()
        async with opened(storage) as theirs:
            info = (await upload(theirs, onnx(90_000))).store
            interruption = Interruption(lambda: theirs.delete(info.id))
            database = InterruptedDatabase(catalogue_of(storage), interruption)
            async with opened(InterruptedStorage(storage, interruption), database=database) as ours:
                interruption.arm(number)
                again = await upload(ours, onnx(90_000), IngestRequest(tags=("t",)))
                assert again.store.id == info.id
                if again.created:
                    await assert_whole(ours, again.store)
                    assert (await ours.tags.get("t")).store == info.id
                made.append(again.created)
        return interruption.reached

    await at_every_call(at, 5)
    assert made[0]
    assert not made[-1], "it was removed after the upload had ended"


async def test_a_store_cut_down_twice_at_once(stores: Stores, storage: MemoryStorage) -> None:
    async with opened(storage) as theirs:
        info = (await upload(stores, onnx(90_000))).store
        answers = await asyncio.gather(stores.delete(info.id), theirs.delete(info.id), return_exceptions=True)
        assert all(isinstance(answer, Removed | NotFound) for answer in answers)
        assert any(isinstance(answer, Removed) for answer in answers)
        assert await visible(stores) == await visible(theirs) == {}
        await asyncio.sleep(0.002)
        await collect_garbage(storage, grace_seconds=0)
        assert await keys_in(storage) == ["protoslice.json"]


@pytest.mark.parametrize("again", ["restored", "sent"])
async def test_of_several_who_restore_and_send_a_store_each_finds_it_listed(
    stores: Stores, storage: MemoryStorage, again: str
) -> None:
    async with opened(storage) as theirs:
        info = (await upload(stores, onnx(90_000), IngestRequest(tags=("a",)))).store
        await stores.delete(info.id)
        other = theirs.restore(info.id) if again == "restored" else upload(theirs, onnx(90_000))
        await asyncio.gather(stores.restore(info.id), other)
        for each in (stores, theirs):
            assert set(await visible(each)) == {info.id}
            await assert_whole(each, info)
        assert (await usage_of(storage)).stores == 1


async def test_a_store_that_was_sent_again_counts_as_restored_and_gets_its_tags(stores: Stores) -> None:
    info = (await upload(stores, onnx(90_000), IngestRequest(tags=("a",)))).store
    await stores.delete(info.id)
    assert (await upload(stores, onnx(90_000))).created
    restored = await stores.restore(info.id)
    assert (restored.store.id, restored.store.tags, restored.tags_taken) == (info.id, ("a",), ())
    assert len(await visible(stores)) == 1
    await stores.tags.remove("a")
    assert (await stores.restore(info.id)).store.tags == (), "once"


async def test_tags_that_others_have_taken_are_told_and_stay(stores: Stores) -> None:
    one, two = await some(stores, 2)
    for tag in ("a", "b", "c"):
        await stores.put_tag(tag, one)
    await stores.delete(one)
    await stores.put_tag("b", two)
    restored = await stores.restore(one)
    assert (restored.store.tags, restored.tags_taken) == (("a", "c"), ("b",))
    assert (await stores.tags.get("b")).store == two


async def test_a_store_can_be_restored_until_it_is_collected_and_no_longer(
    stores: Stores, storage: MemoryStorage
) -> None:
    kept, gone = await some(stores, 2)
    await stores.delete(kept)
    await stores.delete(gone)
    await collect_garbage(storage)
    await stores.restore(kept[:12])
    await collect_a_day_later(storage)
    with pytest.raises(NotFound, match="garbage collection has deleted its data"):
        await stores.restore(gone)
    with pytest.raises(NotFound, match="garbage collection may have deleted its data"):
        await stores.restore(gone[:12])
    assert set(await visible(stores)) == {kept}


async def test_what_is_not_read_of_a_removed_store(stores: Stores) -> None:
    """Lists by tag, searches by digest and lookups by the beginning of an id leave out removed stores."""
    large = onnx(2 << 20)
    info = (await upload(stores, large, IngestRequest(tags=("net:1",)))).store
    wanted = {info.files[0].sha256 or "": info.size}
    assert await stores.locate(wanted, None)
    await stores.delete(info.id)
    assert [*(await stores.pages.family("net")).items, *(await stores.list(StoreQuery(type=info.type))).items] == []
    assert await stores.locate(wanted, None) == []
    assert (await stores.tags.page(1000))[0] == []
    for ref in (info.id, info.id[:12], "net:1"):
        with pytest.raises(NotFound):
            await stores.get(ref)


async def test_who_checks_a_removal_is_told_of_all_tags_and_may_refuse_it(stores: Stores) -> None:
    info = (await upload(stores, onnx(10), IngestRequest(tags=("a", "b")))).store
    asked = list[tuple[str, list[str]]]()

    async def refuse(store: str, tags: Collection[str]) -> None:
        asked.append((store, sorted(tags)))
        raise Conflict("it is named")

    for ref in (info.id, info.id[:12]):
        with pytest.raises(Conflict, match="it is named"):
            await stores.delete(ref, refuse)
    assert asked == [(info.id, ["a", "b"])] * 2
    assert (await stores.get("a")).tags == ("a", "b")
    with pytest.raises(Conflict, match="to remove only the tag, remove it as a tag"):
        await stores.delete("a", refuse)
