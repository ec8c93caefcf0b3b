"""Windows grow with the client's speed, and shrink with the number of answers that hold memory.

Calls of a window run a few at a time, in order, and all end with the first error. Pipelines yield all items in order,
begin the next ones early, and leave nothing open.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import ExitStack, aclosing
from functools import partial

import pytest

from protoslice.concurrency.gather import both, map_concurrently
from protoslice.concurrency.pipeline import one_ahead, pipelined
from protoslice.concurrency.windows import LARGEST, LEAST, Window, Windows
from protoslice.errors import NotFound

LONG = 1 << 30


def sizes(window: Window, count: int, *, near: bool) -> list[int]:
    """Return the sizes of this many reads; each read's bytes are taken before the next read."""
    found = []
    for _ in range(count):
        with window.hold(near=near) as size:
            found.append(size)
    return found


def test_the_window_of_a_long_answer_grows_with_what_was_taken() -> None:
    found = sizes(Windows().open(LONG, ""), 20, near=True)
    assert found[:3] == [LEAST] * 3
    assert found == sorted(found)
    assert all(size <= max(LEAST, sum(found[:n]) // 2) for n, size in enumerate(found))
    assert found[-1] == LARGEST


def test_a_short_answer_is_read_at_once() -> None:
    assert sizes(Windows().open(LARGEST, ""), 1, near=True) == [LARGEST]


def test_a_distant_source_is_not_asked_for_little() -> None:
    assert sizes(Windows().open(LONG, ""), 2, near=False) == [LARGEST] * 2


def test_windows_of_answers_that_nobody_takes_share_the_memory() -> None:
    windows = Windows(room=8 << 20)
    with ExitStack() as stalled:
        held = [stalled.enter_context(windows.open(LONG, "").hold(near=False)) for _ in range(400)]
        assert held == sorted(held, reverse=True)
        assert sum(held) <= (8 << 20) + 400 * LEAST
        assert sizes(windows.open(LONG, ""), 1, near=False) == [LEAST]
    assert sizes(windows.open(LONG, ""), 1, near=False) == [LARGEST]
    assert windows.free == 8 << 20


def test_a_client_holds_at_most_as_much_as_is_left_for_others() -> None:
    """Further reads of the client get the smallest window, while another client's reads stay large."""
    windows = Windows()
    room = windows.free
    with ExitStack() as stalled:
        held = [stalled.enter_context(windows.open(LONG, "greedy").hold(near=False)) for _ in range(300)]
        assert held[-100:] == [LEAST] * 100
        assert sum(size for size in held if size > LEAST) <= room // 2
        assert sizes(windows.open(LONG, "honest"), 1, near=False)[0] >= 5 * LEAST
    assert sizes(windows.open(LONG, "greedy"), 1, near=False) == [LARGEST], "the client has given all of it back"


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


class Parts:
    """Generators that record when they begin and end."""

    def __init__(self, lengths: list[int], fails: int = -1) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []
        self._lengths = lengths
        self._fails = fails

    def make(self) -> Iterator[Callable[[], AsyncGenerator[tuple[int, int], None]]]:
        """Return one call for each part."""
        return (partial(self._part, number) for number in range(len(self._lengths)))

    async def _part(self, number: int) -> AsyncGenerator[tuple[int, int], None]:
        self.begun.append(number)
        try:
            for item in range(self._lengths[number]):
                await asyncio.sleep(0)
                yield number, item
            if number == self._fails:
                raise OSError("part")
        finally:
            self.ended.append(number)


async def taken(parts: Parts, ahead: int, most: int = 1000) -> list[tuple[int, int]]:
    """Return the first items of a pipeline, and close it."""
    found: list[tuple[int, int]] = []
    async with aclosing(pipelined(parts.make(), ahead=ahead)) as items:
        async for item in items:
            found.append(item)
            if len(found) == most:
                break
    return found


@pytest.mark.parametrize("ahead", [0, 1, 5])
async def test_all_items_come_in_order(ahead: int) -> None:
    lengths = [2, 0, 3, 1, 0, 0, 4]
    parts = Parts(lengths)
    expected = [(number, item) for number, length in enumerate(lengths) for item in range(length)]
    assert await taken(parts, ahead) == expected
    assert parts.begun == sorted(parts.ended) == [*range(len(lengths))]


@pytest.mark.parametrize("ahead", [0, 1, 3])
async def test_so_many_have_begun_beyond_the_one_that_is_read(ahead: int) -> None:
    parts = Parts([5] * 10)
    async with aclosing(pipelined(parts.make(), ahead=ahead)) as items:
        await anext(items)
        await asyncio.sleep(0)
        begun = [*parts.begun]
    assert begun == sorted(parts.ended) == [*range(ahead + 1)]


async def test_a_reader_that_leaves_closes_all_that_have_begun() -> None:
    parts = Parts([3] * 6)
    await taken(parts, 2, most=4)
    assert sorted(parts.begun) == sorted(parts.ended) == [0, 1, 2, 3]


@pytest.mark.parametrize("fails", [0, 2])
async def test_a_failure_comes_in_its_turn_and_closes_the_rest(fails: int) -> None:
    parts = Parts([1] * 5, fails)
    found: list[tuple[int, int]] = []

    async def work() -> None:
        async with aclosing(pipelined(parts.make(), ahead=1)) as items:
            async for item in items:
                found.append(item)

    with pytest.raises(OSError, match="part"):
        await work()
    assert found == [(number, 0) for number in range(fails + 1)]
    assert sorted(parts.begun) == sorted(parts.ended)


async def test_one_item_more_than_the_reader_has_is_on_its_way() -> None:
    asked: list[int] = []
    ended: list[int] = []

    async def numbers() -> AsyncGenerator[int, None]:
        try:
            for number in range(4):
                asked.append(number)
                await asyncio.sleep(0)
                yield number
        finally:
            ended.append(len(asked))

    async with aclosing(one_ahead(numbers())) as items:
        for number in range(3):
            assert await anext(items) == number
            await asyncio.sleep(0)
            assert asked == [*range(number + 2)]
    assert ended == [4], "what is on its way ends with the reader"
    assert [item async for item in one_ahead(numbers())] == [0, 1, 2, 3]


async def test_a_failure_of_the_next_item_comes_behind_the_one_before() -> None:
    async def failing() -> AsyncGenerator[int, None]:
        yield 1
        raise OSError("item")

    async with aclosing(one_ahead(failing())) as items:
        assert await anext(items) == 1
        await asyncio.sleep(0)
        with pytest.raises(OSError, match="item"):
            await anext(items)
