"""Graphs of several stores asked for at once: one is found at a time, and kept."""

from __future__ import annotations

import asyncio
from typing import Any

from protoslice.stores.reading.graphs import CachedGraphs


def test_graphs_of_one_store_are_found_at_a_time_and_kept() -> None:
    under_way, most, made = 0, 0, list[int]()

    async def ask(cached: CachedGraphs, row: int) -> Any:
        async def make() -> tuple[Any, int]:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            for _ in range(3):
                await asyncio.sleep(0)
            made.append(row)
            under_way -= 1
            return object(), 1

        return await cached.get(row, make)

    async def work() -> None:
        cached = CachedGraphs()
        first = await asyncio.gather(*(ask(cached, row) for row in (1, 2, 3, 1, 2)))
        assert (most, made) == (1, [1, 2, 3])
        assert await ask(cached, 2) is first[1] is first[4]

    asyncio.run(work())
