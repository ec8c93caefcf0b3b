"""Names of a store's tensors: their order, their tree, and searches among them with bounded work."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import zip_longest
from math import prod
from typing import Final, TypeVar

from protoslice import _core
from protoslice.catalog.paging import PageBudget, ResultPage, item_bytes
from protoslice.concurrency import Job
from protoslice.errors import InvalidInput
from protoslice.facts import Kind, TensorBranch, TensorEntry
from protoslice.serving.opened import OpenStore
from protoslice.tensors.listing import Tensors, entry_of, natural
from protoslice.tensors.model import Tensor

_MOST_WORDS: Final = 16
_WORK: Final = 32 << 20
"""Largest number of bytes of names that are examined for one page.

A costly regular expression gets a fraction of this limit.
"""
_EACH: Final = 32
"""The number of bytes that each name counts for, in addition to its length."""
_SEARCHED_AT_ONCE: Final = 256
_SLICE: Final = 64 << 10
"""The number of bytes of names per slice of work."""


class NameSearch:
    """A filter for names that begin with `prefix`, contain all words of `search` in any case, and match `regex`.

    A condition that is None matches all names. Raise `InvalidInput` for too many words, or for an invalid or too large
    expression.
    """

    def __init__(self, search: str | None = None, regex: str | None = None, prefix: str | None = None) -> None:
        self._words = (search or "").casefold().split()
        if len(self._words) > _MOST_WORDS:
            raise InvalidInput(f"Too many words in the search: at most {_MOST_WORDS}")
        self._prefix = prefix or ""
        self._pattern = _core.Pattern(regex) if regex else None
        self.is_any = not self._words and not self._prefix and self._pattern is None

    @property
    def work(self) -> int:
        """The bytes of names that may be examined for one page."""
        return _WORK // (1 if self._pattern is None else self._pattern.weight)

    def fits(self, names: Sequence[str]) -> Sequence[bool]:
        """Return True for each name that matches, and False for each other name."""
        found = [self._has_words(name) for name in names]
        if self._pattern is None or not any(found):
            return found
        encoded = [name.encode("utf-8", "surrogatepass") for name, fits in zip(names, found, strict=True) if fits]
        sought = iter(self._pattern.are_in(encoded))
        return [fits and next(sought) for fits in found]

    def _has_words(self, name: str) -> bool:
        if not name.startswith(self._prefix):
            return False
        folded = name.casefold() if self._words else ""
        return all(word in folded for word in self._words)


def page_job(
    found: Tensors,
    order: Sequence[int],
    first: int,
    search: NameSearch,
    fits: Callable[[Tensor], bool],
    room: PageBudget,
) -> Job[ResultPage[TensorEntry]]:
    """Return a page of the matching tensors of `order`.

    The page begins at place `first`. Each page examines a limited number of names, so an empty page may have a next
    page.
    """
    entries, left = list[TensorEntry](), search.work
    for at, names in _slices(found, order, first):
        for place, sought in enumerate(search.fits(names), at):
            tensor = found[order[place]] if sought else None
            if tensor is not None and fits(tensor):
                entry = entry_of(tensor)
                if not room.takes(entry_bytes(entry)):
                    return ResultPage(entries, str(place))
                entries.append(entry)
        left -= sum(map(len, names)) + _EACH * len(names)
        after = at + len(names)
        if left <= 0 and after < len(order):
            return ResultPage(entries, str(after))
        yield
    return ResultPage(entries, None)


def entry_bytes(entry: TensorEntry) -> int:
    """Return the approximate size of an entry's JSON in bytes."""
    return item_bytes(entry.name, entry.address, entry.file, entry.problem, entry.shape)


def _slices(found: Tensors, order: Sequence[int], first: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the names of `order` from place `first` on, in groups, each with the place of its first name."""
    called, names, size = found.key, list[str](), 0
    for place in range(first, len(order)):
        names.append(called(order[place])[0])
        size += len(names[-1])
        if len(names) == _SEARCHED_AT_ONCE or size >= _SLICE:
            yield place + 1 - len(names), names
            names, size = [], 0
    if names:
        yield len(order) - len(names), names


_AT_ONCE: Final = 256
_MOST: Final = (1 << 63) - 1
"""The upper bound of sizes and numbers of elements. It is needed because a model may claim any size."""
_COLUMNS: Final = ("name", "dtype", "shape", "size")
_FACTS_WEIGHT: Final = 40
"""The approximate memory of a tensor's facts in bytes; the names of types are shared."""
_STEP: Final = re.compile(r"[^./:][./:]")
"""The end of a step, which is a part of a name up to a separator. Separators at the name's beginning end no step."""
_MOST_CHILDREN: Final = 256
"""Largest number of children of a tree node. Beyond it, small neighbouring children are combined into ranges."""
_RANGES: Final = 96
"""A range of small neighbouring children holds about one part in `_RANGES` of their parent's bytes."""
_DEPTH: Final = 24

K = TypeVar("K", bound=str)
Shares = Mapping[K, tuple[Sequence[int], Sequence[int]]]
"""For each data type or kind: the places of its tensors, and the running totals of their bytes."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Running totals over the tensors in the natural order of their names."""

    order: Sequence[int]
    """The numbers of the tensors, in natural order."""
    sizes: Sequence[int]
    """For each place, the bytes of all tensors before it; the last number is the total."""
    elements: Sequence[int]
    """The same totals for elements."""
    parameters: Sequence[int]
    """The same totals for elements of weights."""
    dtypes: Shares[str]
    kinds: Shares[Kind]

    @property
    def weight(self) -> int:
        """The memory in bytes, without `order`."""
        shares = len(self.dtypes) + len(self.kinds)
        return 8 * (3 * len(self.sizes) + 4 * len(self.order) + shares)


def _most(shares: Shares[K], start: int, end: int) -> K | None:
    """Return the key of `shares` that has the most bytes among the tensors from place `start` to `end`."""
    found: tuple[int, K | None] = (-1, None)
    for name, (places, sums) in shares.items():
        first, after = bisect_left(places, start), bisect_left(places, end)
        if after > first:
            found = max(found, (sums[after] - sums[first], name or None), key=lambda each: each[0])
    return found[1]


def totals_of(
    order: Sequence[int],
    sizes: Sequence[int],
    elements: Sequence[int],
    parameters: Sequence[int],
    dtypes: Sequence[str],
    kinds: Sequence[Kind],
) -> Totals:
    """Return the totals of tensors. Each column is indexed by tensor number; a negative number means unknown."""
    bytes_, counts, trained = array("Q", [0]), array("Q", [0]), array("Q", [0])
    by_dtype = {dtype: (array("q"), array("Q", [0])) for dtype in dict.fromkeys(dtypes)}
    by_kind = {kind: (array("q"), array("Q", [0])) for kind in dict.fromkeys(kinds)}
    for place, number in enumerate(order):
        size = max(sizes[number], 0)
        bytes_.append(min(bytes_[-1] + size, _MOST_TOTAL))
        counts.append(min(counts[-1] + max(elements[number], 0), _MOST_TOTAL))
        trained.append(min(trained[-1] + parameters[number], _MOST_TOTAL))
        for places, sums in (by_dtype[dtypes[number]], by_kind[kinds[number]]):
            places.append(place)
            sums.append(min(sums[-1] + size, _MOST_TOTAL))
    return Totals(order, bytes_, counts, trained, by_dtype, by_kind)


_MOST_TOTAL: Final = (1 << 64) - 1
"""The upper bound of totals. It is needed because a model may claim any size."""


class NamedTensors:
    """The tensors in the natural order of their names, grouped by the steps of the names."""

    def __init__(self, found: Tensors, totals: Totals) -> None:
        self._found = found
        self._called = found.key
        self._totals = totals

    def tree(self, prefix: str, start: int, end: int, limit: int) -> Job[TensorBranch]:
        """Return a tree of about `limit` nodes.

        The root represents the tensors from place `start` to `end` whose names begin with `prefix`. The nodes with the
        most bytes are opened first.
        """
        low, high = self._span(prefix, min(start, len(self._totals.order)), min(end, len(self._totals.order)))
        shared, after = self._group(prefix, low, high) if high > low else (prefix, low)
        root, room, count = _Opened(shared if after == high else prefix, low, high, 0), PageBudget(limit), 0
        waiting = [(-self._bulk(low, high), count, root)] if high > low + 1 else []
        while waiting and room.left:
            _, _, node = heappop(waiting)
            children = self._children(node)
            if not all(room.takes(item_bytes(child.prefix)) for child in children):
                break
            node.children = children
            for child in children:
                count += 1
                if child.end - child.start > 1 and child.depth < _DEPTH:
                    heappush(waiting, (-self._bulk(child.start, child.end), count, child))
            yield
        return self._branch(root, "")

    def _children(self, node: _Opened) -> list[_Opened]:
        """Return the groups of `node` as nodes; if it has many groups, combine small neighbours."""
        found, at = list[_Opened](), node.start
        while at < node.end and len(found) <= _MOST_CHILDREN:
            shared, after = self._group(node.prefix, at, node.end)
            found.append(_Opened(shared, at, after, node.depth + 1))
            at = after
        return found if at == node.end and len(found) <= _MOST_CHILDREN else self._folded(node)

    def _folded(self, node: _Opened) -> list[_Opened]:
        """Return the groups of `node`, with ranges in place of neighbours that are too small to be shown."""
        sizes, prefix, end = self._totals.sizes, node.prefix, node.end
        share = max(self._bulk(node.start, end) // _RANGES, 1)
        found, at = list[_Opened](), node.start
        while at < end:
            shared, after = self._group(prefix, at, end)
            most = sizes[at] + at + share
            if self._bulk(at, after) < share:
                # The range first extends as far as its share of bytes allows, and is then cut at the start of a group.
                reach = bisect_right(range(at, end), most, key=lambda place: sizes[place + 1] + place + 1) + at
                reach = self._begin(prefix, at, reach, end)
                if reach > after:
                    first, last = shared, self._group(prefix, self._begin(prefix, at, reach - 1, end), reach)[0]
                    found.append(_Opened(prefix, at, reach, node.depth + 1, (first, last)))
                    at = reach
                    continue
            found.append(_Opened(shared, at, after, node.depth + 1))
            at = after
        return found

    def _begin(self, prefix: str, low: int, place: int, end: int) -> int:
        """Return the first place of the group that contains `place`; return `end` if `place` has reached `end`."""
        if place >= end:
            return end
        name = self._name(place)
        step = _STEP.search(name, len(prefix))
        start = name[: step.end()] if step else name
        if not step and name == prefix:
            return place
        key = natural(start)
        return low + bisect_left(range(low, place), key, key=self._key)

    def _branch(self, node: _Opened, above: str) -> TensorBranch:
        start, end, totals = node.start, node.end, self._totals
        alone = self._found[totals.order[start]] if end == start + 1 else None
        first, last = node.span or (node.prefix, None)
        elements, parameters = (sums[end] - sums[start] for sums in (totals.elements, totals.parameters))
        return TensorBranch(
            name=first.removeprefix(above),
            last=None if last is None else last.removeprefix(above),
            start=start,
            tensors=end - start,
            size=totals.sizes[end] - totals.sizes[start],
            elements=elements,
            parameters=None if parameters == elements else parameters,
            dtype=_most(totals.dtypes, start, end),
            kind=_most(totals.kinds, start, end),
            address=None if alone is None else alone.address,
            shape=None if alone is None else alone.shape,
            children=tuple(self._branch(child, node.prefix) for child in node.children),
        )

    def _bulk(self, start: int, end: int) -> int:
        """Return the bytes from place `start` to `end`, plus one per tensor, so that empty tensors and texts count."""
        return self._totals.sizes[end] - self._totals.sizes[start] + end - start

    def _name(self, place: int) -> str:
        return self._called(self._totals.order[place])[0]

    def _key(self, place: int) -> str:
        return natural(self._name(place))

    def _span(self, prefix: str, low: int, high: int) -> tuple[int, int]:
        """Return the first place and the end of the names between `low` and `high` that begin with `prefix`."""
        start = low + bisect_left(range(low, high), natural(prefix), key=self._key)
        return start, self._after(prefix, start, high)

    def _after(self, prefix: str, at: int, end: int) -> int:
        """Return the place after the names that begin with `prefix`, from `at` on.

        Most groups are short, so the search begins nearby.
        """
        key, step = natural(prefix), 1
        size = len(key)
        while at + step < end and self._key(at + step)[:size] == key:
            step *= 2
        near = range(at + step // 2, min(at + step, end))
        return near.start + bisect_right(near, key, key=lambda place: self._key(place)[:size])

    def _group(self, prefix: str, at: int, end: int) -> tuple[str, int]:
        """Return the common beginning of the names in the group at `at`, and the place after the group."""
        name = self._name(at)
        step = _STEP.search(name, len(prefix))
        if step is None:  # a name without further steps: equal names form a group, unless `prefix` is the name
            if name == prefix:
                return name, at + 1
            return name, at + bisect_right(range(at, end), natural(name), key=self._key)
        after = self._after(name[: step.end()], at, end)
        last = self._name(after - 1)
        if last == name:
            return name, after
        shared = next(n for n, (one, other) in enumerate(zip_longest(name, last)) if one != other)
        ends = [found.end() for found in _STEP.finditer(name, len(prefix), shared)]
        return name[: ends[-1]], after


@dataclass(slots=True)
class _Opened:
    """A node of a tree under construction."""

    prefix: str
    start: int
    end: int
    depth: int
    span: tuple[str, str] | None = None
    """For a range, the names of its first and its last group; else None."""
    children: Sequence[_Opened] = ()


@dataclass(frozen=True, slots=True)
class _Facts:
    """The columns by which tensors are sorted, indexed by tensor number; an unknown size or element count is -1."""

    sizes: array[int] = field(default_factory=lambda: array("q"))
    elements: array[int] = field(default_factory=lambda: array("q"))
    parameters: array[int] = field(default_factory=lambda: array("q"))
    dtypes: list[str] = field(default_factory=list)
    kinds: list[Kind] = field(default_factory=list)

    @property
    def columns(self) -> tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[str], Sequence[Kind]]:
        """All columns."""
        return self.sizes, self.elements, self.parameters, self.dtypes, self.kinds

    def take(self, tensor: Tensor) -> None:
        """Add the facts of the next tensor."""
        self.sizes.append(-1 if tensor.size is None else min(tensor.size, _MOST))
        elements, (role, kind) = -1 if tensor.shape is None else min(prod(tensor.shape), _MOST), tensor.use
        self.elements.append(elements)
        self.parameters.append(max(elements, 0) if role == "weight" else 0)
        self.dtypes.append(tensor.dtype.name if tensor.dtype is not None else "")
        self.kinds.append(kind)


async def sorted_by(
    opened: OpenStore, found: Tensors, sort: str | None, tags: tuple[str, ...] | None = None
) -> Sequence[int]:
    """Return the numbers of the tensors `found` sorted by the column `sort`; a leading `-` means descending order.

    None keeps the model's order. Names are sorted in natural order. Raise `InvalidInput` for an unknown column.
    """
    if sort is None:
        return range(len(found))
    column = sort.removeprefix("-")
    if column not in _COLUMNS:
        raise InvalidInput(
            f"Unknown sort column {sort[:40]!r}: use one of {', '.join(_COLUMNS)}, with '-' for descending"
        )

    async def made() -> tuple[Sequence[int], int]:
        keys: Sequence[int] | Sequence[str]
        if column == "name":
            keys = await _names(opened, found)
        else:
            facts = await _facts_of(opened, found, tags)
            keys = facts.dtypes if column == "dtype" else facts.elements if column == "shape" else facts.sizes
        order = await opened.worker.run_long(
            lambda: array("q", sorted(range(len(keys)), key=keys.__getitem__, reverse=sort.startswith("-")))
        )
        return order, order.itemsize * len(order)

    return await opened.results.get((opened.row, "order of tensors", tags, sort), made, cancellable=True)


async def totals(opened: OpenStore, found: Tensors) -> Totals:
    """Return the tensors in the order of their names, with running totals."""

    async def made() -> tuple[Totals, int]:
        order, facts = await sorted_by(opened, found, "name"), await _facts_of(opened, found)
        summed = await opened.worker.run_long(lambda: totals_of(order, *facts.columns))
        return summed, summed.weight

    return await opened.results.get((opened.row, "totals of tensors"), made, cancellable=True)


async def elements_of(opened: OpenStore, found: Tensors) -> Sequence[int]:
    """Return each tensor's number of elements, or -1 where it is unknown."""
    return (await _facts_of(opened, found)).elements


async def _names(opened: OpenStore, found: Tensors) -> list[str]:
    called, names = found.key, list[str]()
    await opened.worker.finish(looks_job(lambda number: names.append(natural(called(number)[0])), range(len(found))))
    return names


async def _facts_of(opened: OpenStore, found: Tensors, tags: tuple[str, ...] | None = None) -> _Facts:
    async def made() -> tuple[_Facts, int]:
        facts = _Facts()
        await opened.worker.finish(looks_job(lambda number: facts.take(found[number]), range(len(found))))
        return facts, _FACTS_WEIGHT * len(found)

    # Building a tensor from its message is costly, so one pass gathers all columns except the name, which needs no
    # tensor.
    return await opened.results.get((opened.row, "facts of tensors", tags), made, cancellable=True)


def looks_job(look: Callable[[int], object], numbers: Sequence[int]) -> Job[None]:
    """Call `look` with each of `numbers`, some per slice of work."""
    for at in range(0, len(numbers), _AT_ONCE):
        for number in numbers[at : at + _AT_ONCE]:
            look(number)
        yield
