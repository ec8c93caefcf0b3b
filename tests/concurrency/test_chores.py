"""Background work: loops run until their context ends, and start again after a failure."""

from __future__ import annotations

import asyncio

import pytest

from protoslice.concurrency import chores
from protoslice.concurrency.chores import background


async def test_background_runs_each_loop_until_its_context_ends() -> None:
    state = dict[str, str]()

    async def loop(name: str) -> None:
        state[name] = "running"
        try:
            await asyncio.Event().wait()
        finally:
            state[name] = "ended"

    async with background({"one": lambda: loop("one"), "two": lambda: loop("two")}):
        await asyncio.sleep(0)
        assert state == {"one": "running", "two": "running"}
    assert state == {"one": "ended", "two": "ended"}


async def test_background_starts_a_failed_loop_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chores, "RESTART_SECONDS", 0)
    begun, again = list[int](), asyncio.Event()

    async def loop() -> None:
        begun.append(1)
        if len(begun) < 3:
            raise ValueError("a fault")
        again.set()

    async with background({"one": loop}):
        await again.wait()
    assert len(begun) == 3
