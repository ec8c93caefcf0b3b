"""Comparisons of two opened stores: their differences, and the distances between their tensors."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Final

from protoslice.catalog.paging import ITEM_BYTES, PageBudget, ResultPage, first_item, item_bytes
from protoslice.comparing.differences import steps_of_differences
from protoslice.comparing.equality import Equality, Extent, PieceList, Ranges, Unverified, side_by_side, unverified_by
from protoslice.comparing.pairs import Pair, delta_job, move_job, pairs_job, runs_of
from protoslice.concurrency import Job, coarse
from protoslice.concurrency.executor import Worker
from protoslice.concurrency.results import Key, SingleFlight
from protoslice.errors import CorruptModel, LimitExceeded, NoRoot, Unsupported
from protoslice.facts import Difference, Kind, Piece, TensorDelta, TensorMove, TensorMoves
from protoslice.serving.joined import JoinedObject
from protoslice.serving.opened import OpenStore
from protoslice.serving.stored import SUM_BLOCK, StoredObject
from protoslice.sources.source import RangeSource
from protoslice.tensors.listing import Tensors
from protoslice.tensors.model import Deferred, Model, Tensor
from protoslice.tensors.reading import is_resolved, resolve
from protoslice.tensors.statistics import RUNS
from protoslice.views.pieces import PieceTable, is_known, table_of
from protoslice.views.tensors import counted, listed

MOST_LISTED: Final = 10_000
"""Largest number of differences that a comparison lists. The comparison counts all differences."""
LARGE: Final = 16 << 20
"""The size in bytes from which a comparison looks for saved digests of a store's pieces before it reads any bytes."""
MOST_CONFIRMED: Final = 256 << 20
"""The bytes that a comparison finds equal by reading before it computes the digests of all pieces of both stores.

The digests are saved, so that later comparisons of either store do not read these bytes again.
"""
_PAIR: Final = 100
"""The approximate memory of a pair of tensors in bytes. Each pair also counts as this many additional elements."""
_MOST_COMPARED: Final = 8 << 20
"""Largest number of elements that are compared for one page of pairs.

The first page gets a quarter, so that it appears soon.
"""
_FINER_RUNS: Final = 1024
"""Largest number of reads for a second look at a page's changed tensors. Each tensor gets an equal number of runs."""
_FINER_RUNS_FETCHED: Final = 64
"""Like `_FINER_RUNS`, but for stores whose bytes are not on a local disk."""
_LEAST_RUN: Final = 32
"""The fewest elements in a run of the second look."""
_LEAST_RUNS: Final = 8
"""The fewest runs per tensor for which a second look is useful."""
_STEPS: Final = 128
"""The number of runs of elements that are read in one slice of work."""
_MOST_COUNTED: Final = 16 << 20
"""The size in bytes up to which a tensor of varints is sampled. Before sampling, all varints must be counted."""


Counted = tuple[Mapping[tuple[str, str], int], Sequence[Difference], int]
"""The numbers of differences by kind and change, the listed differences, and the memory of that list in bytes."""
PieceLists = Mapping[int, PieceList]
"""The pieces of open files, by the `id` of the file object."""
_Cut = tuple[int, int, tuple[StoredObject, int], tuple[StoredObject, int]]
"""The offset and length of a range, and, for each of the two sides, an object and the offset in this object."""
_MARK: Final = b"\x01"


@dataclass(frozen=True, slots=True)
class StoreComparison:
    """The differences between two stores."""

    before: str
    after: str
    """The ids of both stores."""
    counts: Mapping[tuple[str, str], int]
    """The number of differences of each kind and change."""
    listed: Sequence[Difference]
    """The first `MOST_LISTED` differences."""
    read: int
    """The number of bytes of both stores that were read because digests did not suffice."""
    assumed: int
    """The number of bytes that were not read because the checksums of their blocks agree."""

    def page(self, limit: int, cursor: str | None) -> ResultPage[Difference]:
        """Return a page of the listed differences, in order."""
        first, room, items = first_item(cursor), PageBudget(limit), list[Difference]()
        for each in self.listed[first:]:
            if not room.takes(_bytes_of(each)):
                break
            items.append(each)
        last = first + len(items)
        return ResultPage(items, str(last) if items and last < len(self.listed) else None)


class Unfinished(Exception):
    """The exception for a comparison that takes longer than the caller waits; `read` of `size` bytes have been read."""

    def __init__(self, read: int, size: int) -> None:
        super().__init__(read, size)
        self.read = read
        self.size = size


class _Comparing:
    """A running comparison, which stops when its last caller leaves and resumes with the next caller."""

    def __init__(self, job: Job[Counted | None], equality: Equality, evidence: ByteEvidence, read: int) -> None:
        """Set up the comparison that `job` performs; `read` bytes were read before it began."""
        self._job = job
        self._equality = equality
        self._evidence = evidence
        self._before = read
        self._slice = Lock()
        self.end: Future[Counted | None] = Future()
        self._running: SingleFlight[None, None] = SingleFlight()

    @property
    def read(self) -> int:
        """The bytes of both stores that have been read so far."""
        return self._before + self._equality.read

    @property
    def failed(self) -> bool:
        """True if the comparison ended with an error."""
        return self.end.done() and self.end.exception() is not None

    @property
    def assumed(self) -> int:
        """The bytes that were not read because of equal checksums."""
        return self._evidence.assumed

    async def run(self, worker: Worker) -> None:
        """Run the comparison once for all callers until it ends; stop when the last caller leaves."""
        await self._running.get(None, lambda: worker.finish(self._slices()), cancellable=True)

    def _slices(self) -> Job[None]:
        """Run slices for one caller; they continue where the slices of earlier callers stopped."""
        while not self.end.done():
            with self._slice:  # the last slice of a caller that has left may still be running
                self._next()
            yield

    def _next(self) -> None:
        if self.end.done():
            return
        try:
            next(self._job)
        except StopIteration as end:
            self.end.set_result(end.value)
        except Exception as error:
            self.end.set_exception(error)


async def compare(
    before: OpenStore, after: OpenStore, *, checksums: bool = False, wait: float | None = None
) -> StoreComparison:
    """Return the comparison of two stores; only bytes without known digests are read.

    If `checksums` is set, blocks with equal checksums are not read either. Raise `Unfinished` after about `wait`
    seconds; the next call then resumes the comparison.
    """
    key = (*_pair(before, after, "comparison"), checksums)
    known: StoreComparison | _Comparing | None = after.results.find(key)
    if isinstance(known, StoreComparison):
        return known
    work = known if known is not None and not known.failed else await _begin(key, before, after, {})
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(wait if not work.end.done() else None):
                await work.run(after.worker)
        if not work.end.done():
            raise Unfinished(work.read, before.info.size + after.info.size)
        if (found := work.end.result()) is not None:
            counts, listed, weight = found
            made = StoreComparison(before.info.id, after.info.id, counts, listed, work.read, work.assumed)
            after.results.put(key, made, weight)
            return made
        undigested = [each.info.size for each in (before, after) if not await is_known(each)]
        pieces = await _digested(before, after)
        work = await _begin(key, before, after, pieces, work.read + sum(undigested))


async def delta(before: OpenStore, after: OpenStore, was: str, name: str, sample: int | None) -> TensorDelta:
    """Return the distances between tensor `was` of the store `before` and tensor `name` of the store `after`.

    `sample` limits the compared elements as in `delta_job`.
    """

    async def made() -> tuple[TensorDelta, int]:
        one, other = [await counted(store, called) for store, called in ((before, was), (after, name))]
        found = await after.worker.finish(delta_job(one, other, sample))
        return found, item_bytes(was, name)

    key = (*_pair(before, after, "delta of a tensor"), was, name, sample)
    return await after.results.get(key, made, cancellable=True)


async def moves(before: OpenStore, after: OpenStore, sample: int, limit: int, cursor: str | None) -> TensorMoves:
    """Return a page of tensor pairs from both stores, with distances computed from `sample` elements of each tensor."""
    first = first_item(cursor)

    async def made() -> tuple[TensorMoves, int]:
        one, other = [await _tensors_of(store) for store in (before, after)]
        pairs = await _paired(before, after, one, other)
        finer = _FINER_RUNS if _are_local(before, after) else _FINER_RUNS_FETCHED
        job = _moves_job(pairs, one, other, sample, PageBudget(limit), first, finer)
        page = await after.worker.finish(coarse(job, _STEPS))  # each step is one short read
        names = sum(len(each.name) for each in page.items) + sum(len(each.layer) for each in page.equal)
        return page, 3 * names + ITEM_BYTES * (2 * len(page.items) + len(page.equal))

    key = (*_pair(before, after, "moves of tensors"), sample, limit, first)
    return await after.results.get(key, made, cancellable=True)


async def _paired(before: OpenStore, after: OpenStore, one: Tensors, other: Tensors) -> Sequence[Pair]:
    """Return the pairs of tensors of both stores; all comparisons of the two stores share the result."""

    async def paired() -> tuple[Sequence[Pair], int]:
        found = await after.worker.finish(pairs_job(one, other, local=_are_local(before, after)))
        return found, _PAIR * len(found)

    return await after.results.get(_pair(before, after, "pairs of tensors"), paired, cancellable=True)


async def _begin(key: Key, before: OpenStore, after: OpenStore, pieces: PieceLists, read: int = 0) -> _Comparing:
    """Start a comparison that need not read the bytes of `pieces`; `read` bytes have been read before."""
    one, other = [_ComparedStore(store, await _tensors_of(store)) for store in (before, after)]
    pieces = pieces or await _kept(before, after)
    pairs = None if _same_files(before, after) else await _paired(before, after, one.tensors, other.tensors)
    evidence, stored = ByteEvidence(pieces, checksums=key[-1] is True), before.info.size + after.info.size
    equality = Equality(evidence.unverified, lambda _: None, local=True, stored=stored)
    differences = steps_of_differences(one, other, equality, pairs)
    most = None if pieces or _are_local(before, after) else MOST_CONFIRMED
    begun: StoreComparison | _Comparing | None = after.results.find(key)
    if isinstance(begun, _Comparing) and not begun.end.done():
        return begun  # another caller has started it meanwhile
    work = _Comparing(_counted_job(differences, equality, most), equality, evidence, read)
    after.results.put(key, work, before.weight + after.weight + _PAIR * len(pairs or ()))
    return work


async def _kept(*stores: OpenStore) -> PieceLists:
    """Return the pieces of all stores if the stores are large and their tables are saved; else return no pieces."""
    large = min(store.info.size for store in stores) >= LARGE
    known = large and all([await is_known(store) for store in stores])
    return await _digested(*stores) if known else {}


async def _digested(*stores: OpenStore) -> PieceLists:
    """Return the pieces of all files of the stores; compute missing tables."""
    found: dict[int, PieceList] = {}
    for store in stores:
        table = await table_of(store)
        found |= await store.worker.run_long(lambda table=table, store=store: _listed(table, store))  # type: ignore[misc]
    return found


def _pair(before: OpenStore, after: OpenStore, kind: str) -> Key:
    return after.manifest.row, kind, before.manifest.row


class _ComparedStore:
    """A store in the form that comparisons need; see `ComparedModel`."""

    def __init__(self, store: OpenStore, tensors: Tensors) -> None:
        self.root = store.info.root
        self.model: Model = store.model
        self.files: Mapping[str, RangeSource] = store.model.files
        self.serialized = store.is_serialized
        self.tensors = tensors
        self._digests = {file.path: file.sha256 for file in store.info.files}

    def sha256(self, path: str) -> str | None:
        return self._digests[path]


def _are_local(*stores: OpenStore) -> bool:
    """Return True if all files of the stores are local, so that reading them costs only time."""
    return all(part.is_local for store in stores for file in store.info.files for part in store.files[file.path].parts)


def _same_files(before: OpenStore, after: OpenStore) -> bool:
    """Return True if both stores have the same paths with the same known digests."""
    files = [{(file.path, file.sha256) for file in store.info.files} for store in (before, after)]
    return files[0] == files[1] and all(sha256 is not None for _, sha256 in files[0])


async def _tensors_of(store: OpenStore) -> Tensors:
    try:
        return await listed(store)
    except (Unsupported, CorruptModel, NoRoot):  # without tensors, files and parts are compared
        return Tensors.of([])


def _moves_job(
    pairs: Sequence[Pair], before: Tensors, after: Tensors, sample: int, room: PageBudget, first: int, finer: int
) -> Job[TensorMoves]:
    """Return the page that begins with pair number `first`; changed tensors share a second look of `finer` reads."""
    sampled = dict[int, Pair]()
    items, left, last = list[TensorMove](), _MOST_COMPARED if first else _MOST_COMPARED // 4, first
    equal, room_of_equal = Counter[tuple[str, Kind]](), PageBudget(len(pairs))
    for old, new in pairs[first:]:
        found = yield from move_job(*_of(pair := (old, new), before, after), sample, _ready)
        cell = found.layer, found.kind
        is_equal = found.change == "compared" and found.delta is not None and not found.delta.changed
        if is_equal:
            fits = cell in equal or room_of_equal.takes(item_bytes(found.layer))
        else:
            fits = room.takes(item_bytes(found.name, found.address, found.was, found.was_address, found.shape))
        if left <= 0 or not fits:
            break
        if is_equal:
            equal[cell] += 1
        else:
            if found.delta is not None and found.delta.looked_at < found.delta.elements:
                sampled[len(items)] = pair
            items.append(found)
        last += 1
        left -= _PAIR + (found.delta.looked_at if found.delta is not None else 0)
    runs = min(RUNS, finer // max(len(sampled), 1), sample // _LEAST_RUN)
    for place, pair in sampled.items() if runs >= _LEAST_RUNS else ():
        again = yield from move_job(*_of(pair, before, after), sample, _ready, runs)
        if again.delta is not None and again.delta.changed:  # shorter runs may miss a change that longer runs found
            items[place] = again
    following = str(last) if last < len(pairs) else None
    return TensorMoves(tuple(items), tuple(runs_of(equal)), last - first, len(pairs), following)


def _of(pair: Pair, before: Tensors, after: Tensors) -> tuple[Tensor | None, Tensor | None]:
    old, new = pair
    return None if old is None else before[old], None if new is None else after[new]


def _ready(tensor: Tensor) -> Tensor:
    """Return the tensor with its elements located.

    Raise `LimitExceeded` if too many varints would have to be counted.
    """
    if is_resolved(tensor):
        return tensor
    if not isinstance(tensor.data, Deferred) and (tensor.size or 0) > _MOST_COUNTED:
        raise LimitExceeded(
            "The tensor cannot be sampled, because it stores too many elements as varints: compare this tensor alone"
        )
    return resolve(tensor)[0]


def _listed(table: PieceTable, store: OpenStore) -> dict[int, PieceList]:
    """Return a store's pieces by the `id` of the open file."""
    pieces: dict[str, list[Piece]] = {}
    for path, offset, size, digest in table:
        pieces.setdefault(path, []).append(Piece(path, offset, size, digest.hex()))
    return {id(store.model.files[path]): PieceList(each) for path, each in pieces.items()}


def _counted_job(differences: Iterable[Difference | None], equality: Equality, most: int | None) -> Job[Counted | None]:
    """Return the counts of differences, the listed differences, and the memory of the list in bytes.

    Return None once more than `most` equal bytes were read.
    """
    counts, listed, weight = Counter[tuple[str, str]](), list[Difference](), ITEM_BYTES
    for each in differences:
        if each is None:
            if most is not None and equality.confirmed > most:
                return None
            yield
        else:
            counts[each.what, each.change] += 1
            if len(listed) < MOST_LISTED:
                listed.append(each)
                weight += _bytes_of(each)
    return counts, listed, weight


def _bytes_of(each: Difference) -> int:
    return item_bytes(each.path, each.detail, each.address, each.was)


class ByteEvidence:
    """Known facts about the bytes of two stores, which reduce the ranges that must be read."""

    def __init__(self, pieces: PieceLists, *, checksums: bool) -> None:
        """Set up the facts. If `checksums` is set, blocks with equal checksums count as equal, without proof."""

        def listed(source: RangeSource) -> PieceList | None:
            return pieces.get(id(source))

        self._by_pieces = unverified_by(listed, listed) if pieces else None
        self._by_checksums = self._assuming if checksums else None
        self._assumed: dict[StoredObject, bytearray] = {}

    @property
    def assumed(self) -> int:
        """The number of bytes in blocks that counted as equal only because of their checksums."""
        return sum(min(SUM_BLOCK * sum(marks), stored.size) for stored, marks in self._assumed.items())

    def unverified(self, one: Extent, other: Extent, length: int) -> Ranges | None:
        """Return the ranges of two extents that must be read, or None if the extents are known to differ."""
        left = _by_extents(one, other, length)
        for narrowing in filter(None, (self._by_pieces, self._by_checksums)):
            if left:
                left = _narrowed(left, one, other, narrowing)
        return left

    def _assuming(self, one: Extent, other: Extent, length: int) -> Ranges:
        """Return the ranges outside of blocks with equal checksums; record these blocks as assumed."""
        pairs = _pairs(one, other, length)
        left: Ranges = [(0, length)] if pairs is None else []
        for at, many, (stored, low), (twin, twin_low) in pairs or ():
            start, end = stored.alike(low, twin, twin_low, many)
            left += [(at, start - low), (at + end - low, low + many - end)]
            marks = self._assumed.setdefault(stored, bytearray(-(-stored.size // SUM_BLOCK)))
            blocks = slice(start // SUM_BLOCK, -(-end // SUM_BLOCK)) if start < end else slice(0, 0)
            marks[blocks] = _MARK * (blocks.stop - blocks.start)
        return [(at, many) for at, many in left if many]


def _by_extents(one: Extent, other: Extent, length: int) -> Ranges | None:
    """Return the ranges that must be read, as they are not the same stored extent; None if block checksums differ."""
    pairs = _pairs(one, other, length)
    left: Ranges = [(0, length)] if pairs is None else []
    for at, many, (stored, low), (twin, twin_low) in pairs or ():
        same = stored.is_same(low, twin, twin_low, many)
        if same is False:
            return None
        if same is None:
            left.append((at, many))
    return left


def _narrowed(ranges: Ranges, one: Extent, other: Extent, unverified: Unverified) -> Ranges | None:
    """Return the parts of the ranges that `unverified` leaves, or None if the extents are known to differ."""
    left: Ranges = []
    for at, many in ranges:
        found = unverified((one[0], one[1] + at), (other[0], other[1] + at), many)
        if found is None:
            return None
        left += [(at + start, length) for start, length in found]
    return left


def _pairs(one: Extent, other: Extent, length: int) -> Iterator[_Cut] | None:
    """Yield ranges that are in a single object on each side, in order; return None if a source is not stored."""
    (before, start), (after, begin) = one, other
    if not isinstance(before, StoredObject | JoinedObject) or not isinstance(after, StoredObject | JoinedObject):
        return None
    ours, theirs = before.extents(start, start + length), after.extents(begin, begin + length)
    return side_by_side(_steps(ours), _steps(theirs), lambda place, by: (place[0], place[1] + by))


def _steps(extents: Iterable[tuple[StoredObject, int, int]]) -> Iterator[tuple[tuple[StoredObject, int], int]]:
    return (((stored, low), high - low) for stored, low, high in extents)
