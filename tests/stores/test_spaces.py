"""Spaces: isolated from each other in one storage and one catalogue, and collected together."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable

import pytest
from tests.support.catalogues import catalogue_of
from tests.support.stores import assert_whole, collect_garbage, in_memory, keys_in, objects_in, onnx, upload

from protoslice.catalog.objects import Collected
from protoslice.catalog.spaces import DEFAULT_SPACE, SpaceUsage
from protoslice.errors import InvalidInput, NotFound
from protoslice.serving import StoreOptions
from protoslice.storage import MemoryStorage
from protoslice.stores import IngestRequest, Stores
from protoslice.stores.service import Spaces

MODEL = onnx(9000)


def sha(data: bytes) -> str:
    """Return a SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def with_spaces(
    work: Callable[[Spaces, Stores, MemoryStorage], Awaitable[None]], options: StoreOptions | None = None
) -> None:
    """Do `work` with the spaces of a new storage in memory."""

    async def run(stores: Stores, storage: MemoryStorage) -> None:
        spaces = Spaces(stores)
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


def test_no_space_names_the_objects_of_another() -> None:
    async def work(spaces: Spaces, default: Stores, storage: MemoryStorage) -> None:
        await spaces.create("team")
        team = await spaces.get("team")
        large = onnx(2 << 20)
        first = (await upload(default, large)).store
        assert await default.locate({sha(large): len(large)}, None)
        assert not await team.locate({sha(large): len(large)}, None)
        with pytest.raises(NotFound):
            await team.files(first.id)
        async with await team.ingest(IngestRequest()) as ingest:
            await ingest.take(await default.files(first.id))
            with pytest.raises(Collected):
                await ingest.commit()
        made = await upload(team, large, expected_sha256=hashlib.sha256(large).digest())
        assert made.created
        assert len(await objects_in(storage)) == 2, "each space has a copy"
        await default.delete(first.id)
        await asyncio.sleep(0.001)
        await collect_garbage(storage, grace_seconds=0)
        await assert_whole(team, made.store)

    with_spaces(work)


def test_a_space_that_nobody_created_is_not_there_and_asking_writes_nothing() -> None:
    async def work(spaces: Spaces, default: Stores, storage: MemoryStorage) -> None:
        catalogue_of(storage).transactions.clear()
        for name in ("team", "", "..", "a/b", "Team", "-a", "a" * 64, "default/../team"):
            with pytest.raises(NotFound):
                await spaces.get(name)
        assert catalogue_of(storage).transactions["write"] == 0

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
        other = Spaces(default)  # another replica
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
            found += [space.name for space in page.items]
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
        kept = await upload(default, MODEL)
        before = await keys_in(storage)
        for name in ("a", "b"):
            await spaces.create(name)
            stores = await spaces.get(name)
            made = await upload(stores, MODEL)
            await stores.delete(made.store.id)
        await asyncio.sleep(0.002)
        report = await collect_garbage(storage, grace_seconds=0, dry_run=True)
        assert (report.stores, report.objects) == (2, 2)
        report = await collect_garbage(storage, grace_seconds=0)
        assert (report.stores, report.objects) == (2, 2)
        assert sorted(await keys_in(storage)) == sorted(before)
        for name in ("a", "b"):
            assert (await spaces.usage(name)).held == SpaceUsage()
        await assert_whole(default, kept.store)

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
