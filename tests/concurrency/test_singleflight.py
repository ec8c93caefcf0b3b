"""Single flight, by which costly results are made once for all callers; an LRU cache within bounds."""

from __future__ import annotations

import asyncio

import pytest

from protoslice.concurrency.results import LruCache, SingleFlight
from protoslice.errors import InvalidInput


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
