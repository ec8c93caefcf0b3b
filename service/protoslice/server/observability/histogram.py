"""Histograms in plain numbers: the client library of Prometheus takes a lock for each observation."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0)
"""Upper bounds in seconds."""


class PlainHistogram:
    """Observed times, counted by the first bound that is not below; one thread at a time may observe."""

    __slots__ = ("_counts", "seconds")

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0
        """Sum of all times."""

    def observe(self, seconds: float) -> None:
        """Count one time."""
        self._counts[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds

    @property
    def count(self) -> int:
        """Number of times."""
        return sum(self._counts)

    def cumulated(self) -> list[tuple[str, float]]:
        """Number of times up to each bound, as Prometheus has them."""
        total, found = 0, []
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), self._counts, strict=True):
            total += count
            found.append((bound, float(total)))
        return found
