"""Byte spans of one object: validation, and reads that serve several spans."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from protoslice.concurrency.gather import map_concurrently
from protoslice.errors import IntegrityError, InvalidInput
from protoslice.storage.interface import PIECE, Span
from protoslice.storage.keys import ObjectKey

MAX_OFFSET: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Group:
    """One read that serves several spans; `members` holds their indices in the request."""

    start: int
    end: int
    members: tuple[int, ...]


def check_span(start: int, end: int) -> None:
    """Raise `InvalidInput` unless 0 <= start <= end and both fit a signed 64-bit offset."""
    if not 0 <= start <= end <= MAX_OFFSET:
        raise InvalidInput(f"invalid range: 0 <= start <= end is needed, not {start} to {end}")


def check_inside(key: ObjectKey, end: int, size: int) -> None:
    """Raise `IntegrityError` when `end` lies beyond the object's `size`."""
    if end > size:
        raise IntegrityError(f"object {str(key)!r} ends at {size}, before byte {end}")


def check_limit(limit: int) -> None:
    """Raise `InvalidInput` unless a page may hold at least one object."""
    if limit < 1:
        raise InvalidInput("the page limit must be at least 1")


def coalesce(spans: Sequence[Span], *, gap: int, largest: int) -> list[Group]:
    """Reads that cover all spans, ordered by offset.

    Spans at most `gap` bytes apart share a read of at most `largest` bytes. A span longer than `largest` is one read
    and is not cut.
    """
    groups: list[Group] = []
    for place in sorted(range(len(spans)), key=spans.__getitem__):
        start, end = spans[place]
        check_span(start, end)
        last = groups[-1] if groups else None
        if last is not None and start <= last.end + gap and max(end, last.end) - last.start <= largest:
            groups[-1] = Group(last.start, max(end, last.end), (*last.members, place))
        else:
            groups.append(Group(start, end, (place,)))
    return groups


async def read_groups(
    groups: Sequence[Group], spans: Sequence[Span], read: Callable[[int, int], Awaitable[bytes]], *, window: int
) -> Sequence[bytes]:
    """The bytes of each span, by at most `window` concurrent reads; the first failure cancels the others."""
    results: list[bytes] = [b""] * len(spans)

    async def fetch(group: Group) -> None:
        data = memoryview(await read(group.start, group.end))
        for place in group.members:
            start, end = spans[place]
            results[place] = bytes(data[start - group.start : end - group.start])

    await map_concurrently(fetch, groups, window=window)
    return results


async def read_ahead(
    read: Callable[[int, int], Awaitable[bytes]], start: int, end: int, *, step: int, ahead: int
) -> AsyncGenerator[bytes, None]:
    """The bytes from `start` to `end` in pieces, by reads of `step` bytes with `ahead` of them under way."""
    reads: deque[asyncio.Future[bytes]] = deque()
    starts = iter(range(start, end, step))
    try:
        while True:
            for at in islice(starts, ahead - len(reads)):
                reads.append(asyncio.ensure_future(read(at, min(at + step, end))))
            if not reads:
                return
            data = await reads.popleft()
            for at in range(0, len(data), PIECE):
                yield data[at : at + PIECE]
    finally:
        for task in reads:
            task.cancel()
        await asyncio.gather(*reads, return_exceptions=True)
