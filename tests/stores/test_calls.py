"""Calls of the storage by a process with nothing in memory, at any number of stores."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable

import pytest
from tests.support.seeded import Counting, seed
from tests.support.stores import onnx, opened, upload

from protoslice.storage import MemoryStorage
from protoslice.stores import IngestRequest, Stores
from protoslice.stores.manifest import LARGEST_HELD


def calls(
    work: Callable[[Stores], Awaitable[object]],
    *,
    stores: int = 60,
    before: Callable[[Stores], Awaitable[object]] | None = None,
) -> Counting:
    """The calls of `work` in a process that has just been started, after `before` in another one."""

    async def run() -> Counting:
        storage = MemoryStorage()
        await seed(storage, stores)
        async with opened(storage) as others:
            await upload(others, onnx(100), IngestRequest(tags=("net:1",)))
            if before is not None:
                await before(others)
        counting = Counting(storage)
        async with opened(counting) as fresh:
            counting.calls.clear()
            await work(fresh)
        return counting

    return asyncio.run(run())


@pytest.mark.parametrize("stores", [30, 60])
@pytest.mark.parametrize(("size", "files"), [(200, 0), (LARGEST_HELD, 1)])
def test_an_upload_asks_for_nothing_that_it_has_written(stores: int, size: int, files: int) -> None:
    async def tagged(fresh: Stores) -> None:
        made = await upload(fresh, onnx(size), IngestRequest(tags=("net:2",)))
        assert (made.created, made.store.tags) == (True, ("net:2",))

    found = calls(tagged, stores=stores)
    # The claim and the reference; two entries, which bear the tag, the manifest, and the tag; the claim is read once.
    assert found.requests == 7 + files
    assert {name for name, _ in found.calls} <= {"writer", "write", "commit", "put_if_absent", "put", "get_range"}
    assert found.calls["commit", "objects"] == files
    assert found.calls["get_range", "objects"] == 1


@pytest.mark.parametrize("stores", [30, 60])
def test_content_that_is_there_and_whose_digest_is_told_costs_a_look(stores: int) -> None:
    async def told(fresh: Stores) -> None:
        made = await upload(fresh, onnx(100), expected_sha256=hashlib.sha256(onnx(100)).digest())
        assert (made.created, made.store.tags) == (False, ("net:1",))

    found = calls(told, stores=stores)
    # The tag shows that the objects stay, so nobody reads a claim; each other tag that is shown costs one more.
    assert found.calls == {("get", "stores"): 1, ("list", "indexes"): 1, ("get", "tags"): 1}


@pytest.mark.parametrize("stores", [30, 60])
def test_content_that_is_there_with_the_tag_that_it_is_sent_with_costs_a_write_more(stores: int) -> None:
    async def told(fresh: Stores) -> None:
        request = IngestRequest(tags=("net:1",))
        made = await upload(fresh, onnx(100), request, expected_sha256=hashlib.sha256(onnx(100)).digest())
        assert (made.created, made.store.tags) == (False, ("net:1",))

    found = calls(told, stores=stores)
    assert found.calls == {("get", "stores"): 1, ("list", "indexes"): 1, ("get", "tags"): 1, ("put", "tags"): 1}


@pytest.mark.parametrize("stores", [30, 60])
def test_a_store_costs_its_manifest_its_list_of_tags_and_its_tags(stores: int) -> None:
    async def by_tag(fresh: Stores) -> None:
        assert (await fresh.get("net:1")).tags == ("net:1",)

    found = calls(by_tag, stores=stores)
    assert found.calls == {("get", "tags"): 1, ("get", "stores"): 1, ("list", "indexes"): 1}


@pytest.mark.parametrize("stores", [30, 60])
@pytest.mark.parametrize("type", [None, "seeded.Model"])
def test_a_list_costs_a_call_for_each_store_on_it(type: str | None, stores: int) -> None:
    async def newest(fresh: Stores) -> None:
        items = (await fresh.list(type=type, limit=20)).items
        assert [len(info.tags) for info in items] == [1] * 20

    assert calls(newest, stores=stores).requests == 1 + 20


@pytest.mark.parametrize("stores", [30, 60])
def test_a_store_on_a_list_that_has_got_another_tag_costs_three_calls_and_one_more(stores: int) -> None:
    async def newest(fresh: Stores) -> None:
        assert (await fresh.list(limit=20)).items[3].tags == ("later", f"t{stores - 3}")

    found = calls(newest, stores=stores, before=lambda others: others.put_tag("later", f"t{stores - 3}"))
    assert found.requests == 1 + 19 + 4


def test_a_store_on_a_list_that_was_sent_without_a_tag_costs_its_manifest() -> None:
    async def newest(fresh: Stores) -> None:
        assert (await fresh.list(limit=1)).items[0].tags == ()

    found = calls(newest, before=lambda others: upload(others, onnx(300)))
    assert found.calls == {("list", "indexes"): 1, ("get", "stores"): 1}


@pytest.mark.parametrize("stores", [30, 60])
def test_a_list_by_the_beginning_of_a_tag_costs_what_is_shown(stores: int) -> None:
    async def tagged(fresh: Stores) -> None:
        assert len((await fresh.list(tag="t", limit=20)).items) == 20

    assert calls(tagged, stores=stores).requests == 2 + 20
