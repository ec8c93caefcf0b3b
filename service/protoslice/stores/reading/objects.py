"""Reading stored objects: by range, every block compared with its sum before a byte of it goes anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from protoslice import _core
from protoslice.errors import Conflict, IntegrityError, InvalidInput, NotFound, ProtosliceError
from protoslice.storage import ObjectKey, OpenFile, Span, Storage
from protoslice.stores.layout import keys
from protoslice.stores.manifest import ObjectLocation
from protoslice.stores.reading.computed import Readable

__all__ = ["CHANGED", "SUM_BLOCK", "Notes", "Runner", "StoredFile", "StoredObject", "open_object"]

SUM_BLOCK = 64 << 10
"""Bytes that one sum covers."""

CHANGED = "an object that this store was registered over has changed, or is gone: register it anew"

T = TypeVar("T")


class Runner(Protocol):
    """Runs blocking calls off the event loop."""

    loop: asyncio.AbstractEventLoop

    async def run(self, call: Callable[[], T]) -> T:
        """The result of `call`."""


class Notes(Protocol):
    """Keeps what small reads of objects gave, by the number of the object."""

    def get(self, number: int, offset: int, length: int) -> bytes | None:
        """What such a read gave, if it is known."""

    def put(self, number: int, offset: int, data: bytes) -> None:
        """Note what a read gave."""

    def around(self, number: int, offset: int, length: int) -> bytes | None:
        """The bytes, if they lie in what was read lately."""

    def came(self, number: int, offset: int, data: bytes) -> None:
        """Hold what was read for a while: the next read may be of bytes beside those that were wanted."""


class StoredFile(Readable, Protocol):
    """The bytes of a file of a store: an object, several of them, or a part of one."""

    @property
    def name(self) -> str:
        """The key of the object, or of the first."""

    @property
    def parts(self) -> Sequence[StoredObject]:
        """The objects that hold the file."""

    def close(self) -> None:
        """Give back the objects that are held open."""


class StoredObject:
    """An object, held open where its storage can: a `RangeSource` for worker threads, spans of blocks for the loop."""

    def __init__(
        self,
        storage: Storage,
        key: ObjectKey,
        stored: ObjectLocation,
        sums: bytes | None,
        handle: OpenFile | None,
        runner: Runner,
    ) -> None:
        self.size = stored.size
        self._storage = storage
        self._key = key
        self._in_place = stored.uri is not None
        # Our own are held to their sums: so a storage may be copied to another, where its objects have other tags.
        self._etag = stored.etag if sums is None else None
        self._sums = sums
        self._handle = handle
        self._runner = runner
        self._notes: tuple[int, Notes] | None = None
        self.name = str(key)

    @property
    def parts(self) -> Sequence[StoredObject]:
        """See `StoredFile.parts`."""
        return (self,)

    @property
    def is_near(self) -> bool:
        """Whether a read costs next to nothing."""
        return self._handle is not None

    def note_reads(self, number: int, notes: Notes | None) -> None:
        """From now on, look reads up in `notes` under this number, and note them there; until told otherwise."""
        self._notes = None if notes is None else (number, notes)

    def read(self, offset: int, length: int, /) -> bytes:
        """Exactly the `length` bytes at `offset`, verified. Blocks: for worker threads, never the loop's."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise InvalidInput(f"bytes {offset} to {offset + length} are not in an object of {self.size}")
        if self._notes is not None:
            return self._noted(*self._notes, offset, length)
        start, end = self.covering((offset, offset + length))
        return self._blocking(start, end)[offset - start : offset - start + length]

    def _noted(self, number: int, notes: Notes, offset: int, length: int) -> bytes:
        """Such bytes of a distant object: whole blocks come, for one more read costs more than what is beside it."""
        data = notes.get(number, offset, length)
        if data is None:
            data = notes.around(number, offset, length)
            if data is None:
                start, end = self._blocks(offset, offset + length)
                read = self._blocking(start, end)
                notes.came(number, start, read)
                data = read[offset - start : offset - start + length]
            notes.put(number, offset, data)
        return data

    async def fetch(self, spans: Sequence[Span]) -> Sequence[bytes]:
        """The bytes of `spans`, which `covering` gave, verified."""
        cached = self._cached(spans)
        if cached is not None:
            return cached
        if self._handle is not None:
            return await self._runner.run(lambda: [self._blocking(*span) for span in spans])
        parts = await self._ranges(spans)
        for part, (start, _) in zip(parts, spans, strict=True):
            self._verify(part, start)
        return parts

    def at_hand(self, offset: int, length: int) -> memoryview | None:
        """The bytes, verified, if they can be had without waiting; none where that is not so."""
        start, end = self.covering((offset, offset + length))
        cached = self._cached([(start, end)])
        return None if cached is None else memoryview(cached[0])[offset - start : offset - start + length]

    def covering(self, span: Span) -> Span:
        """The whole blocks that `span` touches; `span` itself where there are no sums to compare."""
        return span if self._sums is None else self._blocks(*span)

    def _blocks(self, start: int, end: int) -> Span:
        return start - start % SUM_BLOCK, min(self.size, end + -end % SUM_BLOCK)

    def close(self) -> None:
        """Give back what was held open."""
        if self._handle is not None:
            self._handle.close()

    def _cached(self, spans: Sequence[Span]) -> list[bytes] | None:
        """The bytes of `spans`, verified, if they lie in the page cache: a cold page must not hold up the loop."""
        if self._handle is None:
            return None
        parts = []
        for start, end in spans:
            try:
                part = _core.read_cached(self._handle.fileno(), start, end, self._sums)
            except IntegrityError as error:
                raise self._damaged(error.offset) from None
            if part is None:
                return None
            parts.append(part)
        return parts

    def _blocking(self, start: int, end: int) -> bytes:
        """The bytes of a span, verified, from a worker thread."""
        if self._handle is not None:
            data = self._handle.pread(start, end)
        else:
            data = asyncio.run_coroutine_threadsafe(self._ranges([(start, end)]), self._runner.loop).result()[0]
        self._verify(data, start)
        return data

    async def _ranges(self, spans: Sequence[Span]) -> Sequence[bytes]:
        try:
            parts = await self._storage.get_ranges(self._key, spans, if_etag=self._etag)
            if self._in_place and self._storage.abilities.open_file:
                # Strangers write to local files as they please: what was read counts if nothing has changed by now.
                await self._storage.get_range(self._key, 0, 0, if_etag=self._etag)
        except (Conflict, NotFound, IntegrityError) as error:
            raise self._lost(error) from error
        return parts

    def _lost(self, error: ProtosliceError) -> ProtosliceError:
        """What it means that the object is not what it was."""
        if self._in_place:
            return Conflict(CHANGED)
        if isinstance(error, IntegrityError):
            return error
        return IntegrityError(f"the stored object {self.name!r} is missing, or another")

    def _verify(self, data: bytes, start: int) -> None:
        bad = None if self._sums is None else _core.first_bad_block(data, start // SUM_BLOCK, self._sums)
        if bad is not None:
            raise self._damaged(bad * SUM_BLOCK)

    def _damaged(self, offset: int | None) -> IntegrityError:
        error = IntegrityError(f"the stored object {self.name!r} is damaged: a block fails its checksum", offset)
        error.object = self.name
        return error


async def open_object(storage: Storage, stored: ObjectLocation, runner: Runner, *, verify: bool) -> StoredObject:
    """The object of ours that `stored` names, with its sums when it is to be verified."""
    key = ObjectKey(stored.key or "")
    sums = None
    try:
        if verify:
            sums = await storage.get_range(keys.sums_of(key), 0, 4 * -(-stored.size // SUM_BLOCK))
        handle = await storage.open_file(key) if storage.abilities.open_file else None
    except NotFound as error:
        raise IntegrityError(f"the stored object {str(key)!r}, or its sums, are missing") from error
    if handle is not None and handle.stat.size != stored.size:
        handle.close()
        raise IntegrityError(f"the stored object {str(key)!r} is damaged: its length is not what it was", stored.size)
    return StoredObject(storage, key, stored, sums, handle, runner)
