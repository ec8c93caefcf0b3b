"""Pipelines: while one item is read, the next item, or the next generators, have already begun."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from itertools import islice
from typing import Generic, TypeVar

T = TypeVar("T")


class _Begun(Generic[T]):
    """Generator whose first item is already being made."""

    def __init__(self, generator: AsyncGenerator[T, None]) -> None:
        self.generator = generator
        self._first = asyncio.ensure_future(self._next())

    async def items(self) -> AsyncGenerator[T, None]:
        """Yield all items, in order."""
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
        """Return the first item; nothing where the generator has none."""
        async for item in self.generator:
            return [item]
        return []


async def pipelined(begin: Iterable[Callable[[], AsyncGenerator[T, None]]], *, ahead: int) -> AsyncGenerator[T, None]:
    """Yield the items of the generators that `begin` makes, in order; up to `ahead` further ones have begun."""
    waiting = iter(begin)
    begun: deque[_Begun[T]] = deque()
    try:
        while True:
            for make in islice(waiting, ahead + 1 - len(begun)):
                begun.append(_Begun(make()))
                await asyncio.sleep(0)  # making one may be work: others get their turn between two
            if not begun:
                return
            async for item in begun[0].items():
                yield item
            await begun.popleft().close()
    finally:
        for each in begun:
            await each.close()


async def one_ahead(items: AsyncIterator[T]) -> AsyncGenerator[T, None]:
    """Yield all of `items`; each is requested while its predecessor is in use."""
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
