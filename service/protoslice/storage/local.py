"""The backend of `file://`, which keeps objects as files of a directory.

It is safe against crashes, symbolic links and other processes.

    root/
    ├── .protoslice/tmp/*     temporary files; each is locked by its writer
    └── <key>                 objects, as files

A writer writes a temporary file, syncs it, renames it to its final name, and syncs every folder on the way. The
backend needs Linux, because it uses folder descriptors, flock and pread.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Final

from protoslice.concurrency.executor import Executor
from protoslice.errors import InvalidInput, NotFound, StorageUnavailable
from protoslice.storage.interface import (
    PAGE,
    PIECE,
    Abilities,
    Buffer,
    ObjectContent,
    ObjectStat,
    OpenFile,
    Page,
    Span,
    Storage,
    Writer,
    refuse_options,
)
from protoslice.storage.keys import ObjectKey
from protoslice.storage.local_tree import StagingFile, Tree, describe, explained
from protoslice.storage.ranges import check_inside, check_limit, check_span
from protoslice.uris import parse_root

_THREADS: Final = 16

_NO_FOLDER: Final = {
    "EEXIST": (InvalidInput, "not a folder"),
    "ENOTDIR": (InvalidInput, "not a folder"),
    "ENOENT": (NotFound, "no such folder"),
}
ABILITIES: Final = Abilities(open_file=True, free_space=True)


def open(uri: str, options: Mapping[str, str]) -> FileStorage:
    """Open the directory at `uri`; create it if it is missing."""
    refuse_options("file", options)
    return FileStorage(parse_root(uri).path)


class FileStorage(Storage):
    """A storage whose objects are files below one directory; `create` allows it to make a missing directory."""

    def __init__(self, root: str, *, create: bool = True) -> None:
        with explained("open storage at", root, **_NO_FOLDER):
            if create:
                os.makedirs(root, 0o700, exist_ok=True)
            self._tree = Tree(root)
        self._threads = Executor(_THREADS, "storage")

    @property
    def abilities(self) -> Abilities:
        """All abilities of the interface."""
        return ABILITIES

    async def stat(self, key: ObjectKey) -> ObjectStat:
        return await self._threads.run(lambda: self._stat(key))

    async def get(self, key: ObjectKey) -> ObjectContent:
        def read() -> ObjectContent:
            with closing(self._open(key, None)) as file, explained("read", key):
                return ObjectContent(file.stat, file.pread(0, file.stat.size))

        return await self._threads.run(read)

    async def get_range(self, key: ObjectKey, start: int, end: int, *, if_etag: str | None = None) -> bytes:
        return (await self.get_ranges(key, [(start, end)], if_etag=if_etag))[0]

    async def get_ranges(self, key: ObjectKey, spans: Sequence[Span], *, if_etag: str | None = None) -> Sequence[bytes]:
        for start, end in spans:
            check_span(start, end)

        def read() -> Sequence[bytes]:
            with closing(self._open(key, if_etag)) as file, explained("read", key):
                return [file.pread(start, end) for start, end in spans]

        return await self._threads.run(read)

    async def stream(
        self, key: ObjectKey, start: int = 0, end: int | None = None, *, if_etag: str | None = None
    ) -> AsyncGenerator[Buffer, None]:
        check_span(start, start if end is None else end)
        file = await self._threads.run(lambda: self._open(key, if_etag))

        def read(at: int) -> bytes:
            with explained("read", key):
                return file.pread(at, min(at + PIECE, stop))

        with closing(file):
            stop = max(start, file.stat.size) if end is None else end
            file.check(stop)
            at = start
            while at < stop:
                piece = await self._threads.run(lambda at=at: read(at))  # type: ignore[misc]
                at += len(piece)
                yield piece

    async def put(self, key: ObjectKey, data: Buffer) -> str:
        return await self._threads.run(lambda: self._put(key, data))

    async def writer(self, key: ObjectKey) -> Writer:
        return FileWriter(self._threads, await self._threads.run(lambda: StagingFile(self._tree, key)))

    async def list(self, prefix: ObjectKey | None = None, *, after: ObjectKey | None = None, limit: int = PAGE) -> Page:
        check_limit(limit)
        return await self._threads.run(lambda: self._list(prefix, after, limit))

    async def delete(self, key: ObjectKey) -> None:
        await self._threads.run(lambda: self._delete(key))

    async def open_file(self, key: ObjectKey) -> OpenFile:
        return await self._threads.run(lambda: self._open(key, None))

    async def free_bytes(self) -> int:
        return await self._threads.run(self._tree.free_bytes)

    async def collect_garbage(self, older_than_seconds: float = 86400) -> int:
        before = time.time() - older_than_seconds

        def collect() -> int:
            with explained("collect garbage of", "storage"):
                return self._tree.drop_old_staging(before)

        return await self._threads.run(collect)

    async def close(self) -> None:
        await self._threads.close()
        self._tree.close()

    def _stat(self, key: ObjectKey) -> ObjectStat:
        with explained("find", key):
            return describe(key, self._tree.facts(key.segments))

    def _open(self, key: ObjectKey, if_etag: str | None) -> FileHandle:
        with explained("open", key):
            file = FileHandle(key, self._tree.open(key.segments))
        try:
            file.stat.check_etag(if_etag)
        except BaseException:
            file.close()
            raise
        return file

    def _put(self, key: ObjectKey, data: Buffer) -> str:
        staging = StagingFile(self._tree, key)
        try:
            staging.write(data)
            return staging.publish()
        finally:
            staging.drop()

    def _list(self, prefix: ObjectKey | None, after: ObjectKey | None, limit: int) -> Page:
        items: list[ObjectStat] = []
        segments = () if prefix is None else prefix.segments
        missing = suppress(FileNotFoundError, NotADirectoryError)
        walk = closing(self._tree.walk(segments, "" if after is None else after.text))
        with explained("list", prefix or "everything"), missing, walk as files:
            for name, facts in files:
                # A link, a device or a file whose name is not a valid key is not an object of this storage.
                with suppress(InvalidInput, NotFound):
                    items.append(describe(ObjectKey(name), facts))
                if len(items) > limit:
                    return Page(tuple(items[:limit]), items[limit - 1].key)
        return Page(tuple(items), None)

    def _delete(self, key: ObjectKey) -> None:
        missing = suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError)
        with explained("delete", key), missing:
            self._tree.remove(key.segments)


class FileWriter(Writer):
    """A writer that runs the calls of a `StagingFile` in threads."""

    def __init__(self, threads: Executor, staging: StagingFile) -> None:
        self._threads = threads
        self._staging = staging
        self._size = 0
        self._broken = False

    @property
    def size(self) -> int:
        return self._size

    async def write(self, piece: Buffer) -> None:
        self._check()
        self._broken = True  # a failed write may have appended part of the piece
        await self._threads.run(lambda: self._staging.write(piece))
        self._broken = False
        self._size += memoryview(piece).nbytes

    async def commit(self) -> str:
        self._check()
        self._broken = True
        return await self._threads.run(self._staging.publish)

    async def abort(self) -> None:
        self._broken = True
        await self._threads.run(self._staging.drop)

    def _check(self) -> None:
        if self._broken:
            raise InvalidInput("this writer is already closed, or an earlier write failed")


class FileHandle(OpenFile):
    """An open file that any thread can read exactly.

    `close` returns immediately; while reads are running, the last of them closes the descriptor.
    """

    def __init__(self, key: ObjectKey, descriptor: int) -> None:
        self._descriptor = descriptor
        self._mutex = threading.Lock()
        self._readers = 0
        self._closed = False
        try:
            self._stat = describe(key, os.fstat(descriptor))
        except BaseException:
            os.close(descriptor)
            self._descriptor = -1
            raise

    @property
    def stat(self) -> ObjectStat:
        return self._stat

    def fileno(self) -> int:
        return self._descriptor

    def pread(self, start: int, end: int) -> bytes:
        self.check(end)
        with self._mutex:
            if self._closed:
                raise StorageUnavailable("the file is closed")
            self._readers += 1
        try:
            return self._read(start, end)
        finally:
            with self._mutex:
                self._readers -= 1
                self._release()

    def check(self, end: int) -> None:
        """Raise `IntegrityError` when the file ends before `end`."""
        check_inside(self._stat.key, end, self._stat.size)

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            self._release()

    def __del__(self) -> None:
        self.close()

    def _read(self, start: int, end: int) -> bytes:
        data = os.pread(self._descriptor, end - start, start)
        pieces = [data]
        at = start + len(data)
        while at < end:  # pread returns at most 2 GiB per call, and b"" if the file was truncated meanwhile
            data = os.pread(self._descriptor, end - at, at)
            if not data:
                check_inside(self._stat.key, end, at)
            pieces.append(data)
            at += len(data)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _release(self) -> None:
        if self._closed and not self._readers and self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
