"""Tags of stores: the references they are set to, and trust in cached ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest
from tests.support.catalogues import InlineDatabase, catalogue_of
from tests.support.interrupted import InterceptedDatabase
from tests.support.rows import seed, seeded_id
from tests.support.stores import onnx, opened, some, upload

from protoslice.catalog import tags
from protoslice.database import Database
from protoslice.errors import LimitExceeded, NotFound
from protoslice.serving import StoreOptions
from protoslice.serving.shared import READ_TAG_BYTES
from protoslice.storage import MemoryStorage
from protoslice.stores import IngestRequest, Stores

T = TypeVar("T")

TRUSTING = StoreOptions(trust_seconds=60)


@asynccontextmanager
async def two_stores() -> AsyncIterator[tuple[Stores, InlineDatabase, str, str]]:
    """Return stores that trust cached tags, their catalogue, and the ids of two stores, one with a tag."""
    storage = MemoryStorage()
    async with opened(storage, TRUSTING) as stores:
        one, two = await some(stores, 2)
        await stores.put_tag("a", one)
        yield stores, catalogue_of(storage), one, two


async def test_a_second_read_by_a_tag_asks_for_nothing() -> None:
    async with two_stores() as (stores, catalogue, one, _):
        first = await stores.view("a")
        catalogue.transactions.clear()
        assert await stores.view("a") is first
        assert first.info.id == one
        assert catalogue.transactions == {}


async def test_trust_ends() -> None:
    async with two_stores() as (stores, _, one, two):
        await stores.view("a")
        async with opened(stores.storage) as others:
            await others.put_tag("a", two)
        assert (await stores.view("a")).info.id == one, "told in the docs"
        assert (await stores.tags.get("a")).store == (await stores.get("a")).id == two, "read from the database"
        loop = asyncio.get_running_loop()
        time = loop.time
        loop.time = lambda: time() + TRUSTING.trust_seconds  # type: ignore[method-assign]
        assert (await stores.view("a")).info.id == two


async def test_own_changes_are_seen_at_once() -> None:
    async with two_stores() as (stores, _, one, two):
        assert (await stores.view("a")).info.id == one
        await stores.put_tag("a", two)
        assert (await stores.view("a")).info.id == two
        await stores.tags.remove("a")
        with pytest.raises(NotFound):
            await stores.view("a")
        await stores.put_tag("a", two)
        assert (await stores.view("a")).info.id == two
        await stores.delete(two)
        with pytest.raises(NotFound):
            await stores.view("a")


async def test_tags_that_were_read_have_a_bound_of_their_own() -> None:
    async with two_stores() as (stores, catalogue, *_):
        await seed(catalogue, 6000)
        shared = stores.shared
        await stores.view("a")
        results = len(shared.results)
        for number in range(6000):
            assert await stores.tags.store(f"t{number}") == seeded_id(number)
        assert len(shared.results) == results
        assert shared.read_tags.weight <= READ_TAG_BYTES
        catalogue.transactions.clear()
        await stores.tags.store("t5999")
        assert catalogue.transactions == {}
        await stores.tags.store("t0")
        assert catalogue.transactions != {}, "it was read first, and is not kept"


class Overtaken(InterceptedDatabase):
    """A database in which something happens after a read, and before its reader knows."""

    def __init__(self, inner: Database) -> None:
        super().__init__(inner)
        self.then: list[Callable[[], Awaitable[object]]] = []

    async def intercept(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        """See `InterceptedDatabase.intercept`."""
        found = await call()
        if self.then and name == "read":
            await self.then.pop()()
        return found


async def test_a_read_that_a_change_overtook_is_not_trusted() -> None:
    storage = MemoryStorage()
    database = Overtaken(catalogue_of(storage))
    async with opened(storage, TRUSTING, database) as stores:
        one, two = await some(stores, 2)
        await stores.put_tag("a", one)
        database.then.append(lambda: stores.put_tag("a", two))
        assert (await stores.view("a")).info.id == one, "read before it was moved"
        assert (await stores.view("a")).info.id == two


async def test_a_tag_is_set_to_what_a_reference_names(stores: Stores) -> None:
    one, two = await some(stores, 2)
    tag, new = await stores.put_tag("a", one)
    assert (new, tag.name, tag.store) == (True, "a", one)
    assert await stores.tags.get("a") == tag
    moved, new = await stores.put_tag("a", two[:20], if_match=tag.etag)
    assert (new, moved.store) == (False, two)
    await stores.put_tag("c", "a")
    assert (await stores.tags.get("c")).store == two
    assert (await stores.get(two)).tags == ("a", "c")
    await stores.tags.remove("a", if_match=moved.etag)
    with pytest.raises(NotFound, match="'a'"):
        await stores.tags.remove("a")


async def test_a_store_of_many_tags_shows_the_first_of_them_and_lists_all(
    stores: Stores, storage: MemoryStorage
) -> None:
    one, two = await some(stores, 2)
    names = [f"t{n:04}" for n in range(230)]
    for name in names:
        await stores.put_tag(name, one)
    for name in names[:20]:
        await stores.put_tag(name, two)
    assert (await stores.get(two)).tags == tuple(names[:20])
    assert (await stores.get(one)).tags == tuple(names[20:120])
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page, cursor = await stores.tags.page(7, cursor, store=one)
        seen += [tag.name for tag in page]
        if cursor is None:
            break
    assert seen == names[20:]
    assert (await stores.delete(one)).tags == tuple(names[20:])


async def test_an_upload_sets_all_of_its_tags_or_none(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tags, "TAGS_OF_A_STORE", 2)
    (one,) = await some(stores, 1)
    for number in range(2):
        await stores.put_tag(f"t:{number}", one)
    with pytest.raises(LimitExceeded, match="already has 2 tags"):
        await upload(stores, onnx(10, seed=0), IngestRequest(tags=("t:1", "t:again")))
    assert (await stores.get(one)).tags == ("t:0", "t:1")
