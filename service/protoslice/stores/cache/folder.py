"""Directory of a cache, shared by processes: its files, its size, and eviction.

    <directory>/protoslice/lock                a lock, and the bytes that are taken, as decimal digits
    <directory>/protoslice/<nn>/<name>         an entry; <nn> are the first digits of its name

Nothing else in the directory is read or removed. All calls block.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from protoslice.local_files import private_folder
from protoslice.stores.cache.eviction import CacheEntry, Rank, victims

FOLDER: Final = "protoslice"
# One reader of a model in small ranges reads each block many times, which does not make the block worth more.
AGAIN_SECONDS: Final = 10
"""Time from the last use of a segment until another one marks it as used again."""
# In the mode and not in the name, which would change under other processes that open the file.
_USED_AGAIN: Final = stat.S_IXUSR
"""Bit of a file's mode that marks a segment used again."""
_RECORD: Final = "r"
_PARTS: Final = 256
_PROCESSES: Final = 32
"""Processes whose reservations fit beside the bytes that eviction leaves."""


class CacheFolder:
    """Files of a cache, by name; names of records begin with `r`.

    Processes reserve room before they write, in parts of a 256th of it, and evict when the room is used up to 7/8. So
    32 processes cannot exceed the room, even if all die with a reservation just made.
    """

    def __init__(self, directory: Path, room: int) -> None:
        """Open the folder, made if need be; `OSError` when it is not ours alone, or cannot be written."""
        self.part = room // _PARTS
        """The most bytes of one reservation."""
        self._limit = room - _PROCESSES * self.part
        self._reserved = 0
        self.evicted = 0
        """Entries that this process has removed for want of room."""
        private_folder(directory)
        with suppress(FileExistsError):
            os.mkdir(directory / FOLDER, 0o700)
        self._root = os.open(directory / FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _check_ours(os.fstat(self._root))
            # Bytes of a cache could be forged: their sums detect damage, but no malice.
            self._lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=self._root)
        except BaseException:
            os.close(self._root)
            raise

    def close(self) -> None:
        """Close the folder."""
        os.close(self._lock)
        os.close(self._root)

    def open(self, name: str, *, write: bool = False) -> int | None:
        """A descriptor of the entry called `name`, created when it is to be written; None when there is none."""
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

    def touch(self, descriptor: int) -> None:
        """Note a use, if the last one is longer ago than `AGAIN_SECONDS`; the entry is used again then."""
        found = os.fstat(descriptor)
        if time.time() - found.st_mtime >= AGAIN_SECONDS:
            os.fchmod(descriptor, 0o600 | _USED_AGAIN)
            os.utime(descriptor)

    def remove(self, name: str) -> None:
        """Remove an entry; its room is free at once, whoever has it open."""
        with suppress(FileNotFoundError):
            descriptor = os.open(_path(name), os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._root)
            try:
                os.unlink(_path(name), dir_fd=self._root)
                os.ftruncate(descriptor, 0)
            finally:
                os.close(descriptor)

    def reserve(self, size: int) -> bool:
        """Take room for `size` bytes that are going to be written, False while others evict, or above `part`.

        One thread at a time calls this.
        """
        with self._locked() as free:
            if not free or size > self.part:
                return False
            if size > self._reserved:
                taken = self._taken() + self.part
                if taken > self._limit:
                    taken = self._evict(self._limit * 7 // 8) + self.part
                self._write_taken(taken)
                self._reserved += self.part
            self._reserved -= size
            return True

    def entries(self) -> Iterator[CacheEntry]:
        """All entries, in no order."""
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

    def _evict(self, room: int) -> int:
        """Remove what is too much for `room`; the bytes that are left."""
        found = list(self.entries())
        removed = victims(found, room)
        for entry in removed:
            self.remove(entry.name)
        self.evicted += len(removed)
        return sum(entry.size for entry in found) - sum(entry.size for entry in removed)

    @contextmanager
    def _locked(self) -> Iterator[bool]:
        """Hold the lock of all processes, without waiting for an eviction; False when another has it."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        try:
            yield True
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _taken(self) -> int:
        """The bytes taken as last written; those of the files when that is no number, as in a new folder."""
        text = os.pread(self._lock, 32, 0)
        return int(text) if text.isdigit() else sum(entry.size for entry in self.entries())

    def _write_taken(self, size: int) -> None:
        text = str(size).encode()
        os.pwrite(self._lock, text, 0)
        os.ftruncate(self._lock, len(text))


def _check_ours(found: os.stat_result) -> None:
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise PermissionError(f"its folder {FOLDER!r} belongs to another user, or is accessible to others")


def _path(name: str) -> str:
    return f"{name[1:3]}/{name}"


def _entry(name: str, found: os.stat_result) -> CacheEntry:
    rank = Rank.RECORD if name.startswith(_RECORD) else Rank.AGAIN if found.st_mode & _USED_AGAIN else Rank.ONCE
    return CacheEntry(name, found.st_blocks * 512, found.st_mtime_ns, rank)
