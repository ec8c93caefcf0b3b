"""Records that differ, of two streams: equal ones at the beginning and at the end are left out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from protoslice import _core
from protoslice.comparing.equality import Equality
from protoslice.comparing.parts import Found, parts_below
from protoslice.concurrency import Job
from protoslice.errors import LimitExceeded, ProtosliceError, Unsupported
from protoslice.facts import Change, Difference
from protoslice.library.documents import FileDocument, stream_document
from protoslice.sources.ropes import Rope
from protoslice.sources.source import RangeSource
from protoslice.streams import Records, open_records

LARGEST: Final = 1 << 30
"""Bytes of a stream that is looked into: its records are found by a pass over all of it."""
MOST_INSIDE: Final = 100
"""Pairs of records that are looked into; of those behind them, only that some differ is told."""
_LIMITS: Final = _core.Limits(records=64 << 20)
_RUN: Final = 4096
"""Records that are compared at once."""


def records_that_differ(before: RangeSource, after: RangeSource, equality: Equality) -> Found:
    """Parts of records that differ, records on one side alone; nothing for files that are no streams."""
    if max(before.size, after.size) > LARGEST:
        return
    with ExitStack() as held:
        try:
            sides = [held.enter_context(open_records(source, limits=_LIMITS)) for source in (before, after)]
        except (Unsupported, LimitExceeded):
            return
        yield from _Streams(sides, [before, after], equality).differences()


class _Streams:
    def __init__(self, sides: list[Records], sources: list[RangeSource], equality: Equality) -> None:
        self._one, self._other = sides
        self._files = [[source] for source in sources]
        self._documents: tuple[FileDocument, FileDocument] = (
            stream_document(sides[0], self._files[0]),
            stream_document(sides[1], self._files[1]),
        )
        self._equality = equality
        self._inside_left = MOST_INSIDE

    def differences(self) -> Found:
        ours, theirs = len(self._one), len(self._other)
        most = min(ours, theirs)
        begin = yield from self._alike(most, lambda at: (at, at))
        end = yield from self._alike(most - begin, lambda at: (ours - at, theirs - at), backwards=True)
        left, right = ours - begin - end, theirs - begin - end
        paired = min(left, right)
        yield from self._pairs(begin, paired)
        yield from self._alone("removed", 0, begin + paired, left - paired)
        yield from self._alone("added", 1, begin + paired, right - paired)

    def _alike(self, most: int, place: Callable[[int], tuple[int, int]], *, backwards: bool = False) -> Job[int]:
        """Number of equal records from one end on, in runs; of the run that differs, halves are looked at."""
        at, run = 0, min(_RUN, most)
        while run and at < most:
            run = min(run, most - at)
            one, other = place(at + run if backwards else at)
            if (yield from self._same(one, other, run)):
                at += run
            else:
                run //= 2
        return at

    def _pairs(self, begin: int, count: int) -> Found:
        """Differences of `count` records from `begin` on, paired in order; equal runs are not looked into."""
        open_runs = [(begin, count)]
        while open_runs:
            start, length = open_runs.pop()
            if not length or (yield from self._same(start, start, length)):
                continue
            if not self._inside_left:
                path = f"records[{start}:{begin + count}]"
                yield Difference(
                    "part", path, "changed", None, None, "at least one of these records differs", path, path
                )
                return
            if length == 1:
                yield from self._inside(start)
                continue
            half = length // 2
            open_runs += [(start + half, length - half), (start, half)]

    def _inside(self, number: int) -> Found:
        """Parts of a record that differ; the record itself where its parts are the same or cannot be read."""
        self._inside_left -= 1
        path, told = f"records[{number}]", False
        try:
            for found in parts_below(*self._documents, path, self._equality):
                told = told or found is not None
                yield found
        except ProtosliceError:
            told = False
        if not told:
            before, after = (self._rope(side, number, 1).size for side in (0, 1))
            yield Difference("part", path, "changed", before, after, "", path, path)

    def _alone(self, change: Change, side: int, begin: int, count: int) -> Found:
        if count:
            size = self._rope(side, begin, count).size
            path = f"records[{begin}]" if count == 1 else f"records[{begin}:{begin + count}]"
            before, after = (size, None) if change == "removed" else (None, size)
            detail = "" if count == 1 else f"{count} records"
            yield Difference("part", path, change, before, after, detail, path, path)

    def _same(self, one: int, other: int, count: int) -> Job[bool]:
        # With a length before each: the same bytes may be other records.
        ropes = (self._rope(side, at, count, "delimited") for side, at in ((0, one), (1, other)))
        mine, theirs = (Rope(rope, files) for rope, files in zip(ropes, self._files, strict=True))
        return (yield from self._equality.same(mine, theirs))

    def _rope(self, side: int, begin: int, count: int, framing: str | None = None) -> _core.Rope:
        records = (self._one, self._other)[side].core
        return records.rope([(begin, begin + count)], framing)
