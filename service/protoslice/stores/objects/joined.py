"""Files made of extents of stored objects, which may hold bytes of other files too."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from itertools import accumulate
from typing import Final

from protoslice.concurrency.executor import Worker
from protoslice.concurrency.gather import map_concurrently
from protoslice.concurrency.pipeline import pipelined
from protoslice.errors import InvalidInput
from protoslice.storage import Span, Storage
from protoslice.stores.cache import BlockCache
from protoslice.stores.manifest import ObjectLocation
from protoslice.stores.objects.stored import StoredFile, StoredObject, open_object

_TURN: Final = 64
"""Files that are looked at before other tasks run."""

Piece = tuple[int, int, int]
"""Number of a part, and start and end of a span in it."""
OpenPart = Callable[[ObjectLocation], Awaitable[StoredObject]]
"""Opens the object at a location that has no parts."""


class JoinedObject:
    """File made of extents, each an object, and start and end in it; blocks are those of the objects.

    Several extents may lie in one of `objects`, at any offsets.
    """

    def __init__(self, objects: Sequence[StoredObject], extents: Sequence[tuple[StoredObject, int, int]]) -> None:
        self._objects = tuple(objects)
        self._parts = [part for part, _, _ in extents]
        self._begins = [start for _, start, _ in extents]
        self._starts = list(accumulate((end - start for _, start, end in extents), initial=0))
        self.size = self._starts[-1]
        self.name = objects[0].name

    @property
    def parts(self) -> Sequence[StoredObject]:
        """See `StoredFile.parts`."""
        return self._objects

    def extents(self, start: int, end: int) -> Sequence[tuple[StoredObject, int, int]]:
        """See `StoredFile.extents`."""
        return [(self._parts[number], low, high) for number, low, high in self._cut(start, end)]

    @property
    def is_near(self) -> bool:
        """See `StoredObject.is_near`."""
        return all(part.is_near for part in self._objects)

    def read(self, offset: int, length: int, /) -> bytes:
        """See `StoredFile.read`."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise InvalidInput(f"bytes {offset} to {offset + length} are not in an object of {self.size}")
        return b"".join(
            [self._parts[number].read(start, end - start) for number, start, end in self._cut(offset, offset + length)]
        )

    async def fetch(self, spans: Sequence[Span]) -> Sequence[bytes]:
        """See `StoredFile.fetch`; several objects are read concurrently, and all extents of one by one call."""
        cut = [self._cut(*span) for span in spans]
        wanted: dict[StoredObject, list[Span]] = {}
        for number, start, end in (piece for pieces in cut for piece in pieces):
            wanted.setdefault(self._parts[number], []).append((start, end))
        reads = [_fetched(part, inside) for part, inside in wanted.items()]
        # Mostly there is one object: creating a task for it would cost a third of the read.
        fetched = [await reads[0]] if len(reads) == 1 else await asyncio.gather(*reads)
        found = {part: iter(data) for part, data in zip(wanted, fetched, strict=True)}
        return [_whole([next(found[self._parts[number]]) for number, _, _ in pieces]) for pieces in cut]

    async def stream(self, start: int, end: int) -> AsyncGenerator[bytes | memoryview, None]:
        """See `StoredFile.stream`; the next part has begun while one is being read."""
        streams = (partial(self._parts[number].stream, low, high) for number, low, high in self._cut(start, end))
        async with aclosing(pipelined(streams, ahead=1)) as pieces:
            async for piece in pieces:
                yield piece

    def read_cached(self, offset: int, length: int) -> memoryview | None:
        """See `StoredFile.read_cached`; None for bytes that span several parts."""
        pieces = self._cut(offset, offset + length)
        if len(pieces) != 1:
            return None
        number, start, end = pieces[0]
        return self._parts[number].read_cached(start, end - start)

    def covering(self, span: Span) -> Span:
        """See `StoredFile.covering`."""
        pieces = self._cut(*span)
        if not pieces:
            return span
        (first, start, _), (last, _, end) = pieces[0], pieces[-1]
        low = self._parts[first].covering((start, start + 1))[0] - self._begins[first]
        high = self._parts[last].covering((end - 1, end))[1] - self._begins[last]
        # A block goes on beyond its extent, and there are bytes of others.
        return self._starts[first] + max(0, low), min(self._starts[last + 1], self._starts[last] + high)

    def close(self) -> None:
        """See `StoredFile.close`."""
        for part in self._objects:
            part.close()

    def _cut(self, start: int, end: int) -> list[Piece]:
        """Non-empty pieces that make up a span, in order."""
        pieces: list[Piece] = []
        number = bisect_right(self._starts, start) - 1
        while start < end:
            stop = min(end, self._starts[number + 1])
            shift = self._begins[number] - self._starts[number]
            pieces.append((number, start + shift, stop + shift))
            start, number = stop, number + 1
        return pieces


async def _fetched(part: StoredObject, spans: Sequence[Span]) -> Sequence[bytes]:
    """Bytes of spans of an object, read in whole blocks: a file may begin and end within a block."""
    wide = [part.covering(span) for span in spans]
    blocks = await part.fetch(wide)
    return [data[start - low : end - low] for (start, end), (low, _), data in zip(spans, wide, blocks, strict=True)]


def _whole(found: Sequence[bytes]) -> bytes:
    return found[0] if len(found) == 1 else b"".join(found)


async def open_file_object(
    storage: Storage, stored: ObjectLocation, worker: Worker, *, verify: bool, cache: BlockCache | None = None
) -> StoredFile:
    """Open a file of a store or an upload, whether it is one object, several, or a section of a pack."""
    files = await open_file_objects(
        [stored], lambda part: open_object(storage, part, worker, verify=verify, cache=cache)
    )
    return files[0]


@asynccontextmanager
async def opened_parts(
    storage: Storage, parts: Sequence[ObjectLocation], worker: Worker
) -> AsyncGenerator[StoredFile, None]:
    """Consecutive objects as one verified file, which is closed at the end of the context."""
    source = await open_file_object(storage, ObjectLocation.joined(parts), worker, verify=True)
    try:
        yield source
    finally:
        source.close()


async def open_file_objects(wanted: Sequence[ObjectLocation], open_part: OpenPart) -> list[StoredFile]:
    """Open several files: their objects side by side, and each once, however many files it holds.

    Closes the objects that it opened on failure.
    """
    opened: dict[ObjectLocation, StoredObject] = {}

    async def open_one(part: ObjectLocation) -> None:
        opened[part] = await open_part(part)

    try:
        distinct: dict[ObjectLocation, None] = {}
        async for stored in _in_turns(wanted):
            distinct.update(dict.fromkeys(stored.objects))
        await map_concurrently(open_one, distinct)
        return [_file(stored, opened) async for stored in _in_turns(wanted)]
    except BaseException:
        for part_object in opened.values():
            part_object.close()
        raise


async def _in_turns(wanted: Sequence[ObjectLocation]) -> AsyncGenerator[ObjectLocation, None]:
    """Yield each location, and let other tasks run in between: files of an opened pack wait for nothing."""
    for number, stored in enumerate(wanted, 1):
        yield stored
        if not number % _TURN:
            await asyncio.sleep(0)


def _file(stored: ObjectLocation, opened: Mapping[ObjectLocation, StoredObject]) -> StoredFile:
    if not stored.parts:
        return opened[stored]
    objects = dict.fromkeys(opened[each] for each in stored.objects)
    extents = [(opened[extent.object], extent.start, extent.end) for extent in stored.extents()]
    return JoinedObject([*objects], extents)
