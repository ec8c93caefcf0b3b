"""Files that consist of extents of stored objects; such an object may hold bytes of several files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Final, NamedTuple, cast

from protoslice import _core
from protoslice.catalog.manifest import ObjectLocation
from protoslice.concurrency.executor import Worker
from protoslice.concurrency.gather import map_concurrently
from protoslice.concurrency.pipeline import pipelined
from protoslice.errors import InvalidInput
from protoslice.serving.cache import BlockCache
from protoslice.serving.stored import SUM_BLOCK, Readable, StoredFile, StoredObject, open_object
from protoslice.storage import Span, Storage

_TURN: Final = 64
"""The number of files after which other tasks get a turn."""

_ALL: Final = (1 << 63) - 1
"""The largest 64-bit number, used where a batch needs no limit."""

Piece = tuple[int, int, int]
"""The number of an object, and the offset and length of a range in it."""
OpenPart = Callable[[ObjectLocation], Awaitable[StoredObject]]
"""A function that opens the object at a location; the location must have no parts."""


class JoinedObject:
    """A file that consists of extents; each extent is an object with a start and an end.

    The file's blocks are the blocks of its objects. Several extents may be in one of `objects`, at any offsets.
    """

    def __init__(self, objects: Sequence[StoredObject], extents: Sequence[tuple[StoredObject, int, int]]) -> None:
        self._objects = tuple(objects)
        numbers = {part: number for number, part in enumerate(self._objects)}
        self._rope = _core.Rope([(numbers[part], start, end - start) for part, start, end in extents])
        self.size = self._rope.size
        self.name = objects[0].name

    @property
    def parts(self) -> Sequence[StoredObject]:
        """See `StoredFile.parts`."""
        return self._objects

    def extents(self, start: int, end: int) -> Sequence[tuple[StoredObject, int, int]]:
        """See `StoredFile.extents`."""
        pieces = cast("Sequence[Piece]", self._rope.slice(start, end).pieces())
        return [(self._objects[number], offset, offset + length) for number, offset, length in pieces]

    @property
    def is_near(self) -> bool:
        """See `StoredObject.is_near`."""
        return all(part.is_near for part in self._objects)

    def read(self, offset: int, length: int, /) -> bytes:
        """See `StoredFile.read`."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise InvalidInput(f"bytes {offset} to {offset + length} are not in an object of {self.size}")
        return b"".join([part.read(low, high - low) for part, low, high in self.extents(offset, offset + length)])

    async def fetch(self, spans: Sequence[Span]) -> Sequence[bytes]:
        """See `StoredFile.fetch`; the objects are read concurrently, each with one call for all its extents."""
        return await read_sections(self._rope, self._objects, [self._section(*span) for span in spans])

    def _section(self, start: int, end: int) -> Section:
        _, spans = self._rope.batch(start, end, size=end - start, pieces=_ALL, spans=_ALL, covered=_ALL, gap=SUM_BLOCK)
        return Section(start, end, spans)

    async def stream(self, start: int, end: int) -> AsyncGenerator[bytes | memoryview, None]:
        """See `StoredFile.stream`; the read of the next extent starts while the previous one is still running."""
        streams = (partial(part.stream, low, high) for part, low, high in self.extents(start, end))
        async with aclosing(pipelined(streams, ahead=1)) as pieces:
            async for piece in pieces:
                yield piece

    def read_cached(self, offset: int, length: int) -> memoryview | None:
        """See `StoredFile.read_cached`; return None for bytes that span several extents."""
        extents = self.extents(offset, offset + length)
        if len(extents) != 1:
            return None
        part, start, end = extents[0]
        return part.read_cached(start, end - start)

    def covering(self, span: Span) -> Span:
        """See `StoredFile.covering`; the result ends at an extent's border if a block continues beyond the extent."""
        start, end = span
        if start >= end:
            return span
        ((part, at, _),) = self.extents(start, start + 1)
        before = at - part.covering((at, at + 1))[0]
        _, low, high = self.extents(max(0, start - before), start + 1)[-1]
        number, at, length = cast("Piece", self._rope.piece_at(end - 1))
        after = min(length, self._objects[number].covering((at, at + 1))[1] - at)
        return start + 1 - (high - low), end - 1 + after

    def close(self) -> None:
        """See `StoredFile.close`."""
        for part in self._objects:
            part.close()


class Section(NamedTuple):
    """The bytes of a rope from `start` to `stop`, and the disjoint spans of sources that contain them, in order."""

    start: int
    stop: int
    spans: Sequence[tuple[int, int, int]]
    """For each span: the number of the source, and start and end in the source."""


async def read_sections(rope: _core.Rope, sources: Sequence[Readable], sections: Sequence[Section]) -> list[bytes]:
    """Read sections of a rope; each source is read with one call, in whole blocks."""
    wanted: dict[int, list[Span]] = {}
    for number, start, end in (span for section in sections for span in section.spans):
        wanted.setdefault(number, []).append(sources[number].covering((start, end)))
    reads = [sources[number].fetch(spans) for number, spans in wanted.items()]
    # Usually only one source is read, and creating a task for it would make the read a third slower.
    fetched = [await reads[0]] if len(reads) == 1 else await asyncio.gather(*reads)
    found = {
        number: iter([(number, begin, data) for (begin, _), data in zip(spans, parts, strict=True)])
        for (number, spans), parts in zip(wanted.items(), fetched, strict=True)
    }
    return [_gathered(rope, section, [next(found[number]) for number, _, _ in section.spans]) for section in sections]


def _gathered(rope: _core.Rope, section: Section, found: list[tuple[int, int, bytes]]) -> bytes:
    start, stop, spans = section
    if len(found) == 1 and rope.slice(start, stop).piece_count == 1:
        at = spans[0][1] - found[0][1]
        return found[0][2][at : at + stop - start]  # Python returns the same object for a slice of everything
    return rope.gather(start, stop, found)


async def open_file_object(
    storage: Storage, stored: ObjectLocation, worker: Worker, *, verify: bool, cache: BlockCache | None = None
) -> StoredFile:
    """Open a file of a store or an upload; the file may be one object, several objects, or a section of a pack."""
    files = await open_file_objects(
        [stored], lambda part: open_object(storage, part, worker, verify=verify, cache=cache)
    )
    return files[0]


@asynccontextmanager
async def opened_parts(
    storage: Storage, parts: Sequence[ObjectLocation], worker: Worker
) -> AsyncGenerator[StoredFile, None]:
    """Yield consecutive objects as one verified file; close the file at the end of the context."""
    source = await open_file_object(storage, ObjectLocation.joined(parts), worker, verify=True)
    try:
        yield source
    finally:
        source.close()


async def open_file_objects(wanted: Sequence[ObjectLocation], open_part: OpenPart) -> list[StoredFile]:
    """Open several files with concurrent calls; open each object only once, even if it holds several files.

    On failure, close all objects that were opened.
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
    """Yield each location, and give other tasks turns, because opening a file of an open pack does not await."""
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
