"""Tags: moved on condition, pointed at stores that exist, with another version after each change."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
from tests.support.rows import ACCOUNT, SPACE, put_store

from protoslice.catalog import Database, open_database, tags
from protoslice.catalog.letters import LetterTable
from protoslice.catalog.spaces import Account
from protoslice.catalog.stores import StoreTable
from protoslice.catalog.tags import SetTag, TagTable
from protoslice.catalog.webhooks import Webhook, WebhookRecords
from protoslice.errors import Changed, LimitExceeded, NotFound

Work = Callable[[Database, TagTable, TagTable], Awaitable[None]]


def _run(url: str, work: Work) -> None:
    """Run `work` with the tags of a space, as two replicas see them, and three stores."""

    async def run() -> None:
        async with open_database(url, "memory://") as one, open_database(url, "memory://") as other:
            for store in ("a", "b", "c"):
                await put_store(one, store)
            await work(one, TagTable(one, ACCOUNT), TagTable(other, ACCOUNT))

    asyncio.run(run())


def test_put_points_tags_at_a_store_that_exists(catalogue: str) -> None:
    async def work(database: Database, one: TagTable, other: TagTable) -> None:
        first, second = await one.put(["t2", "t1"], "a")
        assert (first.row.name, first.created, second.row.name) == ("t1", True, "t2")
        assert await other.get("t1") == first.row
        (moved,) = await other.put(["t1"], "b")
        assert not moved.created
        assert moved.row.version != first.row.version
        (again,) = await other.put(["t1"], "b")
        assert again.row.version != moved.row.version, "an entity tag came twice"
        assert [tag.name for tag in await one.page(9, "", store="a")] == ["t2"]
        await StoreTable(database, ACCOUNT).remove("c")
        for gone in ("c", "none"):
            with pytest.raises(NotFound):
                await one.put(["t1"], gone)
        assert await TagTable(database, Account("elsewhere")).get("t1") is None

    _run(catalogue, work)


def test_of_moves_on_one_condition_one_takes_effect(catalogue: str) -> None:
    async def work(_: Database, one: TagTable, other: TagTable) -> None:
        made = await asyncio.gather(
            *((one, other)[n % 2].put(["t"], "a", if_none_match=True) for n in range(8)), return_exceptions=True
        )
        ((found,),) = [each for each in made if isinstance(each, list)]
        assert sum(isinstance(each, Changed) for each in made) == 7, made
        for _number in range(3):
            version = found.row.version
            moves = await asyncio.gather(
                *((one, other)[n % 2].put(["t"], "abc"[n % 3], if_match=version) for n in range(8)),
                return_exceptions=True,
            )
            done = [each for each in moves if isinstance(each, list)]
            assert sum(isinstance(each, Changed) for each in moves) == 7, moves
            found: SetTag = done[0][0]  # type: ignore[no-redef]
            assert await one.get("t") == found.row
        for condition in (b"other", version):
            with pytest.raises(Changed):
                await one.remove("t", condition)
            with pytest.raises(Changed):
                await one.put(["none"], "a", if_match=condition)
        assert await other.remove("t", found.row.version)
        assert not await other.remove("t", None)

    _run(catalogue, work)


def test_put_beside_a_removal_leaves_no_tag_of_a_removed_store(catalogue: str) -> None:
    async def work(database: Database, one: TagTable, other: TagTable) -> None:
        for number in range(10):
            await put_store(database, f"s{number}")
            table = StoreTable(database, ACCOUNT)
            await asyncio.gather(
                table.remove(f"s{number}"),
                *((one, other)[n % 2].put([f"t{n}"], f"s{number}") for n in range(4)),
                return_exceptions=True,
            )
            assert await one.page(9, "", store=f"s{number}") == []

    _run(catalogue, work)


def test_last_set_is_the_newest_of_a_family(catalogue: str) -> None:
    async def work(_: Database, one: TagTable, __: TagTable) -> None:
        for name in ("net:2", "net:1", "nets", "other:3"):
            await one.put([name], "a")
        found = await one.last_set("net:")
        assert found is not None
        assert found.name == "net:1"
        assert await one.last_set("none:") is None

    _run(catalogue, work)


def test_tags_of_one_store_are_limited(catalogue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tags, "TAGS_OF_A_STORE", 3)

    async def work(_: Database, one: TagTable, __: TagTable) -> None:
        await one.put(["t1", "t2", "t3"], "a")
        await one.put(["t3"], "a")
        with pytest.raises(LimitExceeded):
            await one.put(["t0"], "a")
        await one.put(["t0"], "b")

    _run(catalogue, work)


def test_letters_tell_of_tags_as_they_change(catalogue: str) -> None:
    async def work(database: Database, one: TagTable, _: TagTable) -> None:
        await WebhookRecords(database).put(Webhook("h", SPACE, "ci", "https://hooks.example", (), 0.0, b"secret"))
        await one.put(["t"], "a")
        await one.remove("t", None)
        await put_store(database, "d", tags=["t"])
        await StoreTable(database, ACCOUNT).remove("d")
        await StoreTable(database, ACCOUNT).restore("d")
        letters = await LetterTable(database).page("h", dead=False, limit=99)
        told = Counter(letter.event["type"].removeprefix("protoslice.") for letter in letters)
        assert told == {"tag.set": 3, "tag.removed": 2, "store.created": 2, "store.removed": 1}

    _run(catalogue, work)
