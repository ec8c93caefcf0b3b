"""Marks beside index entries: whoever breaks off, lists show stores that are there, as they are."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.support.interrupted import InterruptedStorage, at_every_call
from tests.support.seeded import Counting
from tests.support.stores import collect_a_day_later, in_memory, keys_in, objects_in, onnx, opened, upload, visible

from protoslice.errors import NotFound, ProtosliceError
from protoslice.facts import Store
from protoslice.storage import Abilities, MemoryStorage, ObjectKey, Storage
from protoslice.stores import IngestRequest, Stores
from protoslice.stores.envelope import seal, unseal
from protoslice.stores.layout import keys
from protoslice.stores.layout.indexes import IndexEntry, MarkedTags, borne, is_mark
from protoslice.stores.layout.version import SECOND
from protoslice.testing import FaultyStorage

MODEL = onnx(300)
SENT = IngestRequest(tags=("net:1", "net:best"))


class Bucket(MemoryStorage):
    """Deletes without a condition alone, as buckets do."""

    @property
    def abilities(self) -> Abilities:
        """See `Storage.abilities`."""
        return replace(super().abilities, conditional_delete=False)


async def shown(storage: Storage) -> list[Store]:
    """The stores that a new process lists, which are those that it finds by their ids, in every list."""
    async with opened(storage) as stores:
        found = await visible(stores)
        for store, info in found.items():
            assert await stores.get(store) == info
        for info in (await stores.list(tag="net")).items:
            assert found[info.id] == info
        assert (await stores.list(type="onnx.ModelProto")).items == [*found.values()]
        return [*found.values()]


def test_an_entry_tells_what_its_key_bears() -> None:
    place = f"{1 << 55:014x}-{'a' * 64}"
    for more, tags in [("", None), ("=", ()), ("=net:1", ("net:1",)), ("=a=b~", ("a", "b~"))]:
        entry = IndexEntry.parse(keys.BY_TIME / (place + more))
        assert (entry.place, entry.store, entry.tags) == (place, "a" * 64, tags)
        assert not is_mark(keys.BY_TIME / (place + more))
    mark = keys.by_type("a.B") / f"{place}+"
    assert is_mark(mark)
    assert IndexEntry.parse(mark).place == place
    assert mark.segments[-1] < f"{place}=", "a page that shows an entry shows its mark"


@pytest.mark.parametrize(
    ("tags", "fitting"),
    [
        ((), ()),
        (("b", "a", "b"), ("a", "b")),
        (("a" * 128, "b" * 46), ("a" * 128, "b" * 46)),
        (("a" * 128, "b" * 47, "c"), ("a" * 128, "c")),
    ],
)
def test_an_entry_bears_as_many_tags_as_its_key_has_room_for(tags: tuple[str, ...], fitting: tuple[str, ...]) -> None:
    assert borne(tags) == fitting
    assert len((keys.BY_TIME / f"{'0' * 14}-{'a' * 64}={'='.join(fitting)}").segments[-1]) <= 255


def test_tags_beyond_the_room_of_a_key_are_shown_like_others() -> None:
    async def work(stores: Stores, storage: MemoryStorage) -> None:
        tags = tuple(f"{letter * 100}" for letter in "nopqrs")
        made = (await upload(stores, MODEL, IngestRequest(tags=tags))).store
        assert made.tags == tags
        assert await shown(storage) == [made]
        assert (await stores.delete(made.id)).tags == tags
        assert await shown(storage) == []
        assert (await stores.tags()).items == []

    in_memory(work)


@pytest.mark.parametrize("make", [MemoryStorage, Bucket])
@pytest.mark.parametrize("after", [False, True])
def test_lists_are_right_wherever_a_removal_breaks_off(make: type[MemoryStorage], after: bool) -> None:
    async def at(number: int) -> bool:
        inner = make()
        async with opened(inner) as stores:
            store = (await upload(stores, MODEL, SENT)).store
        faulty = FaultyStorage(inner, 1 << 40, after=after, stays_down=True)
        async with opened(faulty) as stores:
            faulty.calls.clear()
            faulty._fail_at = number
            with suppress(ProtosliceError):
                await stores.delete(store.id)
        left = await shown(inner)
        assert left in ([], [store])
        async with opened(inner) as stores:
            made = (await upload(stores, MODEL)).store
            assert made.id == store.id
            (there,) = await shown(inner)
            names = tuple(tag.name for tag in (await stores.tags()).items)
            assert (there.id, there.tags) == (made.id, names), "with the tags that the removal left"
            await stores.delete(store.id)
            assert await shown(inner) == []
            assert (await stores.tags()).items == []
        return faulty.failed

    asyncio.run(at_every_call(at, 8))


@pytest.mark.parametrize("make", [MemoryStorage, Bucket])
@pytest.mark.parametrize("comings", [1, 2])
def test_a_store_that_comes_again_between_any_two_calls_of_a_removal(make: type[MemoryStorage], comings: int) -> None:
    """A remover stands still while the store is removed and comes again, once or twice."""

    async def at(number: int) -> bool:
        inner = make()
        async with opened(inner) as others:
            await upload(others, MODEL, SENT)

            async def comes_again() -> None:
                for _ in range(comings):
                    with suppress(NotFound):
                        await others.delete((await others.get("net:1")).id)
                    await upload(others, MODEL, SENT)

            storage = InterruptedStorage(inner, comes_again)
            async with opened(storage) as stores:
                store = (await stores.get("net:1")).id
                storage.arm(number)
                with suppress(ProtosliceError):
                    await stores.delete(store)
        await shown(inner)
        return storage.reached

    asyncio.run(at_every_call(at, 8))


def test_a_store_that_is_restored_is_looked_at_in_full() -> None:
    async def work(stores: Stores, storage: MemoryStorage) -> None:
        store = (await upload(stores, MODEL, SENT)).store
        await stores.delete(store.id)
        assert await shown(storage) == []
        assert (await stores.restore(store.id)).store == store
        assert await shown(storage) == [store]
        counting = Counting(storage)
        async with opened(counting) as fresh:
            counting.calls.clear()
            await fresh.list()
        assert counting.calls["get", "stores"] == 1
        await stores.delete(store.id)
        assert await shown(storage) == []

    in_memory(work)


def test_a_mended_store_keeps_the_tags_it_was_sent_with() -> None:
    async def work(stores: Stores, storage: MemoryStorage) -> None:
        store = (await upload(stores, onnx(9000), SENT)).store
        await storage.delete(ObjectKey((await objects_in(storage))[0]))
        mended = (await upload(stores, onnx(9000), IngestRequest(tags=("net:2",)))).store
        assert mended.id == store.id
        (there,) = await shown(storage)
        assert there.tags == ("net:1", "net:2", "net:best")
        assert (await stores.delete(store.id)).tags == there.tags
        await collect_a_day_later(storage)
        assert await keys_in(storage) == ["protoslice.json"]

    in_memory(work)


def test_a_store_whose_manifest_is_damaged_is_gone_once_removed_and_there_once_sent_again() -> None:
    async def work(stores: Stores, storage: MemoryStorage) -> None:
        store = (await upload(stores, MODEL, SENT)).store
        await storage.put(keys.store(store.id), b"{}")
        async with opened(storage) as others:
            assert (await others.delete(store.id)).tags == store.tags
        assert await shown(storage) == []
        await upload(stores, MODEL, SENT)
        await storage.put(keys.store(store.id), b"{}")
        async with opened(storage) as others:
            made = (await upload(others, MODEL)).store
        assert await shown(storage) == [replace(made, tags=store.tags)]

    in_memory(work)


def test_a_tag_that_a_removal_left_is_shown_again_after_a_collection() -> None:
    """The store comes to an empty place: nothing tells its sender of the tag, and a collection does."""

    async def work(stores: Stores, storage: MemoryStorage) -> None:
        store = (await upload(stores, MODEL, SENT)).store
        left = await storage.get(keys.tag("net:1"))
        await stores.delete(store.id)
        await storage.put(keys.tag("net:1"), left.data)  # as if set by one who stood still until now
        assert await shown(storage) == []
        again = (await upload(stores, MODEL)).store
        assert (await stores.get("net:1")).id == again.id
        await collect_a_day_later(storage)
        assert await shown(storage) == [replace(again, tags=("net:1",))]

    in_memory(work)


def test_a_storage_of_the_second_layout_is_served_as_it_is() -> None:
    """Entries bear no tags there, so that programs that know no other layout go on beside this one."""

    async def run() -> None:
        storage = MemoryStorage()
        await storage.put(keys.MARKER, SECOND)
        async with opened(storage) as stores:
            store = (await upload(stores, MODEL, SENT)).store
            await stores.put_tag("net:later", store.id)
        found = await keys_in(storage, "indexes")
        assert (
            len([key for key in found if key.startswith(("indexes/time", "indexes/type")) and key[-1] not in "=+"]) == 2
        )
        assert len([key for key in found if key.startswith("indexes/tag")]) == 3
        assert len(found) == 5
        (there,) = await shown(storage)
        assert there.tags == ("net:1", "net:best", "net:later")
        async with opened(storage) as stores:
            await stores.delete(store.id)
            assert await shown(storage) == []
            assert (await stores.restore(store.id)).store == there
            assert await shown(storage) == [there]

    asyncio.run(run())


def test_a_tag_that_came_long_after_it_was_written_does_not_vouch_for_its_store() -> None:
    """The writer stood still until its store was removed, and the marks of the removal collected."""

    async def work(stores: Stores, storage: MemoryStorage) -> None:
        store = (await upload(stores, MODEL, IngestRequest(tags=("net:1",)))).store
        record = json.loads(unseal((await storage.get(keys.tag("net:1"))).data, ""))
        await stores.delete(store.id)
        await collect_a_day_later(storage)
        record["made"]["at"] = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
        await storage.put(keys.tag("net:1"), seal(json.dumps(record).encode()))
        async with opened(storage) as fresh:
            assert [tag.name for tag in (await fresh.tags()).items] == ["net:1"]
            assert (await fresh.list(tag="net")).items == []
            assert (await fresh.list()).items == []

    in_memory(work)


def test_tags_behind_a_page_of_marks_are_looked_at_in_full() -> None:
    marks = frozenset({keys.by_name("b", "1").segments[-1]})
    assert [MarkedTags(marks, None).has(name, "1") for name in "abc"] == [False, True, False]
    assert [MarkedTags(marks, max(marks)).has(name, "1") for name in "abc"] == [False, True, True]


def test_marks_by_tags_are_in_the_order_of_tags() -> None:
    names = ["a", "a+", "a-b", "a.b", "a1", "a:1", "a@", "aA", "a_", "ab", "a~"]
    assert sorted(keys.by_name(name, "0").text for name in names) == [
        keys.by_name(name, "0").text for name in sorted(names)
    ]
    assert [*map(keys.tag, sorted(names))] == sorted(map(keys.tag, names))
