"""Pipelines, in which the next item or the next generators begin while the current item is in use."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from itertools import islice
from typing import Generic, TypeVar

T = TypeVar("T")


class _Begun(Generic[T]):
    """A generator whose first item is already being computed."""

    def __init__(self, generator: AsyncGenerator[T, None]) -> None:
        self.generator = generator
        self._first = asyncio.ensure_future(self._next())

    async def items(self) -> AsyncGenerator[T, None]:
        """Yield all items in order."""
        for first in await self._first:
            yield first
        async for item in self.generator:
            yield item

    async def close(self) -> None:
        """Stop the generator in any state."""
        self._first.cancel()
        await asyncio.gather(self._first, return_exceptions=True)
        await self.generator.aclose()

    async def _next(self) -> list[T]:
        """Return the first item in a list, or an empty list if the generator has no items."""
        async for item in self.generator:
            return [item]
        return []


async def pipelined(begin: Iterable[Callable[[], AsyncGenerator[T, None]]], *, ahead: int) -> AsyncGenerator[T, None]:
    """Yield the items of all generators in order; `begin` contains functions that make the generators.

    While one generator is read, the first items of the next `ahead` generators are already being computed.
    """
    waiting = iter(begin)
    begun: deque[_Begun[T]] = deque()
    try:
        while True:
            for make in islice(waiting, ahead + 1 - len(begun)):
                begun.append(_Begun(make()))
                await asyncio.sleep(0)  # making a generator may take time, so other tasks may run in between
            if not begun:
                return
            async for item in begun[0].items():
                yield item
            await begun.popleft().close()
    finally:
        for each in begun:
            await each.close()


async def one_ahead(items: AsyncIterator[T]) -> AsyncGenerator[T, None]:
    """Yield all items; the next item is requested while the current item is in use."""
    coming = asyncio.ensure_future(anext(items))
    try:
        while True:
            try:
                item = await coming
            except StopAsyncIteration:
                return
            coming = asyncio.ensure_future(anext(items))
            yield item
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)
