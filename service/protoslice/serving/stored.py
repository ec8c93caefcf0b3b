"""Range reads of stored objects and of computed sources.

Before a stored object's bytes are used, each of their blocks is compared with its CRC-32C.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, suppress
from typing import Protocol, TypeVar

from protoslice import _core
from protoslice.catalog.manifest import ObjectLocation, sums_of
from protoslice.concurrency.executor import Worker, counted_work
from protoslice.concurrency.gather import map_concurrently
from protoslice.errors import Conflict, IntegrityError, InvalidInput, NotFound, ProtosliceError
from protoslice.serving.cache import BlockCache
from protoslice.serving.prefetch import SavedReads
from protoslice.sources.source import RangeSource
from protoslice.storage import ObjectKey, OpenFile, Span, Storage
from protoslice.storage.interface import PIECE


class Readable(Protocol):
    """A source of bytes: threads read it as a `RangeSource`, and the event loop fetches spans."""

    @property
    def size(self) -> int:
        """The length in bytes."""

    @property
    def is_near(self) -> bool:
        """True when a read needs no round trip to a remote storage."""

    def read(self, offset: int, length: int, /) -> bytes:
        """Return exactly the `length` bytes at `offset`. This call blocks."""

    def covering(self, span: Span) -> Span:
        """Return the span that must be fetched to read `span`, for example the whole blocks that overlap it."""

    async def fetch(self, spans: Sequence[Span]) -> Sequence[bytes]:
        """Return the bytes of `spans`, each of which must be a result of `covering`."""

    def stream(self, start: int, end: int) -> AsyncGenerator[bytes | memoryview, None]:
        """Yield the bytes from `start` to `end` as they arrive, in pieces of about a mebibyte."""

    def read_cached(self, offset: int, length: int) -> memoryview | None:
        """Return the bytes if they are available without waiting; else None."""


class Computed:
    """A source that computes its bytes from other sources on every read."""

    is_near = False
    """False, because every read needs a worker thread."""

    def __init__(self, source: RangeSource, worker: Worker, spend: Callable[[float], None] | None = None) -> None:
        """Set up the source; after each read, `spend` gets the read's processor time in seconds, and may raise."""
        self.size = source.size
        self.stored = source.stored if isinstance(source, _core.Computed) else source.size
        """The number of stored bytes from which this source computes its bytes."""
        self._source = source
        self._worker = worker
        self._spend = spend

    def counted(self, spend: Callable[[float], None]) -> Computed:
        """Return a source of the same bytes whose reads call `spend`."""
        return Computed(self._source, self._worker, spend)

    def read(self, offset: int, length: int, /) -> bytes:
        """Return exactly the `length` bytes at `offset`. This call blocks."""
        return self._source.read(offset, length)

    def covering(self, span: Span) -> Span:
        """Return `span` unchanged."""
        return span

    async def fetch(self, spans: Sequence[Span]) -> Sequence[bytes]:
        """Return the bytes of `spans`, computed in a worker thread."""
        with counted_work() as spent:
            found = await self._worker.run(lambda: [self._source.read(start, end - start) for start, end in spans])
        if self._spend is not None:
            self._spend(spent.seconds)
        return found

    async def stream(self, start: int, end: int) -> AsyncGenerator[bytes | memoryview, None]:
        """Yield the bytes from `start` to `end`; a piece is computed after the consumer took the previous one."""
        for at in range(start, end, PIECE):
            yield (await self.fetch([(at, min(at + PIECE, end))]))[0]

    def read_cached(self, offset: int, length: int) -> None:
        """Return None, because every read needs a worker thread."""
        return None


SUM_BLOCK = 64 << 10
"""The number of bytes that one checksum covers."""

CHANGED = "An object that this store refers to has changed or was removed: register the store again"

_BESIDE = 2
"""Largest number of spans per call, when spans are split into several concurrent calls."""

T = TypeVar("T")


class StoredFile(Readable, Protocol):
    """The bytes of a stored file, which may be one object, several objects, or a section of an object."""

    @property
    def name(self) -> str:
        """The key of the file's first object."""

    @property
    def parts(self) -> Sequence[StoredObject]:
        """The objects that hold the file's bytes, in order."""

    def extents(self, start: int, end: int) -> Sequence[tuple[StoredObject, int, int]]:
        """Return the extents that hold the bytes from `start` to `end`, each as an object, a start and an end."""

    def close(self) -> None:
        """Close all objects."""


class StoredObject:
    """A stored object: worker threads read it as a `RangeSource`, and the event loop fetches spans of blocks.

    If the storage can open files, the object keeps an open file until `close`.
    """

    def __init__(
        self,
        storage: Storage,
        key: ObjectKey,
        stored: ObjectLocation,
        sums: bytes | None,
        handle: OpenFile | None,
        worker: Worker,
        cache: BlockCache | None = None,
    ) -> None:
        self.size = stored.size
        self._storage = storage
        self._key = key
        self._in_place = stored.uri is not None
        # Objects with checksums need no entity tag. Tags would differ in a copy of the storage.
        self._etag = stored.etag if sums is None else None
        self._likely_etag = stored.etag if sums is not None else None
        self._sums = sums
        self._handle = handle
        self._worker = worker
        self._cache = cache
        self._saved: tuple[int, SavedReads] | None = None
        self.name = str(key)

    @property
    def parts(self) -> Sequence[StoredObject]:
        """See `StoredFile.parts`."""
        return (self,)

    @property
    def is_near(self) -> bool:
        """True when the object is an open local file."""
        return self._handle is not None

    @property
    def is_local(self) -> bool:
        """True when the object is a local file, so that reading it again only costs time."""
        return self._storage.abilities.open_file

    @property
    def weight(self) -> int:
        """The memory of the checksums in bytes."""
        return len(self._sums or b"")

    @property
    def _is_unsteady(self) -> bool:
        """True for a local file outside the storage, because the file may change during a read."""
        return self._in_place and self._storage.abilities.open_file

    def extents(self, start: int, end: int) -> Sequence[tuple[StoredObject, int, int]]:
        """See `StoredFile.extents`."""
        return [(self, start, end)] if start < end else []

    def is_same(self, start: int, other: StoredObject, begin: int, length: int) -> bool | None:
        """Return True if both ranges are the same stored extent, False if block checksums differ, None otherwise."""
        if self._in_place or other._in_place:
            return None
        if self.name == other.name and start == begin:
            return True
        if self._sums is None or other._sums is None or (start - begin) % SUM_BLOCK:
            return None
        first, last = -(-start // SUM_BLOCK), (start + length) // SUM_BLOCK
        shift = (begin - start) // SUM_BLOCK
        one, twin = (4 * first, 4 * last), (4 * (first + shift), 4 * (last + shift))
        return None if first >= last or self._sums[slice(*one)] == other._sums[slice(*twin)] else False

    def alike(self, start: int, other: StoredObject, begin: int, length: int) -> Span:
        """Return start and end of the part of the range whose block checksums equal those of `other`.

        The part may lack the first and the last block of the range. The span is empty if inner checksums differ, or if
        checksums are not known.
        """
        if self._sums is None or other._sums is None or (start - begin) % SUM_BLOCK:
            return start, start
        first, last = start // SUM_BLOCK, -(-(start + length) // SUM_BLOCK)
        shift = 4 * ((begin - start) // SUM_BLOCK)
        ours, theirs = self._sums[4 * first : 4 * last], other._sums[4 * first + shift : 4 * last + shift]
        if ours[:4] != theirs[:4]:
            first, ours, theirs = first + 1, ours[4:], theirs[4:]
        if ours[-4:] != theirs[-4:]:
            last, ours, theirs = last - 1, ours[:-4], theirs[:-4]
        if first >= last or ours != theirs:
            return start, start
        return max(start, first * SUM_BLOCK), min(start + length, last * SUM_BLOCK)

    def sums_of(self, start: int, end: int) -> bytes:
        """Return the checksums of the blocks from `start` to `end`, or b"" if unknown or if `start` is in a block."""
        if self._sums is None or start % SUM_BLOCK:
            return b""
        return self._sums[
            4 * (start // SUM_BLOCK) : 4 * (-(-end // SUM_BLOCK) if end == self.size else end // SUM_BLOCK)
        ]

    def save_reads(self, number: int, saved: SavedReads | None) -> None:
        """Use `saved` for the following reads of this object, which has the number `number`. None ends the use."""
        self._saved = None if saved is None else (number, saved)

    def read(self, offset: int, length: int, /) -> bytes:
        """Return exactly the `length` bytes at `offset`, verified.

        This call blocks, so only worker threads may use it.
        """
        if offset < 0 or length < 0 or offset + length > self.size:
            raise InvalidInput(f"bytes {offset} to {offset + length} are not in an object of {self.size}")
        if self._saved is not None:
            return self._read_saved(*self._saved, offset, length)
        start, end = self.covering((offset, offset + length))
        return self._blocking(start, end)[offset - start : offset - start + length]

    def _read_saved(self, number: int, saved: SavedReads, offset: int, length: int) -> bytes:
        """Return bytes of a remote object from `saved`.

        If they are missing there, read whole blocks and save the read.
        """
        data = saved.get(number, offset, length)
        if data is None:
            saved.note(number, offset)
            data = saved.get_recent(number, offset, length)
            if data is None:
                # Whole blocks are read, because another round trip would cost more than the extra bytes.
                start, end = self._blocks(offset, offset + length)
                ahead = self._ahead(saved.predicted(number, end - start), length, end)
                read, *more = self._with_more((start, end), ahead)
                for (begin, _), found in zip(ahead, more, strict=False):  # `more` is empty if those reads failed
                    saved.put_recent(number, begin, found)
                saved.put_recent(number, start, read)
                data = read[offset - start : offset - start + length]
            saved.put(number, offset, data)
        return data

    def _ahead(self, offsets: Sequence[int], length: int, end: int) -> list[Span]:
        """Return the blocks for reads at `offsets` beyond `end`, without repetitions."""
        blocks = (self._blocks(offset, offset + length) for offset in offsets if end <= offset < self.size)
        return list(dict.fromkeys(blocks))

    def _with_more(self, span: Span, more: Sequence[Span]) -> Sequence[bytes]:
        """Read a span and `more` spans concurrently.

        If that fails, return only the first span's bytes. This call blocks.
        """
        if more and self._handle is None:
            with suppress(ProtosliceError):  # the other spans are only predicted
                spans = [span, *more]
                parts = [spans[at : at + _BESIDE] for at in range(0, len(spans), _BESIDE)]
                reading = map_concurrently(self._distant, parts)
                found = asyncio.run_coroutine_threadsafe(reading, self._worker.loop).result()
                return [data for part in found for data in part]
        return [self._blocking(*span)]

    async def fetch(self, spans: Sequence[Span]) -> Sequence[bytes]:
        """Return the verified bytes of `spans`, each of which must be a result of `covering`."""
        cached = self._cached(spans)
        if cached is not None:
            return cached
        if self._handle is not None:
            return await self._worker.run(lambda: [self._blocking(*span) for span in spans])
        return await self._distant(spans)

    async def stream(self, start: int, end: int) -> AsyncGenerator[bytes | memoryview, None]:
        """Yield the bytes from `start` to `end`; each block is verified as soon as it is complete.

        As many bytes as possible from the start come from the cache. One read of the storage returns the rest.
        """
        at, stop = self.covering((start, end))
        while at < stop:
            found = await self._next(at, min(at + PIECE, stop))
            if found is None:
                break
            yield memoryview(found)[max(0, start - at) : end - at]
            at += len(found)
        if at < stop:
            async with aclosing(self._streamed(at, stop)) as pieces:
                async for piece in pieces:
                    yield piece[max(0, start - at) : end - at]
                    at += len(piece)

    async def _next(self, start: int, end: int) -> bytes | None:
        """Return bytes that need no stream: cached blocks, or bytes of a file that may change.

        Return None if there are no such bytes.
        """
        if self._is_unsteady:
            return (await self._ranges([(start, end)]))[0]
        if self._cache is None or self._sums is None:
            return None
        return await self._cache.look(self.name, start, end, self._sums)

    async def _streamed(self, at: int, stop: int) -> AsyncGenerator[memoryview, None]:
        """Yield whole verified blocks from one read of the storage, and add them to the cache."""
        start, rest = at, b""
        try:
            async with aclosing(self._storage.stream(self._key, at, stop, if_etag=self._etag)) as pieces:
                async for piece in pieces:
                    for part in _parts(rest, memoryview(piece)):
                        whole = len(part) if at + len(part) == stop else len(part) - len(part) % SUM_BLOCK
                        blocks, rest = part[:whole], bytes(part[whole:])
                        if whole:
                            self._verify(blocks, at)
                            if self._cache is not None and self._sums is not None:
                                self._cache.keep(self.name, at, blocks, at - start)
                            yield blocks
                            at += whole
        except (Conflict, NotFound, IntegrityError) as error:
            raise self._lost(error) from error

    def read_cached(self, offset: int, length: int) -> memoryview | None:
        """Return the verified bytes if the page cache or the block cache has them; else None."""
        start, end = self.covering((offset, offset + length))
        cached = self._cached([(start, end)])
        return None if cached is None else memoryview(cached[0])[offset - start : offset - start + length]

    def covering(self, span: Span) -> Span:
        """Return the blocks that overlap `span`; return `span` itself for an object without checksums."""
        return span if self._sums is None else self._blocks(*span)

    def _blocks(self, start: int, end: int) -> Span:
        return start - start % SUM_BLOCK, min(self.size, end + -end % SUM_BLOCK)

    def close(self) -> None:
        """Close the open file, if any."""
        if self._handle is not None:
            self._handle.close()

    def _cached(self, spans: Sequence[Span]) -> list[bytes] | None:
        """Return the verified bytes of `spans` if the page cache or the block cache has them all.

        Otherwise return None, because a disk read would block the event loop.
        """
        parts = []
        for start, end in spans:
            part = self._read_now(start, end)
            if part is None:
                return None
            parts.append(part)
        return parts

    def _read_now(self, start: int, end: int) -> bytes | None:
        if self._handle is None:
            if self._cache is None or self._sums is None:
                return None
            return self._cache.read_now(self.name, start, end, self._sums)
        try:
            return _core.read_cached(self._handle.fileno(), start, end, self._sums)
        except IntegrityError as error:
            raise self._damaged(error.offset) from None

    def _blocking(self, start: int, end: int) -> bytes:
        """Return the verified bytes of a span. This call blocks."""
        if self._handle is None:
            cached = self._cached([(start, end)])
            if cached is not None:
                return cached[0]
            return asyncio.run_coroutine_threadsafe(self._distant([(start, end)]), self._worker.loop).result()[0]
        data = self._handle.pread(start, end)
        self._verify(data, start)
        return data

    async def _distant(self, spans: Sequence[Span]) -> Sequence[bytes]:
        """Return the verified bytes of spans from the block cache or the storage."""
        if self._cache is None or self._sums is None:
            return await self._verified(spans)
        return await self._cache.fetch(self.name, spans, self._sums, self._verified)

    async def _verified(self, spans: Sequence[Span]) -> Sequence[bytes]:
        """Return the verified bytes of spans from the storage."""
        parts = await self._ranges(spans)
        for part, (start, _) in zip(parts, spans, strict=True):
            self._verify(part, start)
        return parts

    async def _ranges(self, spans: Sequence[Span]) -> Sequence[bytes]:
        try:
            if self._likely_etag is not None and len(spans) > 1:
                with suppress(Conflict):
                    # Given several distant spans and no entity tag, a remote storage first requests the tag, to pin it.
                    return await self._storage.get_ranges(self._key, spans, if_etag=self._likely_etag)
                self._likely_etag = None
            parts = await self._storage.get_ranges(self._key, spans, if_etag=self._etag)
            if self._is_unsteady:  # the file may have changed during the read, so its tag is compared again
                await self._storage.get_range(self._key, 0, 0, if_etag=self._etag)
        except (Conflict, NotFound, IntegrityError) as error:
            raise self._lost(error) from error
        return parts

    def _lost(self, error: ProtosliceError) -> ProtosliceError:
        """Return the error for a missing or changed object: `Conflict` if it is external, else `IntegrityError`."""
        if self._in_place:
            return Conflict(CHANGED)
        if isinstance(error, IntegrityError):
            return error
        return IntegrityError(f"stored object {self.name!r} is missing or was replaced")

    def _verify(self, data: bytes | memoryview, start: int, end: int | None = None) -> None:
        """Verify bytes that begin at the offset `start` of the object.

        If `end` is not None, verify only the bytes before `end`.
        """
        bad = None if self._sums is None else _core.first_bad_block(data, start // SUM_BLOCK, self._sums, end)
        if bad is not None:
            raise self._damaged(bad * SUM_BLOCK)

    def _damaged(self, offset: int | None) -> IntegrityError:
        error = IntegrityError(f"stored object {self.name!r} is damaged: a block fails its checksum", offset)
        error.object = self.name
        return error


def _parts(rest: bytes, piece: memoryview) -> Iterator[memoryview]:
    """Yield the rest of the previous piece, completed to a block; then yield the remaining piece without copying."""
    head = SUM_BLOCK - len(rest) if rest else 0
    if rest:
        yield memoryview(b"".join((rest, piece[:head])))
    if len(piece) > head:
        yield piece[head:]


class HeldObject(StoredObject):
    """An object whose bytes are inside a manifest: they are in memory, and were verified with the manifest."""

    def __init__(self, storage: Storage, stored: ObjectLocation, held: bytes, worker: Worker) -> None:
        # As with other objects, equal names mean equal bytes.
        key = ObjectKey(f"held/{hashlib.sha256(held).hexdigest()}")
        super().__init__(storage, key, stored, None, None, worker)
        self._held = held

    @property
    def is_near(self) -> bool:
        """See `StoredObject.is_near`."""
        return True

    @property
    def weight(self) -> int:
        """See `StoredObject.weight`."""
        return len(self._held)

    async def stream(self, start: int, end: int) -> AsyncGenerator[bytes | memoryview, None]:
        """See `StoredObject.stream`."""
        if start < end:
            yield self._held[start:end]

    def _read_now(self, start: int, end: int) -> bytes:
        return self._held[start:end]

    def _blocking(self, start: int, end: int) -> bytes:
        return self._held[start:end]


async def open_object(
    storage: Storage,
    stored: ObjectLocation,
    worker: Worker,
    *,
    verify: bool,
    cache: BlockCache | None = None,
    sums: bytes | None = None,
) -> StoredObject:
    """Open the storage's object at `stored.key`; reads compare its checksums when `verify` is True.

    `sums` are the checksums of an object that this process wrote. Without `sums`, they come from the location or are
    read from the storage. Raise `IntegrityError` when the object or its checksums are missing, or when an open file has
    another length.
    """
    if stored.held is not None:
        return HeldObject(storage, stored, stored.held, worker)
    key = ObjectKey(stored.key or "")
    try:
        sums = stored.sums if sums is None else sums
        if verify and sums is None:
            sums_key, length = sums_of(key), 4 * -(-stored.size // SUM_BLOCK)
            sums = await recorded(cache, sums_key, lambda: storage.get_range(sums_key, 0, length))
        handle = await storage.open_file(key) if storage.abilities.open_file else None
    except NotFound as error:
        raise IntegrityError(f"stored object {str(key)!r}, or its checksums, are missing") from error
    if handle is not None and handle.stat.size != stored.size:
        handle.close()
        raise IntegrityError(f"stored object {str(key)!r} is damaged: its length has changed", stored.size)
    return StoredObject(storage, key, stored, sums if verify else None, handle, worker, cache)


async def recorded(cache: BlockCache | None, key: ObjectKey, read: Callable[[], Awaitable[bytes]]) -> bytes:
    """Return the record at `key` from `cache`, or by calling `read` if there is no cache; a record never changes."""
    return await (read() if cache is None else cache.record(str(key), read))
