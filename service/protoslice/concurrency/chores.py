"""The background work of a service: loops that are restarted after errors, and steps that all run despite errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

_log = logging.getLogger(__name__)

RESTART_SECONDS: Final = 10.0
"""Seconds before a failed loop is started again."""


async def keep_running(name: str, loop: Callable[[], Awaitable[None]]) -> None:
    """Run `loop` until it returns; if it raises an exception, log it and start the loop again after a pause."""
    while True:
        try:
            return await loop()
        except Exception:
            _log.exception("%s failed unexpectedly and starts again in %d seconds", name, RESTART_SECONDS)
        await asyncio.sleep(RESTART_SECONDS)


@asynccontextmanager
async def background(loops: Mapping[str, Callable[[], Awaitable[None]]]) -> AsyncIterator[None]:
    """Keep the loops running until the context ends; the keys of `loops` are names for log messages."""
    tasks = [asyncio.create_task(keep_running(name, loop)) for name, loop in loops.items()]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def run_all(steps: Iterable[Callable[[], Awaitable[Any]]]) -> None:
    """Run all steps in order, even if one fails; at the end, raise the first failure, and log the others."""
    failures = list[Exception]()
    for step in steps:
        try:
            await step()
        except Exception as failure:
            failures.append(failure)
    for other in failures[1:]:
        _log.warning("another step of the same cleanup also failed: %s", other)
    if failures:
        raise failures[0]
