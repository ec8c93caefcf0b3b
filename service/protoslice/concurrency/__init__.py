"""Thread pools, concurrent coroutines, single flight, a weighted LRU cache, read windows, and jobs in slices."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Job: TypeAlias = Generator[None, None, T]
"""Long work: a generator that yields after each slice of it, and returns the result."""


def finish(job: Job[T]) -> T:
    """Run `job` to its end, in this thread, and return its result; `Worker.finish` runs it slice by slice."""
    while True:
        try:
            next(job)
        except StopIteration as end:
            found: T = end.value
            return found


def coarse(job: Job[T], count: int) -> Job[T]:
    """Return `job` with every `count` slices joined to one, for slices that are short."""
    while True:
        for _ in range(count):
            try:
                next(job)
            except StopIteration as end:
                found: T = end.value
                return found
        yield
