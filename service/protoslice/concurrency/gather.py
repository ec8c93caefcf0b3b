"""Concurrent coroutines, such as calls of a storage, with a limit on how many run at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import Any, Final, TypeVar

S = TypeVar("S")
T = TypeVar("T")

WINDOW: Final = 32
"""Default limit of concurrent calls; a remote storage answers a call after about 20 ms."""


async def map_concurrently(call: Callable[[S], Awaitable[T]], things: Iterable[S], *, window: int = WINDOW) -> list[T]:
    """Return the results of `call` for each of `things`, in order; at most `window` calls run at a time.

    The first error cancels the other calls. `things` may be very long, since only running calls have a task.
    """
    left, found = enumerate(things), dict[int, T]()

    async def work(number: int, thing: S) -> None:
        found[number] = await call(thing)
        for number, thing in left:
            found[number] = await call(thing)

    tasks = [asyncio.create_task(work(*first)) for first in islice(left, window)]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
    return [found[number] for number in range(len(found))]


async def both(one: Callable[[], Awaitable[S]], other: Callable[[], Awaitable[T]]) -> tuple[S, T]:
    """Return the results of two concurrent calls; if one raises an error, the other is cancelled."""
    calls: tuple[Callable[[], Awaitable[Any]], ...] = (one, other)
    first, second = await map_concurrently(lambda call: call(), calls)
    return first, second
