"""Comparisons of two opened stores: their differences, and distances of their tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from protoslice.comparing.deltas import steps_of_delta
from protoslice.comparing.differences import steps_of_differences
from protoslice.comparing.equality import Equality, Extent, Stretches
from protoslice.concurrency.executor import Worker
from protoslice.concurrency.singleflight import CachedFlight
from protoslice.errors import CorruptModel, NoRoot, Unsupported
from protoslice.facts import Difference, TensorDelta
from protoslice.formats.model import Listed, Model, Tensors
from protoslice.sources.source import RangeSource
from protoslice.stores.objects.joined import JoinedObject
from protoslice.stores.objects.stored import StoredObject
from protoslice.stores.paging import PageBudget, ResultPage, first_item
from protoslice.stores.reading.opened import OpenStore

MOST_LISTED: Final = 10_000
"""Differences of a comparison that are listed; all are counted."""
_CACHED: Final = 64
_ROOM: Final = 16 << 20
_WEIGHT: Final = 300
"""Bytes of memory of a listed difference beside its texts, about."""


@dataclass(frozen=True, slots=True)
class StoreComparison:
    """In what a store differs from another."""

    before: str
    after: str
    """Ids of both stores."""
    counts: Mapping[tuple[str, str], int]
    """Number of differences of each kind and change."""
    listed: Sequence[Difference]
    """The first `MOST_LISTED` of them."""
    read: int
    """Bytes of both sides that were read since no digest told whether they are equal."""

    def page(self, limit: int, cursor: str | None) -> ResultPage[Difference]:
        """A page of the listed differences, in order."""
        first, room, items = first_item(cursor), PageBudget(limit), list[Difference]()
        for each in self.listed[first:]:
            if not room.takes(_weight(each)):
                break
            items.append(each)
        last = first + len(items)
        return ResultPage(items, str(last) if items and last < len(self.listed) else None)


class Comparisons:
    """Comparisons of stores, each made once for all who wait, and kept for a while."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._made: CachedFlight[tuple[str, str], StoreComparison] = CachedFlight(most=_CACHED, room=_ROOM, stops=True)
        self._deltas: CachedFlight[tuple[object, ...], TensorDelta] = CachedFlight(
            most=MOST_LISTED, room=_ROOM, stops=True
        )

    async def of(self, before: OpenStore, after: OpenStore) -> StoreComparison:
        """In what `after` differs from `before`; what no digest tells is read."""
        return await self._made.get((before.info.id, after.info.id), lambda: self._make(before, after))

    async def delta(self, before: OpenStore, after: OpenStore, was: str, name: str, sample: int | None) -> TensorDelta:
        """Distances of the elements of the tensor `was` of `before` and the tensor `name` of `after`.

        `sample` as in `steps_of_delta`.
        """
        view = (before.info.id, after.info.id, was, name, sample)

        async def made() -> tuple[TensorDelta, int]:
            one, other = [await store.tensors.ready(called) for store, called in ((before, was), (after, name))]
            async for found in self._worker.steps(steps_of_delta(one, other, sample)):
                if found is not None:
                    return found, _WEIGHT + sum(map(len, (was, name)))
            raise AssertionError("the distances come last")  # pragma: no cover

        return await self._deltas.get(view, made)

    async def _make(self, before: OpenStore, after: OpenStore) -> tuple[StoreComparison, int]:
        one, other = [_ComparedStore(store, await _tensors_of(store)) for store in (before, after)]
        equality = Equality(_undecided, lambda _: None, local=True)
        async for found in self._worker.steps(_found(steps_of_differences(one, other, equality))):
            if found is not None:
                counts, listed, weight = found
                return StoreComparison(before.info.id, after.info.id, counts, listed, equality.read), weight
        raise AssertionError("what was found comes last")  # pragma: no cover


class _ComparedStore:
    """A store as a comparison sees it; see `ComparedModel`."""

    def __init__(self, store: OpenStore, tensors: Tensors) -> None:
        self.root = store.info.root
        self.model: Model = store.model
        self.files: Mapping[str, RangeSource] = store.model.files
        self.serialized = store.is_serialized
        self.tensors = tensors
        self._digests = {file.path: file.sha256 for file in store.info.files}

    def sha256(self, path: str) -> str | None:
        return self._digests[path]


async def _tensors_of(store: OpenStore) -> Tensors:
    try:
        return await store.tensors.all()
    except (Unsupported, CorruptModel, NoRoot):  # a store that is no model: its files and parts are compared
        return Listed([])


def _found(
    steps: Iterator[Difference | None],
) -> Iterator[tuple[Mapping[tuple[str, str], int], Sequence[Difference], int] | None]:
    """Yields None after each slice of work, and at the end counts, listed differences, and their bytes."""
    counts, listed, weight = Counter[tuple[str, str]](), list[Difference](), _WEIGHT
    for each in steps:
        if each is None:
            yield None
        else:
            counts[each.what, each.change] += 1
            if len(listed) < MOST_LISTED:
                listed.append(each)
                weight += _weight(each)
    yield counts, listed, weight


def _undecided(one: Extent, other: Extent, length: int) -> Stretches | None:
    """Stretches that are neither one stored extent nor proven to differ by the checksums of blocks."""
    (before, start), (after, begin) = one, other
    if not isinstance(before, StoredObject | JoinedObject) or not isinstance(after, StoredObject | JoinedObject):
        return [(0, length)]
    left: Stretches = []
    ours, theirs = before.extents(start, start + length), after.extents(begin, begin + length)
    at, number, twin = 0, 0, 0
    past, twin_past = 0, 0  # bytes of the extents at `number` and `twin` that are behind us
    while at < length:
        (stored, low, high), (other_stored, other_low, other_high) = ours[number], theirs[twin]
        many = min(high - low - past, other_high - other_low - twin_past)
        same = stored.is_same(low + past, other_stored, other_low + twin_past, many)
        if same is False:
            return None
        if same is None:
            left.append((at, many))
        at, past, twin_past = at + many, past + many, twin_past + many
        if past == high - low:
            number, past = number + 1, 0
        if twin_past == other_high - other_low:
            twin, twin_past = twin + 1, 0
    return left


def _weight(each: Difference) -> int:
    return _WEIGHT + len(each.path) + len(each.detail) + len(each.address) + len(each.was)
