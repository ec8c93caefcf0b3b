"""Groups of tensors whose names begin alike, as the steps of the names tell: `encoder.layer.3.`."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final

from protoslice.facts import TensorGroup
from protoslice.formats.model import Tensors
from protoslice.formats.outputs.listing import entry_of
from protoslice.formats.selection import naming
from protoslice.stores.paging import PageBudget, ResultPage

_STEP: Final = re.compile(r"[^./:][./:]")
"""End of a step of a name: signs at its beginning end none."""
_ALONE: Final = 200
"""Bytes of JSON of a tensor or a group beside its texts, about."""


def steps_of_groups(
    found: Tensors, order: Sequence[int], sizes: Sequence[int], prefix: str, limit: int, first: int
) -> Iterator[ResultPage[TensorGroup] | None]:
    """Yields None after each group, and at the end a page of the groups below `prefix`, by name.

    `order` has the tensors by name, `sizes` the bytes of those before each place of it. A group goes as far as all of
    its names have steps in common; a group of one tensor is that tensor.
    """
    ranked = _Ranked(found, order)
    at, end = ranked.span(prefix, 0, len(order))
    at, room, groups = at + first, PageBudget(limit), list[TensorGroup]()
    begin = at - first
    while at < end:
        shared, after = ranked.group(prefix, at, end)
        tensor = entry_of(found[order[at]]) if after == at + 1 else None
        group = TensorGroup(shared, after - at, sizes[after] - sizes[at], tensor)
        if not room.takes(_ALONE + 2 * len(shared)):
            yield ResultPage(groups, str(at - begin))
            return
        groups.append(group)
        at = after
        yield None
    yield ResultPage(groups, None)


class _Ranked:
    """Names of tensors in their order."""

    def __init__(self, found: Tensors, order: Sequence[int]) -> None:
        self._called = naming(found)
        self._order = order

    def name(self, place: int) -> str:
        return self._called(self._order[place])[0]

    def span(self, prefix: str, low: int, high: int) -> tuple[int, int]:
        """Places from `low` to `high` of the names that begin with `prefix`."""
        places, size = range(low, high), len(prefix)
        start = low + bisect_left(places, prefix, key=self.name)
        return start, start + bisect_right(range(start, high), prefix, key=lambda place: self.name(place)[:size])

    def group(self, prefix: str, at: int, end: int) -> tuple[str, int]:
        """Shared beginning of the names of the group at `at`, and the place behind it."""
        name = self.name(at)
        step = _STEP.search(name, len(prefix))
        if step is None:  # the names that are just this one
            return name, at + bisect_right(range(at, end), name, key=self.name)
        _, after = self.span(name[: step.end()], at, end)
        last = self.name(after - 1)
        if last == name:
            return name, after
        shared = next(n for n, (one, other) in enumerate(zip_longest(name, last)) if one != other)
        ends = [found.end() for found in _STEP.finditer(name, len(prefix), shared)]
        return name[: ends[-1]], after
