"""Blocks and records on the local disk, in a directory that several processes may share.

Each entry is a file <directory>/protoslice/<nn>/<name>, where <nn> are the first digits of its name. No other file of
the directory is read or removed.

A segment, which is 4 MiB of an object, is a sparse file. Each block is at the same offset as in the object, and it
counts as cached if it matches its checksum. No other list of blocks exists, so a crash, a full disk or damage can only
make blocks missing. A record is a file with a SHA-256 of its content.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Final

from protoslice import _core
from protoslice.catalog.manifest import checked, with_digest
from protoslice.concurrency.results import LruCache
from protoslice.errors import IntegrityError
from protoslice.local_files import private_folder

SEGMENT: Final = 4 << 20
_FOLDER: Final = "protoslice"
_BLOCK: Final = 64 << 10
_OPEN: Final = 512
"""Largest number of segments that a process keeps open, so that reading a block in the page cache takes one system
call."""
# A reader of many small ranges reads each block several times. That alone must not make the block more valuable.
AGAIN_SECONDS: Final = 10
"""The number of seconds after a segment's last use before the next use marks the segment as used again."""
# The mark is in the mode, not in the file name: a rename would disturb other processes that open the file.
_USED_AGAIN: Final = stat.S_IXUSR
"""The bit of a file's mode that marks a segment as used again."""
_RECORD: Final = "r"
RECORDS_SHARE: Final = 4
"""Records may take `room // RECORDS_SHARE` bytes, so that blocks keep the rest."""
ONCE_SHARE: Final = 5
"""Segments that were used once keep `room // ONCE_SHARE` bytes; otherwise no new segment could stay."""


class Rank(Enum):
    """The priority of an entry; entries of lower priority are removed first."""

    ONCE = auto()
    """A segment whose blocks were read once, as in a scan."""
    AGAIN = auto()
    """A segment that was read again later."""
    RECORD = auto()
    """An index, plan, checksum list or similar; without it, no byte of its store can be served."""


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """A file of the cache: its name, its size on disk, and the time of its last use in nanoseconds."""

    name: str
    size: int
    used: int
    rank: Rank


class _Segment:
    """An open segment; its descriptor stays open until nothing refers to it, because another thread may be reading."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.touch_at = 0.0
        """The monotonic time from which the next use is recorded."""

    def __del__(self) -> None:
        os.close(self.descriptor)


class DiskBlocks:
    """Blocks of objects in files, about `room` bytes; any thread may read, but only one at a time may write.

    The size is checked each time a sixteenth of `room` has been added. So each process may exceed `room` by that much.
    """

    def __init__(self, directory: Path, room: int) -> None:
        """Open or create the folder; raise `OSError` if other users can change it or this process cannot write it."""
        self.evicted = 0
        """The number of entries that this process has removed to make room."""
        self._room = room
        self._added = room  # the first addition checks the size
        self._lock = threading.Lock()
        self._opened: LruCache[str, _Segment] = LruCache(most=_OPEN, room=_OPEN)
        private_folder(directory)
        with suppress(FileExistsError):
            os.mkdir(directory / _FOLDER, 0o700)
        self._root = os.open(directory / _FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _check_ours(self._root)
        except BaseException:
            os.close(self._root)
            raise

    def close(self) -> None:
        """Close the folder."""
        os.close(self._root)

    def read_now(self, name: str, start: int, end: int, sums: bytes) -> bytes | None:
        """Return verified blocks of one segment if its file is open and the blocks are in the page cache; else None."""
        with self._lock:
            segment = self._opened.get(_file(name, start))
        if segment is None:
            return None
        try:
            data = _core.read_cached(segment.descriptor, start, end, sums)
        except IntegrityError:
            return None
        if data is not None:
            self._touch(segment)
        return data

    def read(self, name: str, start: int, end: int, sums: bytes) -> bytes | None:
        """Return verified blocks of one segment, or None when any of them is missing. This call blocks."""
        file = _file(name, start)
        descriptor = self._open(file)
        if descriptor is None:
            return None
        segment = _Segment(descriptor)
        data = os.pread(descriptor, end - start, start)
        if len(data) < end - start or _core.first_bad_block(data, start // _BLOCK, sums) is not None:
            return None
        self._touch(segment)
        with self._lock:
            self._opened.put(file, segment, 1)
        return data

    def write(self, name: str, start: int, data: memoryview) -> None:
        """Store blocks of one segment, which the caller has verified. This call blocks and may raise `OSError`."""
        self._put(_file(name, start), start, data)

    def read_record(self, name: str) -> bytes | None:
        """Return the record called `name`, or None when it is missing or damaged. This call blocks."""
        descriptor = self._open(_record(name))
        if descriptor is None:
            return None
        with open(descriptor, "rb") as file:
            try:
                data = checked(file.read(), name)
            except IntegrityError:
                return None
            _note_use(descriptor)
            return data

    def write_record(self, name: str, data: bytes) -> None:
        """Store a record, unless it exceeds a sixteenth of `room`. This call blocks and may raise `OSError`."""
        stored = with_digest(data)
        if len(stored) <= self._room // 16:
            self._put(_record(name), 0, memoryview(stored))

    def entries(self) -> Iterator[CacheEntry]:
        """Yield all entries in any order."""
        with os.scandir(self._root) as folders:
            names = [found.name for found in folders if found.is_dir(follow_symlinks=False)]
        for name in names:
            below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._root)
            try:
                with os.scandir(below) as files:
                    for file in files:
                        with suppress(FileNotFoundError):
                            yield _entry(file.name, file.stat(follow_symlinks=False))
            finally:
                os.close(below)

    def remove(self, name: str) -> None:
        """Remove an entry and free its space immediately, even while its file is open."""
        with suppress(FileNotFoundError):
            descriptor = os.open(_path(name), os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._root)
            try:
                os.unlink(_path(name), dir_fd=self._root)
                os.ftruncate(descriptor, 0)
            finally:
                os.close(descriptor)

    def _put(self, file: str, start: int, data: memoryview) -> None:
        # The file is opened for each write: if the segment was evicted, an old descriptor would fill a nameless file.
        self._added += len(data) + -len(data) % 4096
        descriptor = self._open(file, write=True)
        assert descriptor is not None
        try:
            while data:
                count = os.pwrite(descriptor, data, start)
                data, start = data[count:], start + count
        finally:
            os.close(descriptor)
        if self._added * 16 > self._room:
            self._added = 0
            removed = victims(list(self.entries()), self._room)
            for entry in removed:
                self.remove(entry.name)
            self.evicted += len(removed)

    def _open(self, name: str, *, write: bool = False) -> int | None:
        """Return a descriptor of the entry called `name`. If it is missing, create it for a write; else return None."""
        path = _path(name)
        flags = os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_RDWR | os.O_CREAT if write else os.O_RDONLY)
        try:
            return os.open(path, flags, 0o600, dir_fd=self._root)
        except FileNotFoundError:
            if not write:
                return None
        with suppress(FileExistsError):
            os.mkdir(path.partition("/")[0], 0o700, dir_fd=self._root)
        return os.open(path, flags, 0o600, dir_fd=self._root)

    def _touch(self, segment: _Segment) -> None:
        now = time.monotonic()
        if now >= segment.touch_at:
            segment.touch_at = now + AGAIN_SECONDS
            _note_use(segment.descriptor)


def victims(entries: Iterable[CacheEntry], room: int) -> list[CacheEntry]:
    """Return the entries to remove, in order, so that the remaining entries have at most `room` bytes.

    This is a segmented LRU cache. Records beyond their share go first. Then segments that were used once go, until only
    their share is left. At last, the oldest segments of both kinds go.
    """
    oldest = sorted(entries, key=lambda entry: entry.used)
    records = [entry for entry in oldest if entry.rank is Rank.RECORD]
    removed = _oldest(records, sum(entry.size for entry in records) - room // RECORDS_SHARE)
    excess = sum(entry.size for entry in oldest) - room - sum(entry.size for entry in removed)
    once = [entry for entry in oldest if entry.rank is Rank.ONCE]
    spare = sum(entry.size for entry in once) - room // ONCE_SHARE
    removed += _oldest(once, min(excess, spare))
    gone = {entry.name for entry in removed}
    excess = sum(entry.size for entry in oldest if entry.name not in gone) - room
    return removed + _oldest(
        [entry for entry in oldest if entry.rank is not Rank.RECORD and entry.name not in gone], excess
    )


def _oldest(entries: Sequence[CacheEntry], size: int) -> list[CacheEntry]:
    """Return the first entries that have at least `size` bytes in total, or all entries if they have less."""
    taken: list[CacheEntry] = []
    for entry in entries:
        if size <= 0:
            break
        taken.append(entry)
        size -= entry.size
    return taken


def _note_use(descriptor: int) -> None:
    """Record a use if the last recorded use is at least `AGAIN_SECONDS` old, and mark the entry as used again."""
    found = os.fstat(descriptor)
    if time.time() - found.st_mtime >= AGAIN_SECONDS:
        os.fchmod(descriptor, 0o600 | _USED_AGAIN)
        os.utime(descriptor)


def _check_ours(root: int) -> None:
    """Raise `OSError` if other users can change the folder: checksums detect damage, but not forgery."""
    found = os.fstat(root)
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise PermissionError(f"the folder {_FOLDER!r} in it belongs to another user, or other users can access it")
    if not os.access(".", os.W_OK, dir_fd=root):
        raise PermissionError(f"the folder {_FOLDER!r} in it cannot be written")


def _file(name: str, start: int) -> str:
    return f"b{_digest(name)}-{start // SEGMENT:x}"


def _record(name: str) -> str:
    return f"{_RECORD}{_digest(name)}"


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def _path(name: str) -> str:
    return f"{name[1:3]}/{name}"


def _entry(name: str, found: os.stat_result) -> CacheEntry:
    rank = Rank.RECORD if name.startswith(_RECORD) else Rank.AGAIN if found.st_mode & _USED_AGAIN else Rank.ONCE
    return CacheEntry(name, found.st_blocks * 512, found.st_mtime_ns, rank)
