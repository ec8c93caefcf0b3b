"""Pages of listings: bounded in items and in bytes of JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from protoslice.errors import InvalidInput

__all__ = ["PAGE_BYTES", "PageRoom", "ResultPage", "place_of"]

T = TypeVar("T")

PAGE_BYTES: Final = 1 << 20
"""About as many bytes of JSON as the items of one page take."""


@dataclass(frozen=True, slots=True)
class ResultPage(Generic[T]):
    """Some of many things, and the cursor that goes on behind them; none at the end."""

    items: Sequence[T]
    next: str | None = None


class PageRoom:
    """Room for the items of one page: a number of them, and of bytes. The first item always has room."""

    def __init__(self, items: int, size: int = PAGE_BYTES) -> None:
        self._items = items
        self._size = size
        self._empty = True

    @property
    def left(self) -> int:
        """How many items more, as far as bytes allow."""
        return self._items if self._size > 0 or self._empty else 0

    def takes(self, weight: int) -> bool:
        """Whether an item of about `weight` bytes has room; it is counted then."""
        if self._items <= 0 or (weight > self._size and not self._empty):
            self._items = 0
            return False
        self._items -= 1
        self._size -= weight
        self._empty = False
        return True


def place_of(cursor: str | None) -> int:
    """The number of the thing a page begins with, where cursors count."""
    if cursor is None:
        return 0
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 18:
        raise InvalidInput("this cursor was not given by this service")
    return int(cursor)
