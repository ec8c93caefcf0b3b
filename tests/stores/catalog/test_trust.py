"""Trust in tags: for some seconds bytes are read by a tag without asking where it points."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest
from tests.support.catalogues import InlineDatabase, catalogue_of
from tests.support.interrupted import InterceptedDatabase
from tests.support.stores import opened, some

from protoslice.catalog import Database
from protoslice.errors import NotFound
from protoslice.storage import MemoryStorage
from protoslice.stores import StoreOptions, Stores

T = TypeVar("T")

TRUSTING = StoreOptions(trust_seconds=60)


@asynccontextmanager
async def two_stores() -> AsyncIterator[tuple[Stores, InlineDatabase, str, str]]:
    """Trusting stores, their catalogue, and the ids of two, of which one has a tag."""
    storage = MemoryStorage()
    async with opened(storage, TRUSTING) as stores:
        one, two = await some(stores, 2)
        await stores.put_tag("a", one)
        yield stores, catalogue_of(storage), one, two


def test_a_second_read_by_a_tag_asks_for_nothing() -> None:
    async def run() -> None:
        async with two_stores() as (stores, catalogue, one, _):
            first = await stores.view("a")
            catalogue.transactions.clear()
            assert await stores.view("a") is first
            assert first.info.id == one
            assert catalogue.transactions == {}

    asyncio.run(run())


def test_trust_ends() -> None:
    async def run() -> None:
        async with two_stores() as (stores, _, one, two):
            await stores.view("a")
            async with opened(stores.storage) as others:
                await others.put_tag("a", two)
            assert (await stores.view("a")).info.id == one, "told in the docs"
            assert (await stores.tag("a")).store == (await stores.get("a")).id == two, "what is told is asked for"
            loop = asyncio.get_running_loop()
            time = loop.time
            loop.time = lambda: time() + TRUSTING.trust_seconds  # type: ignore[method-assign]
            assert (await stores.view("a")).info.id == two

    asyncio.run(run())


def test_own_changes_are_seen_at_once() -> None:
    async def run() -> None:
        async with two_stores() as (stores, _, one, two):
            assert (await stores.view("a")).info.id == one
            await stores.put_tag("a", two)
            assert (await stores.view("a")).info.id == two
            await stores.delete_tag("a")
            with pytest.raises(NotFound):
                await stores.view("a")
            await stores.put_tag("a", two)
            assert (await stores.view("a")).info.id == two
            await stores.delete(two)
            with pytest.raises(NotFound):
                await stores.view("a")

    asyncio.run(run())


class Overtaken(InterceptedDatabase):
    """Database in which something happens after a read, and before its reader knows."""

    def __init__(self, inner: Database) -> None:
        super().__init__(inner)
        self.then: list[Callable[[], Awaitable[object]]] = []

    async def intercept(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        """See `InterceptedDatabase.intercept`."""
        found = await call()
        if self.then and name == "read":
            await self.then.pop()()
        return found


def test_a_read_that_a_change_overtook_is_not_trusted() -> None:
    async def run() -> None:
        storage = MemoryStorage()
        database = Overtaken(catalogue_of(storage))
        async with opened(storage, TRUSTING, database) as stores:
            one, two = await some(stores, 2)
            await stores.put_tag("a", one)
            database.then.append(lambda: stores.put_tag("a", two))
            assert (await stores.view("a")).info.id == one, "read before it was moved"
            assert (await stores.view("a")).info.id == two

    asyncio.run(run())
