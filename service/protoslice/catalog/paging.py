"""Pages of lists, limited both in items and in bytes of JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from protoslice.errors import InvalidInput

T = TypeVar("T")

PAGE_BYTES: Final = 1 << 20
"""Approximate limit in bytes for the JSON of a page."""
MAX_PAGE_ITEMS: Final = 1000
ITEM_BYTES: Final = 200
"""Approximate number of bytes of an item's JSON, without its texts and lists."""


@dataclass(frozen=True, slots=True)
class ResultPage(Generic[T]):
    """The items of one page, and the cursor of the next page, which is None on the last page."""

    items: Sequence[T]
    next: str | None = None


def item_bytes(*parts: str | Sequence[int | None] | None) -> int:
    """Return the approximate size in bytes of an item's JSON; `parts` are the item's texts and lists of numbers."""
    return ITEM_BYTES + sum([len(part) if isinstance(part, str) else 6 * len(part) for part in parts if part])


class PageBudget:
    """The number of items and bytes that still fit on a page; the first item always fits."""

    def __init__(self, items: int, size: int = PAGE_BYTES) -> None:
        self._items = items
        self._size = size
        self._empty = True

    @property
    def left(self) -> int:
        """The largest number of items that may follow; 0 if the bytes are used up."""
        return self._items if self._size > 0 or self._empty else 0

    def takes(self, weight: int) -> bool:
        """Count an item of about `weight` bytes and return True; if it does not fit, end the page and return False."""
        if self._items <= 0 or (weight > self._size and not self._empty):
            self._items = 0
            return False
        self._items -= 1
        self._size -= weight
        self._empty = False
        return True


def first_item(cursor: str | None) -> int:
    """Return the number of a page's first item, which the cursor contains; raise `InvalidInput` if there is none."""
    if cursor is None:
        return 0
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 18:
        raise InvalidInput("the cursor is not one that this service returned")
    return int(cursor)
