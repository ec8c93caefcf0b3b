"""Budget of computed elements: a model may state more of them than any machine has room or time for."""

from __future__ import annotations

from typing import Final

from protoslice import _core
from protoslice.errors import LimitExceeded
from protoslice.sources.ropes import Rope

LEAST: Final = 1 << 30
"""Bytes that may be computed for any request."""
PER_STORED: Final = 64
"""Bytes that may be computed for each stored byte that a request refers to."""


class OverBudget(LimitExceeded):
    """More elements than are computed for one request."""


def allow(computed: int, stored: int, remedy: str) -> None:
    """Raise `OverBudget` if a request would compute `computed` bytes from `stored` ones.

    `remedy` says what to ask for instead.
    """
    most = max(LEAST, PER_STORED * stored)
    if computed > most:
        raise OverBudget(
            f"Reading this would decode {stored} stored bytes into {computed} bytes, over the limit of {most} "
            f"per request: {remedy}"
        )


def stored_bytes(data: Rope) -> int:
    """Stored bytes that `data` is made of, those of each computed source once."""
    sources: dict[int, int] = {}
    plain = data.size
    if not any(isinstance(source, _core.Computed) for source in data.sources):
        return plain
    for piece in data.core.pieces():
        if isinstance(piece, tuple) and isinstance(source := data.sources[piece[0]], _core.Computed):
            plain -= piece[2]
            sources[piece[0]] = source.stored
    return plain + sum(sources.values())


def distinct_bytes(data: Rope) -> int:
    """Bytes of the first elements of `data`, after which one element repeats; all if none does."""
    if data.core.piece_count == 1:
        (piece,) = data.core.pieces()
        if isinstance(piece, tuple) and isinstance(source := data.sources[piece[0]], _core.Computed):
            return min(data.size, max(0, source.distinct - piece[1]))
    return data.size
