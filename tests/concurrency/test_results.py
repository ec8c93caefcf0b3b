"""Results are made once for all who wait, and kept within one bound."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from protoslice.concurrency.results import Key, Results
from protoslice.errors import NotFound


@pytest.fixture(autouse=True)
def _entries_without_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("protoslice.concurrency.results._ENTRY", 0)


def kept(results: Results, keys: list[Key]) -> list[Key]:
    """Return the keys that are kept, without using them."""
    return [key for key in keys if key in results._kept]


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


def test_the_newest_result_of_each_kind_of_the_owner_in_use_stays_above_the_bound() -> None:
    results = Results(max_bytes=10)
    keys: list[Key] = [(1, kind) for kind in "abc"]
    for key in keys:
        results.put(key, key, 100)
    assert (kept(results, keys), results.weight) == (keys, 300)
    results.put((1, "a", "other"), "other", 100)
    assert kept(results, [*keys, (1, "a", "other")]) == [*keys[1:], (1, "a", "other")]


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


def test_a_result_that_is_put_again_has_its_new_weight() -> None:
    results = Results(max_bytes=100)
    results.put((1, "a"), "first", 10)
    results.put((1, "a"), "second", 30)
    assert (results.find((1, "a")), results.weight, len(results)) == ("second", 30, 1)
    results.put((1, "a", 2), "third", 10)
    results.put((1, "a"), "fourth", 5)
    assert (results.find((1, "a")), results.weight) == ("fourth", 15)


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
