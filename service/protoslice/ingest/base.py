"""Bases of uploads: a new file shares the bytes that it has in common with a file of an earlier store.

The known checksums of the base's blocks show where a comparison is worthwhile. Bytes are shared only after they have
been read and compared. So a file that has nothing in common with the base causes no reads.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from types import TracebackType
from typing import Final, Self

from protoslice import _core
from protoslice.concurrency.executor import Worker
from protoslice.errors import IntegrityError, NotFound
from protoslice.facts import File
from protoslice.ingest.file_writer import FileWriter
from protoslice.ingest.sharing import LEAST_SHARED, worth_sharing
from protoslice.serving.opened import OpenStore
from protoslice.serving.representation import Representation
from protoslice.serving.shared import Space
from protoslice.serving.stored import SUM_BLOCK
from protoslice.storage import Span

_WINDOW: Final = 4 << 20
"""The number of bytes that are compared at a time; a multiple of the block size."""
_LEAST: Final = 1 << 20
"""The size in bytes from which a file is compared with the base; smaller files share objects with each other."""

FindBase = Callable[[], Awaitable[OpenStore | None]]
"""A function that finds the store that files are compared with, or returns None."""


async def base_of(space: Space, tags: Sequence[str], named: str | None = None) -> BaseStore | None:
    """Return the base of an upload: the store `named`, or else the store of the first tag; None if there is neither.

    Raise `NotFound` when the store `named` does not exist.
    """
    if named is not None:
        base = BaseStore(partial(space.view, named), space.worker)
        await base.store()  # so that an unknown store is reported before the body is read
        return base
    return BaseStore(partial(_by_tag, space, tags[0]), space.worker) if tags else None


async def _by_tag(space: Space, tag: str) -> OpenStore | None:
    with suppress(NotFound):
        store = await space.tags.version_before(tag)
        return None if store is None else await space.open_store(store)
    return None


class BaseStore:
    """The base of one upload, which is looked up once, when the first file needs it."""

    def __init__(self, find: FindBase, worker: Worker) -> None:
        self._find: FindBase | None = find
        self._worker = worker
        self._store: OpenStore | None = None
        self._worth = frozenset[str]()

    def comparing(self, writer: FileWriter, path: str) -> DedupingWriter:
        """Return a writer for the file at `path` that shares equal bytes with the base's file."""
        return DedupingWriter(writer, path, self, self._worker)

    async def store(self) -> OpenStore | None:
        """Return the base, or None if the upload has none."""
        find, self._find = self._find, None
        if find is not None:
            store = self._store = await find()
            if store is not None:
                self._worth = await self._worker.run(
                    lambda: worth_sharing(each.location for each in store.refs.values())
                )
        return self._store

    async def file(self, path: str) -> _BaseFile | None:
        """Return the base's file at `path`, or else its only file; None if the file's bytes are not in the storage."""
        store = await self.store()
        if store is None:
            return None
        if path not in store.refs and len(store.info.files) == 1:
            path = store.info.files[0].path
        return _BaseFile(store, path, self._worth) if path in store.refs else None


class DedupingWriter:
    """A `FileWriter` that shares the base's bytes where equal bytes have the same offset. It is a context manager."""

    def __init__(self, writer: FileWriter, path: str, base: BaseStore, worker: Worker) -> None:
        self._writer = writer
        self._path = path
        self._worker = worker
        self._unasked: BaseStore | None = base
        self._base: _BaseFile | None = None
        self._gathered: list[bytes] = []
        self._size = 0
        self._at = 0

    async def __aenter__(self) -> Self:
        return self

    async def write(self, piece: bytes) -> None:
        """Append `piece`; see `FileWriter.write`."""
        if self._unasked is None and self._base is None:
            await self._writer.write(piece)
            return
        self._gathered.append(piece)
        self._size += len(piece)
        while self._size >= _WINDOW:
            await self._take()

    async def close(self) -> File:
        """Finish the file; see `FileWriter.close`."""
        while self._size:
            await self._take()
        return await self._writer.close()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._base is not None:
            await self._base.close()

    async def _take(self) -> None:
        """Process the first window of the buffered bytes."""
        data = b"".join(self._gathered)
        data, rest = data[:_WINDOW], data[_WINDOW:]
        self._gathered, self._size = [rest] if rest else [], len(rest)
        if self._unasked is not None and len(data) >= _LEAST:
            base, self._unasked = self._unasked, None
            self._base = None if await self._writer.exists_already() else await base.file(self._path)
        if self._base is not None:
            await self._compare(self._base, data)
        else:
            await self._writer.write(data + rest)
            self._gathered, self._size = [], 0
        self._at += len(data)

    async def _compare(self, base: _BaseFile, data: bytes) -> None:
        done = 0
        for start, end in await self._worker.run(lambda: [*base.alike(self._at, data)]):
            part = data[start:end]
            if not await base.has(self._at + start, part):
                continue
            if done < start:
                await self._writer.write(data[done:start])
            at = start
            for extent in base.location.extents(self._at + start, self._at + end):
                await self._writer.share(extent, base.worth, _one(data[at : at + extent.size]))
                at += extent.size
            done = end
        if done < len(data):
            await self._writer.write(data[done:])


class _BaseFile:
    """A file of the base, which is read in order as long as it equals the new file."""

    def __init__(self, store: OpenStore, path: str, worth: frozenset[str]) -> None:
        self.location = store.refs[path].location
        self.worth = worth
        self._stored = store.files[path]
        self._rope: Representation = store.file(path)
        self._pieces: AsyncGenerator[bytes | memoryview, None] | None = None
        self._rest = memoryview(b"")
        self._at = 0

    def alike(self, at: int, data: bytes) -> Iterator[Span]:
        """Yield the parts of `data` whose blocks have the base's checksums.

        `data` begins at offset `at`. This call blocks.
        """
        sums, end = _core.BlockSums(), min(at + len(data), self._stored.size)
        sums.update(data)
        came, equal, start = sums.finish(), set[int](), 0
        for stored, low, high in self._stored.extents(at, max(at, end)):
            known = stored.sums_of(low, high) if start % SUM_BLOCK == 0 else b""
            first = start // SUM_BLOCK
            for number in range(len(known) // 4):
                if known[4 * number : 4 * number + 4] == came[4 * (first + number) : 4 * (first + number) + 4]:
                    equal.add(first + number)
            start += high - low
        for _, run in groupby(enumerate(sorted(equal)), lambda each: each[1] - each[0]):
            blocks = [number for _, number in run]
            span = blocks[0] * SUM_BLOCK, min((blocks[-1] + 1) * SUM_BLOCK, end - at)
            if span[0] == 0 or span[1] - span[0] >= LEAST_SHARED:  # the first span may continue a shared part
                yield span

    async def has(self, start: int, data: bytes) -> bool:
        """Return True if the base has these bytes at `start`.

        Return False if they differ, or if the base is damaged or gone.
        """
        if self._pieces is None or start != self._at:
            await self.close()
            self._pieces, self._at = self._rope.pieces(start, self._rope.size), start
        with suppress(IntegrityError, NotFound):
            return await self._reads(self._pieces, data)
        self._pieces = None
        return False

    async def close(self) -> None:
        """End a read that has begun."""
        pieces, self._pieces, self._rest = self._pieces, None, memoryview(b"")
        if pieces is not None:
            await pieces.aclose()

    async def _reads(self, pieces: AsyncGenerator[bytes | memoryview, None], data: bytes) -> bool:
        at, same = 0, True
        while at < len(data):
            if not self._rest:
                self._rest = memoryview(await anext(pieces))
            part = self._rest[: len(data) - at]
            same = same and bytes(part) == data[at : at + len(part)]
            self._rest = self._rest[len(part) :]
            at += len(part)
        self._at += len(data)
        return same


async def _one(data: bytes) -> AsyncIterator[bytes]:
    yield data
