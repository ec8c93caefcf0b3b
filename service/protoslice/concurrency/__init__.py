"""Tools for concurrent work: thread pools, coroutines, shared results, a cache, read windows, and jobs in slices."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Job: TypeAlias = Generator[None, None, T]
"""Long work: a generator that yields after each slice of the work, and returns the result at the end."""


def finish(job: Job[T]) -> T:
    """Run `job` to its end in this thread, and return its result; `Worker.finish` is the asynchronous form."""
    while True:
        try:
            next(job)
        except StopIteration as end:
            found: T = end.value
            return found


def coarse(job: Job[T], count: int) -> Job[T]:
    """Return `job` with every `count` slices joined into one; this suits jobs with short slices."""
    while True:
        for _ in range(count):
            try:
                next(job)
            except StopIteration as end:
                found: T = end.value
                return found
        yield
