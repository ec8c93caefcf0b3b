"""Calls of a window: so many at a time, in order, and all of them end with the first error."""

from __future__ import annotations

import asyncio

import pytest

from protoslice.concurrency.gather import both, map_concurrently
from protoslice.errors import NotFound


async def test_results_are_in_order_and_no_more_calls_are_under_way_than_the_window() -> None:
    under_way, most, tasks, others = 0, 0, 0, len(asyncio.all_tasks())

    async def call(number: int) -> int:
        nonlocal under_way, most, tasks
        under_way += 1
        most, tasks = max(most, under_way), max(tasks, len(asyncio.all_tasks()) - others)
        for _ in range(number % 3):
            await asyncio.sleep(0)
        under_way -= 1
        return number

    assert await map_concurrently(call, range(1000), window=4) == [*range(1000)]
    assert (most, tasks) == (4, 4), "a task for each call under way"
    assert await map_concurrently(call, []) == []


async def test_the_first_error_cancels_the_other_calls_and_begins_no_more() -> None:
    begun, cancelled = list[int](), list[int]()

    async def call(number: int) -> None:
        begun.append(number)
        if number == 2:
            raise NotFound("none")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(number)
            raise

    with pytest.raises(NotFound):
        await map_concurrently(call, range(100), window=3)
    assert (begun, sorted(cancelled)) == ([0, 1, 2], [0, 1])


async def test_two_calls_run_at_the_same_time() -> None:
    met = asyncio.Barrier(2)

    async def text() -> str:
        await met.wait()
        return "a"

    async def number() -> int:
        await met.wait()
        return 1

    assert await both(text, number) == ("a", 1)
