"""Pages of listings, bounded in items and in bytes of JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from protoslice.errors import InvalidInput

T = TypeVar("T")

PAGE_BYTES: Final = 1 << 20
"""Bytes of JSON per page, about."""
MAX_PAGE_ITEMS: Final = 1000
ITEM_BYTES: Final = 200
"""Bytes of JSON of an item without its texts and lists, about."""


@dataclass(frozen=True, slots=True)
class ResultPage(Generic[T]):
    """Items of one page, and the cursor of the next page; None at the end."""

    items: Sequence[T]
    next: str | None = None


def item_bytes(*parts: str | Sequence[int | None] | None) -> int:
    """Return the approximate size of an item's JSON in bytes; `parts` are its texts and lists of numbers."""
    return ITEM_BYTES + sum([len(part) if isinstance(part, str) else 6 * len(part) for part in parts if part])


class PageBudget:
    """Room left on a page, in items and bytes. The first item always fits."""

    def __init__(self, items: int, size: int = PAGE_BYTES) -> None:
        self._items = items
        self._size = size
        self._empty = True

    @property
    def left(self) -> int:
        """Number of items that may follow; 0 when the bytes are used up."""
        return self._items if self._size > 0 or self._empty else 0

    def takes(self, weight: int) -> bool:
        """Return True, and count the item, if an item of about `weight` bytes fits; False ends the page."""
        if self._items <= 0 or (weight > self._size and not self._empty):
            self._items = 0
            return False
        self._items -= 1
        self._size -= weight
        self._empty = False
        return True


def first_item(cursor: str | None) -> int:
    """Return the number of the page's first item, from a numeric cursor; raise `InvalidInput` for any other."""
    if cursor is None:
        return 0
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 18:
        raise InvalidInput("this cursor was not given by this service")
    return int(cursor)
