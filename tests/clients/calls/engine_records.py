"""Records that are stored for engines, and that engines read."""

from __future__ import annotations

from typing import Final

COUNT: Final = 20_000


def record(number: int) -> bytes:
    """Return record `number` of the stream."""
    return b"%d " % number * (1 + number % 7)
