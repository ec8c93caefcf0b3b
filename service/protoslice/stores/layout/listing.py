"""Concurrent calls of a storage within a window."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

__all__ = ["all_of", "side_by_side"]

S = TypeVar("S")
T = TypeVar("T")

WINDOW: Final = 32
"""Concurrent calls at most; a remote storage answers each after some 20 ms."""


async def side_by_side(call: Callable[[S], Awaitable[T]], things: Iterable[S]) -> list[T]:
    """Results of `call` for each of `things`, made concurrently, in order.

    The first error cancels the others.
    """
    window = asyncio.Semaphore(WINDOW)

    async def one(thing: S) -> T:
        async with window:
            return await call(thing)

    tasks = [asyncio.create_task(one(thing)) for thing in things]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def all_of(*calls: Callable[[], Awaitable[T]]) -> list[T]:
    """Results of `calls`, made concurrently, in order; the first error cancels the others."""
    return await side_by_side(_made, calls)


async def _made(call: Callable[[], Awaitable[T]]) -> T:
    return await call()
