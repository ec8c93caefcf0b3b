"""Pools of daemon threads: every future has an end."""

from __future__ import annotations

import asyncio
import threading

import pytest

from protoslice.client import AsyncClient
from protoslice.client.threads import DaemonPool
from protoslice.errors import InvalidInput

LONG = 10


def test_work_given_after_the_end_is_refused() -> None:
    with DaemonPool(2, "a-pool") as pool:
        assert pool.submit(lambda: 7).result(LONG) == 7
    with pytest.raises(InvalidInput, match="a-pool is closed"):
        pool.submit(lambda: 7)
    pool.close()  # once more is harmless


def test_work_dropped_at_the_end_is_told() -> None:
    begun, go_on, ran = threading.Event(), threading.Event(), list[int]()
    with DaemonPool(1, "a-pool") as pool:
        first = pool.submit(lambda: begun.set() or go_on.wait(LONG))  # type: ignore[func-returns-value]
        dropped, cancelled = pool.submit(lambda: ran.append(1)), pool.submit(lambda: ran.append(2))
        assert begun.wait(LONG)
        assert cancelled.cancel()
        dropped.add_done_callback(lambda _: go_on.set())
    with pytest.raises(InvalidInput, match="a-pool is closed"):
        dropped.result(LONG)
    assert first.result(LONG)
    assert ran == []


async def test_a_closed_client_says_so() -> None:
    client = AsyncClient("http://127.0.0.1:9")
    await client.close()
    with pytest.raises(InvalidInput, match="closed"):
        await asyncio.wait_for(client.store("model:1"), LONG)
