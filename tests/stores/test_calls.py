"""Storage calls and statements of a process with nothing in memory, for any number of stores."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
from tests.support.catalogues import catalogue_of
from tests.support.rows import Counting, seed
from tests.support.stores import onnx, opened, read, upload

from protoslice.catalog.manifest import LARGEST_HELD
from protoslice.catalog.store_lists import StoreQuery
from protoslice.storage import MemoryStorage
from protoslice.stores import IngestRequest, Stores

NOTHING = Counter[tuple[str, str]]()
STORES = pytest.mark.parametrize("stores", [30, 60])


def calls(
    work: Callable[[Stores], Awaitable[object]],
    *,
    stores: int = 60,
    before: Callable[[Stores], Awaitable[object]] | None = None,
) -> tuple[Counting, Counter[str]]:
    """Return the calls of `work`, and its transactions and statements.

    A newly started process does `work`, after another process did `before`.
    """

    async def run() -> tuple[Counting, Counter[str]]:
        storage = MemoryStorage()
        await seed(catalogue_of(storage), stores)
        async with opened(storage) as others:
            await upload(others, onnx(100), IngestRequest(tags=("net:1",)))
            if before is not None:
                await before(others)
        counting = Counting(storage)
        async with opened(counting) as fresh:
            counting.calls.clear()
            database = catalogue_of(storage)
            database.count_anew()
            await work(fresh)
            return counting, database.transactions | Counter(statements=database.statements)

    return asyncio.run(run())


@STORES
@pytest.mark.parametrize(("size", "files"), [(200, 0), (LARGEST_HELD, 1)])
def test_an_upload_writes_its_object_and_commits_once(stores: int, size: int, files: int) -> None:
    async def tagged(fresh: Stores) -> None:
        made = await upload(fresh, onnx(size), IngestRequest(tags=("net:2",)))
        assert (made.created, made.store.tags) == (True, ("net:2",))

    found, transactions = calls(tagged, stores=stores)
    assert found.requests == files
    assert {name for name, _ in found.calls} <= {"writer", "write", "commit"}
    # The quota is read once in a while; the first object of a process waits for the reservation of a block of objects.
    assert (transactions["read"], transactions["write"]) == (1, 1 + files)


def test_the_next_upload_commits_once() -> None:
    async def twice(fresh: Stores) -> None:
        await upload(fresh, onnx(LARGEST_HELD))
        catalogue_of(fresh.storage).count_anew()
        await upload(fresh, onnx(LARGEST_HELD, seed=1))

    transactions = calls(twice)[1]
    assert (transactions["read"], transactions["write"]) == (0, 1)


@STORES
def test_content_that_is_there_and_whose_digest_is_told_costs_a_look(stores: int) -> None:
    async def told(fresh: Stores) -> None:
        made = await upload(fresh, onnx(100), expected_sha256=hashlib.sha256(onnx(100)).digest())
        assert (made.created, made.store.tags) == (False, ("net:1",))

    found, transactions = calls(told, stores=stores)
    assert found.calls == NOTHING
    assert transactions["write"] == 0
    assert transactions["read"] <= 3, "the quota, the store, its tags"


@STORES
def test_content_that_is_there_with_the_tag_that_it_is_sent_with_costs_a_write_more(stores: int) -> None:
    async def told(fresh: Stores) -> None:
        request = IngestRequest(tags=("net:1",))
        made = await upload(fresh, onnx(100), request, expected_sha256=hashlib.sha256(onnx(100)).digest())
        assert (made.created, made.store.tags) == (False, ("net:1",))

    found, transactions = calls(told, stores=stores)
    assert found.calls == NOTHING
    assert transactions["write"] == 1
    assert transactions["read"] <= 3


@STORES
def test_a_store_costs_two_statements(stores: int) -> None:
    async def by_tag(fresh: Stores) -> None:
        assert (await fresh.get("net:1")).tags == ("net:1",)

    async def by_id(fresh: Stores) -> None:
        assert (await fresh.get(store)).tags == ("net:1",)

    found, transactions = calls(by_tag, stores=stores)
    assert found.calls == NOTHING
    assert transactions == {"read": 1, "statements": 2}
    store = asyncio.run(_id_of(onnx(100)))
    assert calls(by_id, stores=stores)[1] == {"read": 1, "statements": 2}


async def _id_of(data: bytes) -> str:
    async with opened(MemoryStorage()) as stores:
        return (await upload(stores, data)).store.id


def test_the_first_bytes_of_a_store_cost_a_request() -> None:
    async def make(others: Stores) -> None:
        await upload(others, {"notes": bytes(100_000)}, IngestRequest(tags=("large",)))

    async def first(fresh: Stores) -> None:
        assert await read((await fresh.view("large")).file("notes"), 0, 4096) == bytes(4096)

    found, transactions = calls(first, before=make)
    assert found.requests == 1
    assert transactions == {"read": 2, "statements": 2}


def test_a_warm_read_costs_no_statement() -> None:
    async def warm(fresh: Stores) -> None:
        store = await fresh.view("net:1")
        catalogue_of(fresh.storage).count_anew()
        assert await read(store.file("model.onnx")) == onnx(100)

    found, transactions = calls(warm)
    assert found.calls == NOTHING
    assert transactions == {}


@STORES
@pytest.mark.parametrize("type", [None, "seeded.Model"])
def test_a_list_costs_two_statements(type: str | None, stores: int) -> None:
    async def newest(fresh: Stores) -> None:
        items = (await fresh.list(StoreQuery(type=type), limit=20)).items
        assert [len(info.tags) for info in items] == [1] * 20

    found, transactions = calls(newest, stores=stores)
    assert found.calls == NOTHING
    assert transactions == {"read": 1, "statements": 2}


@STORES
def test_a_store_on_a_list_that_has_got_another_tag_costs_no_more(stores: int) -> None:
    async def newest(fresh: Stores) -> None:
        assert (await fresh.list(limit=20)).items[3].tags == ("later", f"t{stores - 3}")

    found, transactions = calls(newest, stores=stores, before=lambda others: others.put_tag("later", f"t{stores - 3}"))
    assert found.calls == NOTHING
    assert transactions == {"read": 1, "statements": 2}


@STORES
def test_a_list_by_the_beginning_of_a_tag_costs_two_statements(stores: int) -> None:
    async def tagged(fresh: Stores) -> None:
        assert len((await fresh.pages.family("t", limit=20)).items) == 20

    found, transactions = calls(tagged, stores=stores)
    assert found.calls == NOTHING
    assert transactions == {"read": 1, "statements": 2}


@STORES
def test_a_removal_and_its_undoing_write_nothing_to_the_storage(stores: int) -> None:
    async def back_and_forth(fresh: Stores) -> None:
        (store,) = [info.id for info in (await fresh.pages.family("net:1", limit=1)).items]
        catalogue_of(fresh.storage).count_anew()
        await fresh.delete(store)
        assert catalogue_of(fresh.storage).transactions == {"write": 1}
        assert (await fresh.restore(store)).store.tags == ("net:1",)

    found, transactions = calls(back_and_forth, stores=stores)
    assert found.calls == NOTHING
    assert transactions["write"] == 2
