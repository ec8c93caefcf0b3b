"""Spaces: worlds of their own in one storage, found without an index, collected with all the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.support.stores import in_memory, keys_in, onnx, upload

from protoslice.errors import InvalidInput, NotFound
from protoslice.storage import MemoryStorage, ObjectKey
from protoslice.stores import StoreOptions, Stores
from protoslice.stores.layout.version import MARK
from protoslice.stores.names import DEFAULT_SPACE
from protoslice.stores.spaces import Spaces

MODEL = onnx(1000)
HOUR = 3600.0


def with_spaces(
    work: Callable[[Spaces, Stores, MemoryStorage], Awaitable[None]], options: StoreOptions | None = None
) -> None:
    """Do `work` with the spaces of a new storage in memory."""

    async def run(stores: Stores, storage: MemoryStorage) -> None:
        spaces = Spaces(storage, stores)
        await work(spaces, stores, storage)

    in_memory(run, options)


def test_equal_content_is_two_stores_in_two_spaces() -> None:
    async def work(spaces: Spaces, default: Stores, storage: MemoryStorage) -> None:
        assert await spaces.create("team")
        team = await spaces.get("team")
        assert (await upload(team, MODEL)).created
        assert (await upload(default, MODEL)).created, "what the other space holds is not known here"
        assert not (await upload(team, MODEL)).created
        (info,) = (await team.list()).items
        await team.put_tag("m", info.id)
        await default.delete(info.id)
        assert (await team.get("m")).id == info.id
        with pytest.raises(NotFound):
            await default.get(info.id)
        view = (await team.view("m")).file("model.onnx")
        assert await view.read(1 << 20) == MODEL

    with_spaces(work)


def test_objects_lie_below_the_folder_of_their_space() -> None:
    async def work(spaces: Spaces, default: Stores, storage: MemoryStorage) -> None:
        before = await keys_in(storage)
        await spaces.create("team")
        await upload(await spaces.get("team"), MODEL)
        assert {key.split("/")[:2] == ["spaces", "team"] for key in set(await keys_in(storage)) - set(before)} == {True}

    with_spaces(work)


def test_a_space_that_nobody_created_is_not_there_and_asking_writes_nothing() -> None:
    async def work(spaces: Spaces, default: Stores, storage: MemoryStorage) -> None:
        before = await keys_in(storage)
        for name in ("team", "", "..", "a/b", "Team", "-a", "a" * 64, "default/../team"):
            with pytest.raises(NotFound):
                await spaces.get(name)
        assert await keys_in(storage) == before

    with_spaces(work)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "Team", "-a", "a_b", "a" * 64, "\u0661", "a\n"])
def test_names_are_plain(name: str) -> None:
    async def work(spaces: Spaces, default: Stores, storage: MemoryStorage) -> None:
        with pytest.raises(InvalidInput):
            await spaces.create(name)

    with_spaces(work)


def test_a_space_is_created_once_whoever_is_first() -> None:
    async def work(spaces: Spaces, default: Stores, storage: MemoryStorage) -> None:
        assert not await spaces.create(DEFAULT_SPACE)
        await asyncio.gather(*(spaces.create("team") for _ in range(5)))
        assert not await spaces.create("team")
        other = Spaces(storage, default)  # another replica
        assert await upload(await other.get("team"), MODEL)
        assert len((await (await spaces.get("team")).list()).items) == 1

    with_spaces(work)


def test_all_are_listed_whatever_they_hold() -> None:
    async def work(spaces: Spaces, default: Stores, storage: MemoryStorage) -> None:
        names = ["a", "a-b", "a-", "ab", "b", "0", "z" * 63]
        for name in names:
            await spaces.create(name)
            await upload(await spaces.get(name), MODEL)
        found, cursor = list[str](), None
        while True:
            page = await spaces.page(limit=2, cursor=cursor)
            found += page.items
            cursor = page.next
            if cursor is None:
                break
        assert found[0] == DEFAULT_SPACE
        assert sorted(found[1:]) == sorted(names)
        with pytest.raises(InvalidInput):
            await spaces.page(limit=2, cursor="../b")

    with_spaces(work)


def test_garbage_is_collected_in_every_space() -> None:
    async def work(spaces: Spaces, default: Stores, storage: MemoryStorage) -> None:
        before = await keys_in(storage)
        for name in ("a", "b"):
            await spaces.create(name)
            stores = await spaces.get(name)
            made = await upload(stores, MODEL)
            await stores.delete(made.store.id)
        await asyncio.sleep(0.002)
        report = await spaces.collect_garbage(grace_seconds=0, dry_run=True)
        assert report.stores == 2
        report = await spaces.collect_garbage(grace_seconds=0)
        assert report.stores == 2
        marks = ["spaces/a/protoslice.json", "spaces/b/protoslice.json", "tally/last"]
        assert sorted(await keys_in(storage)) == sorted([*before, *marks])

    with_spaces(work)


def test_damage_is_told_by_the_whole_key() -> None:
    async def work(spaces: Spaces, default: Stores, storage: MemoryStorage) -> None:
        await storage.put_if_absent(ObjectKey("spaces/a/protoslice.json"), MARK)
        made = await upload(await spaces.get("a"), onnx(3_000_000))
        key = ObjectKey(f"spaces/a/stores/{made.store.id}")
        await storage.put(key, b"damaged")
        (entry,) = [key for key in await keys_in(storage) if key.startswith("spaces/a/indexes/time/")]
        await storage.delete(ObjectKey(entry))  # by its entry, the listings would clear the store
        await asyncio.sleep(0.002)
        assert (await spaces.collect_garbage(grace_seconds=0)).unreadable == str(key)

    with_spaces(work)


def test_opened_stores_of_all_spaces_are_counted_together() -> None:
    async def work(spaces: Spaces, default: Stores, storage: MemoryStorage) -> None:
        ids = {}
        for name in ("a", "b", "c"):
            await spaces.create(name)
            stores = await spaces.get(name)
            ids[name] = (await upload(stores, MODEL)).store.id
            await stores.view(ids[name])
        kept = [name for name in ids if (await spaces.get(name)).view_if_open(ids[name]) is not None]
        assert kept == ["b", "c"], "two of them, as the options say, and each in its own space"

    with_spaces(work, StoreOptions(open_stores=2, trust_seconds=60))
