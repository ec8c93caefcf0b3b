"""Concurrent coroutines within a window, such as calls of a storage."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import Any, Final, TypeVar

S = TypeVar("S")
T = TypeVar("T")

WINDOW: Final = 32
"""Concurrent calls at most; a remote storage answers each after some 20 ms."""
BATCH: Final = 256
"""Things of a stream that are held at a time."""


async def map_concurrently(call: Callable[[S], Awaitable[T]], things: Iterable[S]) -> list[T]:
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


async def in_turns(call: Callable[[S], Awaitable[T]], things: Iterable[S]) -> list[T]:
    """Results of `call` for each of `things`, made concurrently, in order; a turn is `BATCH` of them.

    For lists whose length a client chooses: a task for each at once would hold the event loop.
    """
    left, found = iter(things), list[T]()
    while batch := list(islice(left, BATCH)):
        found += await map_concurrently(call, batch)
    return found


async def run_concurrently(*calls: Callable[[], Awaitable[T]]) -> list[T]:
    """Results of `calls`, made concurrently, in order; the first error cancels the others."""
    return await map_concurrently(_made, calls)


async def both(one: Callable[[], Awaitable[S]], other: Callable[[], Awaitable[T]]) -> tuple[S, T]:
    """Results of two calls of different types, made concurrently; the first error cancels the other."""
    calls: tuple[Callable[[], Awaitable[Any]], ...] = (one, other)
    first, second = await run_concurrently(*calls)
    return first, second


async def _made(call: Callable[[], Awaitable[T]]) -> T:
    return await call()
