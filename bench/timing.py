"""Timings of two things that run in turns, so that other work on the machine slows both down alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

RUNS = 5


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the results; `ratio` is compared with the target."""

    what: str
    ours: str
    peer: str
    ratio: float
    target: float
    higher_is_better: bool = True

    @property
    def met(self) -> bool:
        """True when the target is reached."""
        return self.ratio >= self.target if self.higher_is_better else self.ratio <= self.target

    @property
    def sign(self) -> str:
        """The sign between `ratio` and the target: ≥ or ≤."""
        return "≥" if self.higher_is_better else "≤"


def pair(
    ours: Callable[[], object],
    peer: Callable[[], object],
    runs: int = RUNS,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[float, float]:
    """Return the medians of both, in seconds of `clock`; the first run of each does not count."""
    times: tuple[list[float], list[float]] = ([], [])
    for run in range(runs + 1):
        for work, kept in zip((ours, peer), times, strict=True):
            start = clock()
            work()
            if run:
                kept.append(clock() - start)
    return statistics.median(times[0]), statistics.median(times[1])


def seconds(value: float) -> str:
    """Format a time with a fitting unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if value * scale >= 1:
            return f"{value * scale:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"
