"""Costly results are made once for all waiting callers, and kept in an LRU cache within one bound."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from protoslice.concurrency.results import Key, LruCache, Results, SingleFlight
from protoslice.errors import InvalidInput, NotFound


@pytest.fixture
def _entries_without_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("protoslice.concurrency.results._ENTRY", 0)


def kept(results: Results, keys: list[Key]) -> list[Key]:
    """Return the keys that are kept, without using them."""
    return [key for key in keys if key in results._kept]


@pytest.mark.usefixtures("_entries_without_weight")
def test_results_of_one_kind_that_were_used_longest_ago_go_first() -> None:
    results = Results(max_bytes=30)
    keys: list[Key] = [(1, "view", number) for number in range(5)]
    for key in keys[:3]:
        results.put(key, key, 10)
    assert results.find(keys[0]) == keys[0]
    results.put(keys[3], keys[3], 10)
    assert (kept(results, keys), results.weight) == ([keys[0], keys[2], keys[3]], 30)
    results.put(keys[4], keys[4], 10)
    assert kept(results, keys) == keys[2:], "the newest counts as used until another one is made"


@pytest.mark.usefixtures("_entries_without_weight")
def test_the_newest_result_of_each_kind_of_the_owner_in_use_stays_above_the_bound() -> None:
    results = Results(max_bytes=10)
    keys: list[Key] = [(1, kind) for kind in "abc"]
    for key in keys:
        results.put(key, key, 100)
    assert (kept(results, keys), results.weight) == (keys, 300)
    results.put((1, "a", "other"), "other", 100)
    assert kept(results, [*keys, (1, "a", "other")]) == [*keys[1:], (1, "a", "other")]


@pytest.mark.usefixtures("_entries_without_weight")
def test_an_owner_that_was_used_longest_ago_goes_with_all_of_its_results() -> None:
    results = Results(max_bytes=80)
    keys: list[Key] = [(owner, kind) for owner in (1, 2, 3) for kind in "ab"]
    for key in keys:
        results.put(key, key, 10)
    assert results.find((1, "a")) is not None
    results.put((3, "c"), "c", 40)
    assert kept(results, keys) == [(1, "a"), (1, "b"), (3, "a"), (3, "b")]
    results.put((3, "c"), "c", 400)
    assert (kept(results, keys), results.weight) == ([(3, "a"), (3, "b")], 420)
    results.drop(3)
    assert (len(results), results.weight, results._used, results._newest) == (0, 0, {}, {})


@pytest.mark.usefixtures("_entries_without_weight")
def test_a_result_that_is_put_again_has_its_new_weight() -> None:
    results = Results(max_bytes=100)
    results.put((1, "a"), "first", 10)
    results.put((1, "a"), "second", 30)
    assert (results.find((1, "a")), results.weight, len(results)) == ("second", 30, 1)
    results.put((1, "a", 2), "third", 10)
    results.put((1, "a"), "fourth", 5)
    assert (results.find((1, "a")), results.weight) == ("fourth", 15)


@pytest.mark.usefixtures("_entries_without_weight")
async def test_an_error_goes_to_all_callers_and_is_not_kept() -> None:
    results = Results(max_bytes=1)
    failing = True

    async def make() -> tuple[int, int]:
        await asyncio.sleep(0)
        if failing:
            raise NotFound("not yet")
        return 7, 1

    told = await asyncio.gather(*(results.get((1, "x"), make) for _ in range(2)), return_exceptions=True)
    assert [type(each) for each in told] == [NotFound, NotFound]
    failing = False
    assert await results.get((1, "x"), make) == 7
    failing = True
    assert await results.get((1, "x"), make) == 7, "it is kept"


@pytest.mark.usefixtures("_entries_without_weight")
@pytest.mark.parametrize("cancellable", [True, False])
async def test_cancellable_work_stops_when_its_last_caller_leaves(cancellable: bool) -> None:
    results = Results(max_bytes=1)
    go_on, made = asyncio.Event(), list[str]()

    async def make() -> tuple[int, int]:
        try:
            await go_on.wait()
        except asyncio.CancelledError:
            made.append("cancelled")
            raise
        made.append("done")
        return 7, 1

    asking = [asyncio.create_task(results.get((1, "x"), make, cancellable=cancellable)) for _ in range(2)]
    await asyncio.sleep(0)
    asking[0].cancel()
    await asyncio.gather(asking[0], return_exceptions=True)
    assert made == []
    asking[1].cancel()
    await asyncio.gather(asking[1], return_exceptions=True)
    go_on.set()
    await results._making.idle()
    await asyncio.sleep(0)
    assert (made, results.find((1, "x"))) == ((["cancelled"], None) if cancellable else (["done"], 7))


@pytest.mark.usefixtures("_entries_without_weight")
async def test_work_that_runs_alone_runs_one_at_a_time() -> None:
    under_way, most, made = 0, 0, list[int]()
    results = Results(max_bytes=10)

    async def ask(row: int) -> Any:
        async def make() -> tuple[Any, int]:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            for _ in range(3):
                await asyncio.sleep(0)
            made.append(row)
            under_way -= 1
            return object(), 1

        return await results.get((row, "graphs"), make, alone=True)

    first = await asyncio.gather(*(ask(row) for row in (1, 2, 3, 1, 2)))
    assert (most, made) == (1, [1, 2, 3])
    assert await ask(2) is first[1] is first[4]


def test_what_was_not_used_for_longest_goes_first() -> None:
    recent: LruCache[str, int] = LruCache(most=2, room=100)
    recent.put("a", 1, 10)
    recent.put("b", 2, 10)
    assert recent.get("a") == 1
    recent.put("c", 3, 10)
    assert [recent.get(key) for key in "abc"] == [1, None, 3]
    recent.put("a", 4, 95)
    assert [recent.get(key) for key in "ac"] == [4, None], "they would weigh too much together"
    recent.put("d", 5, 101)
    assert [recent.get(key) for key in "ad"] == [None, 5], "the newest stays, however heavy it is"
    recent.put("f", 7, 1)
    assert [recent.get(key) for key in "df"] == [None, 7]
    recent.drop("f")
    assert (len(recent), recent.weight) == (0, 0)
    recent.put("e", 6, 100)
    assert recent.get("e") == 6, "all room is there again"


async def test_two_who_ask_at_once_get_the_same() -> None:
    once: SingleFlight[str, object] = SingleFlight()
    begun, go_on = 0, asyncio.Event()

    async def make() -> object:
        nonlocal begun
        begun += 1
        await go_on.wait()
        return object()

    asking = [asyncio.create_task(once.get("x", make)) for _ in range(3)]
    await asyncio.sleep(0)
    asking.pop().cancel()
    await asyncio.sleep(0)
    go_on.set()
    first, second = await asyncio.gather(*asking)
    assert (first is second, begun) == (True, 1)
    assert await once.get("x", make) is not first


async def test_a_failure_that_nobody_waits_for_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    once: SingleFlight[str, int] = SingleFlight()
    go_on = asyncio.Event()

    async def make() -> int:
        await go_on.wait()
        raise InvalidInput("too late")

    asking = asyncio.create_task(once.get("x", make))
    await asyncio.sleep(0)
    asking.cancel()
    go_on.set()
    await once.idle()
    assert "never retrieved" not in caplog.text
