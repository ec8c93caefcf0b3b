"""Ranges of objects: checks, merged reads, and a base class for remote storages."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar, Final

from protoslice.concurrency.gather import map_concurrently
from protoslice.errors import IntegrityError, InvalidInput, Unsupported
from protoslice.storage.interface import PIECE, Buffer, ObjectStat, Span, Storage, Writer
from protoslice.storage.keys import ObjectKey

MAX_OFFSET: Final = (1 << 63) - 1
READ_BYTES: Final = 4 << 20
GAP_BYTES: Final = 256 << 10
WINDOW: Final = 8
AHEAD: Final = 3


@dataclass(frozen=True, slots=True)
class Group:
    """One read that covers several spans; `members` holds the spans' indices in the request."""

    start: int
    end: int
    members: tuple[int, ...]


def check_span(start: int, end: int) -> None:
    """Raise `InvalidInput` unless 0 <= start <= end and both fit in a signed 64-bit integer."""
    if not 0 <= start <= end <= MAX_OFFSET:
        raise InvalidInput(f"invalid range: 0 <= start <= end is needed, not {start} to {end}")


def check_inside(key: ObjectKey, end: int, size: int) -> None:
    """Raise `IntegrityError` when `end` is greater than the object's size."""
    if end > size:
        raise IntegrityError(f"object {str(key)!r} ends at {size}, before byte {end}")


def check_limit(limit: int) -> None:
    """Raise `InvalidInput` when the page limit is less than 1."""
    if limit < 1:
        raise InvalidInput("the page limit must be at least 1")


def coalesce(spans: Sequence[Span], *, gap: int, largest: int) -> list[Group]:
    """Return the reads that cover all spans, ordered by offset.

    Spans that are at most `gap` bytes apart share a read of at most `largest` bytes. A span longer than `largest` gets
    one read and is not split.
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
    """Read all groups and return the bytes of each span.

    At most `window` reads run concurrently, and the first failure cancels the others.
    """
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
    """Yield the bytes from `start` to `end` in pieces; each read has `step` bytes, and `ahead` reads run at a time."""
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


class RemoteStorage(Storage):
    """A base class that implements `get_ranges` and `stream` with `stat` and `get_range`.

    A stream consists of bounded requests, a few of which run concurrently. So a slow reader never exceeds the timeout
    of one response. All requests name the entity tag that the first `stat` returned.
    """

    async def get_ranges(self, key: ObjectKey, spans: Sequence[Span], *, if_etag: str | None = None) -> Sequence[bytes]:
        groups = coalesce(spans, gap=GAP_BYTES, largest=READ_BYTES)
        if not groups:
            return []
        etag = (await self.stat(key)).etag if if_etag is None and len(groups) > 1 else if_etag
        return await read_groups(
            groups, spans, lambda start, end: self.get_range(key, start, end, if_etag=etag), window=WINDOW
        )

    async def stream(
        self, key: ObjectKey, start: int = 0, end: int | None = None, *, if_etag: str | None = None
    ) -> AsyncGenerator[Buffer, None]:
        check_span(start, start if end is None else end)
        found = await self.pin(key, if_etag)
        stop = max(start, found.size) if end is None else end
        check_inside(key, stop, found.size)

        async def read(low: int, high: int) -> bytes:
            return await self.get_range(key, low, high, if_etag=found.etag)

        async with aclosing(read_ahead(read, start, stop, step=READ_BYTES, ahead=AHEAD)) as pieces:
            async for piece in pieces:
                yield piece

    async def pin(self, key: ObjectKey, etag: str | None) -> ObjectStat:
        """Return the object's facts; raise `Conflict` when `etag` is not None and differs."""
        found = await self.stat(key)
        found.check_etag(etag)  # some servers ignore `If-Match`
        return found


class ReadOnlyRemoteStorage(RemoteStorage):
    """A remote storage that only supports reading."""

    refusal: ClassVar[str]
    """The error message for every attempt to write."""

    async def put(self, key: ObjectKey, data: Buffer) -> str:
        """Raise `Unsupported`, because the storage is read-only."""
        raise Unsupported(self.refusal)

    async def writer(self, key: ObjectKey) -> Writer:
        """Raise `Unsupported`, because the storage is read-only."""
        raise Unsupported(self.refusal)

    async def delete(self, key: ObjectKey) -> None:
        """Raise `Unsupported`, because the storage is read-only."""
        raise Unsupported(self.refusal)
