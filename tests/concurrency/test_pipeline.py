"""Pipelines give all items in order, begin what comes next, and leave nothing open."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from functools import partial

import pytest

from protoslice.concurrency.pipeline import one_ahead, pipelined


class Parts:
    """Generators that note when they begin and end."""

    def __init__(self, lengths: list[int], fails: int = -1) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []
        self._lengths = lengths
        self._fails = fails

    def make(self) -> Iterator[Callable[[], AsyncGenerator[tuple[int, int], None]]]:
        """One call for each part."""
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
    """The first items of a pipeline, which is closed then."""
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
