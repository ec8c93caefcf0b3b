"""Removing stores, also while others take them in or look at them."""

import asyncio
from collections.abc import Collection

import pytest
from tests.support.catalogues import catalogue_of
from tests.support.faults import FaultyStorage
from tests.support.interrupted import (
    FaultyDatabase,
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

from protoslice.catalog.store_lists import StoreQuery
from protoslice.errors import Conflict, NotFound
from protoslice.facts import Removed
from protoslice.storage import MemoryStorage
from protoslice.stores import IngestRequest, Stores


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
    """The same transaction is run again, and sees that it has taken effect."""
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
    with pytest.raises(Conflict, match="remove the tag, or give the store's id"):
        await stores.delete("a", refuse)
