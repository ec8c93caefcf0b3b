"""Tags: moved on condition, pointed at stores that exist, with another version after each change."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest
from tests.support.rows import ACCOUNT, SPACE, put_store

from protoslice.catalog import tags
from protoslice.catalog.spaces import Usage
from protoslice.catalog.stores import StoreTable
from protoslice.catalog.syntax import check_tag
from protoslice.catalog.tags import TagTable
from protoslice.catalog.webhooks import DeliveryTable, Webhook, WebhookTable
from protoslice.database import Database
from protoslice.errors import Changed, InvalidInput, LimitExceeded, NotFound


@pytest.fixture
async def one(database: Database) -> TagTable:
    """Return the tags of a space of three stores."""
    for store in ("a", "b", "c"):
        await put_store(database, store)
    return TagTable(database, ACCOUNT)


@pytest.fixture
def other(replica: Database) -> TagTable:
    """Return the tags as another replica sees them."""
    return TagTable(replica, ACCOUNT)


async def test_put_points_tags_at_a_store_that_exists(one: TagTable, other: TagTable, database: Database) -> None:
    (first, is_new), (second, _) = await one.put(["t2", "t1"], "a")
    assert (first.name, first.store, is_new, second.name) == ("t1", "a", True, "t2")
    assert await other.get("t1") == first
    ((moved, is_new),) = await other.put(["t1"], "b")
    assert (moved.store, is_new) == ("b", False)
    assert await one.page(9, store="a") == ([second], None)
    assert await one.page(1) == ([moved], "t1")
    assert await one.page(1, "t1") == ([second], None)
    await one.put(["T1"], "a")
    assert [(await one.get(name)).store for name in ("t1", "T1")] == ["b", "a"], "tags differ by case"
    await StoreTable(database, ACCOUNT).remove("c")
    for gone in ("c", "none"):
        with pytest.raises(NotFound):
            await one.put(["t1"], gone)
    with pytest.raises(NotFound):
        await TagTable(database, Usage("elsewhere")).get("t1")


async def test_tag_has_another_entity_tag_whenever_it_is_set(one: TagTable) -> None:
    """Also when it comes to point where it did before: a condition on the first state fails."""
    etags = [(await one.put(["t"], store))[0][0].etag for store in ("a", "a", "b", "a")]
    await one.remove("t")
    etags.append((await one.put(["t"], "a"))[0][0].etag)
    assert len(set(etags)) == 5
    for condition in (etags[0], "no entity tag of ours"):
        with pytest.raises(Changed, match="changed"):
            await one.put(["t"], "b", if_match=condition)


async def test_of_moves_on_one_condition_one_takes_effect(one: TagTable, other: TagTable) -> None:
    made = await asyncio.gather(
        *((one, other)[n % 2].put(["t"], "a", if_none_match=True) for n in range(8)), return_exceptions=True
    )
    (((found, _),),) = [each for each in made if isinstance(each, list)]
    assert sum(isinstance(each, Changed) for each in made) == 7, made
    for _number in range(3):
        etag = found.etag
        moves = await asyncio.gather(
            *((one, other)[n % 2].put(["t"], "abc"[n % 3], if_match=etag) for n in range(8)), return_exceptions=True
        )
        (((found, _),),) = [each for each in moves if isinstance(each, list)]
        assert sum(isinstance(each, Changed) for each in moves) == 7, moves
        assert await one.get("t") == found
    for condition in ("other", etag):
        with pytest.raises(Changed):
            await one.remove("t", if_match=condition)
        with pytest.raises(Changed):
            await one.put(["none"], "a", if_match=condition)
    await other.remove("t", if_match=found.etag)
    with pytest.raises(NotFound, match="'t'"):
        await other.remove("t")


async def test_put_beside_a_removal_leaves_no_tag_of_a_removed_store(
    database: Database, one: TagTable, other: TagTable
) -> None:
    for number in range(10):
        await put_store(database, f"s{number}")
        table = StoreTable(database, ACCOUNT)
        await asyncio.gather(
            table.remove(f"s{number}"),
            *((one, other)[n % 2].put([f"t{n}"], f"s{number}") for n in range(4)),
            return_exceptions=True,
        )
        assert await one.page(9, store=f"s{number}") == ([], None)


async def test_last_set_is_the_newest_of_a_family(one: TagTable) -> None:
    for name in ("net:2", "net:1", "nets", "other:3"):
        await one.put([name], "a")
    found = await one.last_set("net:")
    assert found is not None
    assert found.name == "net:1"
    assert await one.last_set("none:") is None


async def test_tags_of_one_store_are_limited(one: TagTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tags, "TAGS_OF_A_STORE", 3)
    await one.put(["t1", "t2", "t3"], "a")
    await one.put(["t3"], "a")
    with pytest.raises(LimitExceeded, match="already has 3 tags"):
        await one.put(["t0"], "a")
    await one.put(["t0"], "b")


async def test_events_of_tags_are_written_as_they_change(database: Database, one: TagTable) -> None:
    await WebhookTable(database).put(Webhook("h", SPACE, "ci", "https://hooks.example", (), 0.0, b"secret"))
    await one.put(["t"], "a")
    await one.remove("t")
    await put_store(database, "d", tags=["t"])
    await StoreTable(database, ACCOUNT).remove("d")
    await StoreTable(database, ACCOUNT).restore("d")
    deliveries = await DeliveryTable(database).page("h", dead=False, limit=99)
    told = Counter(json.loads(each.event)["type"].removeprefix("protoslice.") for each in deliveries)
    assert told == {"tag.set": 3, "tag.removed": 2, "store.created": 2, "store.removed": 1}


@pytest.mark.parametrize("name", ["", "a b", "é", "a/b", ".", "..", "-a", "a" * 129, "0123456789ab", "f" * 64, "a\n"])
def test_check_tag_refuses_other_names(name: str) -> None:
    with pytest.raises(InvalidInput):
        check_tag(name)


@pytest.mark.parametrize(
    "name", ["a", "9", "a:b@c~d+e-f._", "A" * 128, "resnet50:3", "0123456789a", "CON", "a..b", "con.txt"]
)
def test_check_tag_accepts_names(name: str) -> None:
    assert check_tag(name) == name


async def test_other_names_are_neither_read_nor_set(one: TagTable) -> None:
    for refused in (one.get("a/b"), one.put(["t", "a/b"], "a"), one.remove("a/b"), one.page(1, "a/b")):
        with pytest.raises(InvalidInput):
            await refused
    assert await one.page(9) == ([], None)
