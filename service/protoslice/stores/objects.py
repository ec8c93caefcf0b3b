"""Reading stored objects: by range, every block compared with its sum before a byte of it goes anywhere."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from protoslice import _core
from protoslice.errors import Conflict, IntegrityError, InvalidInput, NotFound, ProtosliceError
from protoslice.storage import ObjectKey, OpenFile, Span, Storage
from protoslice.stores import keys
from protoslice.stores.model import Stored

__all__ = ["BLOCK", "CHANGED", "Runner", "StoredObject", "open_object"]

BLOCK = 64 << 10
"""Bytes that one sum covers."""

CHANGED = "an object that this store was registered over has changed, or is gone: register it anew"

_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)

T = TypeVar("T")


class Runner(Protocol):
    """Runs blocking calls off the event loop."""

    loop: asyncio.AbstractEventLoop

    async def run(self, call: Callable[[], T]) -> T:
        """The result of `call`."""


class StoredObject:
    """An object, held open where its storage can: a `RangeSource` for worker threads, spans of blocks for the loop."""

    def __init__(
        self,
        storage: Storage,
        key: ObjectKey,
        stored: Stored,
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
        self.name = str(key)

    def read(self, offset: int, length: int, /) -> bytes:
        """Exactly the `length` bytes at `offset`, verified. Blocks: for worker threads, never the loop's."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise InvalidInput(f"bytes {offset} to {offset + length} are not in an object of {self.size}")
        start, end = self.covering((offset, offset + length))
        data = self._blocking(start, end)
        self._verify(data, start)
        return data[offset - start : offset - start + length]

    async def fetch(self, spans: Sequence[Span]) -> Sequence[bytes | bytearray]:
        """The bytes of `spans`, which `covering` gave, verified."""
        parts: Sequence[bytes | bytearray]
        if self._handle is None:
            parts = await self._ranges(spans)
        else:
            cached = _cached(self._handle.fileno(), spans)
            parts = await self._runner.run(lambda: self._all(spans)) if cached is None else cached
        for part, (start, _) in zip(parts, spans, strict=True):
            self._verify(part, start)
        return parts

    def at_hand(self, offset: int, length: int, scratch: memoryview) -> memoryview | None:
        """The bytes, verified, if they can be had without waiting: in `scratch`, and gone when that is used again."""
        start, end = self.covering((offset, offset + length))
        if self._handle is None or end - start > len(scratch):
            return None
        blocks = scratch[: end - start]
        if not _is_cached(self._handle.fileno(), blocks, start):
            return None
        self._verify(blocks, start)
        return blocks[offset - start : offset - start + length]

    def covering(self, span: Span) -> Span:
        """The whole blocks that `span` touches; `span` itself where there are no sums to compare."""
        start, end = span
        if self._sums is None:
            return span
        return start - start % BLOCK, min(self.size, end + -end % BLOCK)

    def close(self) -> None:
        """Give back what was held open."""
        if self._handle is not None:
            self._handle.close()

    def _all(self, spans: Sequence[Span]) -> list[bytes]:
        return [self._blocking(*span) for span in spans]

    def _blocking(self, start: int, end: int) -> bytes:
        if self._handle is not None:
            return self._handle.pread(start, end)
        return asyncio.run_coroutine_threadsafe(self._ranges([(start, end)]), self._runner.loop).result()[0]

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

    def _verify(self, data: bytes | bytearray | memoryview, start: int) -> None:
        if self._sums is None:
            return
        bad = _core.first_bad_block(data, start // BLOCK, self._sums)
        if bad is not None:
            error = IntegrityError(
                f"the stored object {self.name!r} is damaged: a block fails its checksum", bad * BLOCK
            )
            error.object = self.name
            raise error


def _cached(fd: int, spans: Sequence[Span]) -> Sequence[bytes | bytearray] | None:
    """The bytes of `spans`, if they lie in the page cache: a cold page must not hold up the loop."""
    parts = [bytearray(end - start) for start, end in spans]
    filled = all(_is_cached(fd, part, start) for part, (start, _) in zip(parts, spans, strict=True))
    return parts if filled else None


def _is_cached(fd: int, part: bytearray | memoryview, start: int) -> bool:
    """Fill `part` with the bytes from `start` on, if they lie in the page cache."""
    if _NOWAIT is None:
        return False
    try:
        return os.preadv(fd, [part], start, _NOWAIT) == len(part)
    except OSError:
        return False


async def open_object(storage: Storage, stored: Stored, runner: Runner, *, verify: bool) -> StoredObject:
    """The object of ours that `stored` names, with its sums when it is to be verified."""
    key = ObjectKey(stored.key or "")
    sums = None
    try:
        if verify:
            sums = await storage.get_range(keys.sums_of(key), 0, 4 * -(-stored.size // BLOCK))
        handle = await storage.open_file(key) if storage.abilities.open_file else None
    except NotFound as error:
        raise IntegrityError(f"the stored object {str(key)!r}, or its sums, are missing") from error
    if handle is not None and handle.stat.size != stored.size:
        handle.close()
        raise IntegrityError(f"the stored object {str(key)!r} is damaged: its length is not what it was", stored.size)
    return StoredObject(storage, key, stored, sums, handle, runner)
