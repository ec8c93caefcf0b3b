"""Rhythm of reads: where a program that jumps through an object in like steps reads next."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import Final

_JUMP: Final = 64 << 10
"""Bytes from one read to the next from which on the next is a jump."""
_CLOSE: Final = 512
"""Bytes by which equal steps differ at most: names of parts have different lengths."""
_PERIOD: Final = 8
_MOST: Final = 64
"""Reads that are foreseen at a time, at most."""


class Rhythm:
    """Jumps between the reads of one object; steps that repeat foretell the next ones.

    Up to eight lengths may repeat in turn. Nearly all parts of a model have the sizes of earlier ones, so that reads of
    a distant storage can be made side by side.
    """

    def __init__(self) -> None:
        self._jumps: deque[int] = deque(maxlen=2 * _PERIOD + 1)
        self._last = 0
        self._count = 1

    def note(self, offset: int) -> None:
        """Take a read at `offset` into account."""
        if not self._jumps or abs(offset - self._last) >= _JUMP:
            self._jumps.append(offset)
        self._last = offset

    def foreseen(self, most: int) -> list[int]:
        """Offsets of the reads after the last one, at most `most`; empty without a rhythm.

        Each call foresees twice as many as the one before.
        """
        steps = [after - before for before, after in pairwise(self._jumps)]
        period = next((n for n in range(1, len(steps) // 2 + 1) if _alike(steps[-n:], steps[-2 * n : -n])), 0)
        if not period:
            self._count = 1
            return []
        self._count = min(2 * self._count, _MOST)
        found, at = [], self._jumps[-1]
        for number in range(min(self._count, most)):
            at += steps[number % period - period]
            found.append(at)
        return found


def _alike(some: list[int], others: list[int]) -> bool:
    return all(abs(one - other) <= _CLOSE for one, other in zip(some, others, strict=True))
