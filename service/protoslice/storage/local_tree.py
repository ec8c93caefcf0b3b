"""A directory tree that is accessed through descriptors, so that no name or link leads out of it. All calls block.

A new file first has a temporary name, and gets its final name when it is published durably.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat as modes
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from secrets import randbits, token_hex
from types import TracebackType
from typing import Final

from protoslice.errors import (
    Conflict,
    InvalidInput,
    NotFound,
    ProtosliceError,
    StorageDenied,
    StorageFull,
    StorageUnavailable,
)
from protoslice.storage.interface import Buffer, ObjectStat
from protoslice.storage.keys import MAX_SEGMENTS, RESERVED, ObjectKey

Found = Generator[tuple[str, os.stat_result], None, None]

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_MODE: Final = 0o600
"""The mode of all files, which only the owner may access, because models are private and some files are secrets."""
_FOLDER_MODE: Final = 0o700
_STAGING: Final = (RESERVED, "tmp")
_TRIES: Final = 16

_ERRORS: Final[dict[int, tuple[type[ProtosliceError], str]]] = {
    errno.ENOENT: (NotFound, "no such object"),
    errno.ENOTDIR: (NotFound, "no such object"),
    errno.ELOOP: (StorageDenied, "it is a symbolic link"),
    errno.EACCES: (StorageDenied, "permission denied"),
    errno.EPERM: (StorageDenied, "the file system denies access"),
    errno.EROFS: (StorageDenied, "read-only file system"),
    errno.ENOSPC: (StorageFull, "no space left"),
    errno.EDQUOT: (StorageFull, "disk quota exceeded"),
    errno.EFBIG: (StorageFull, "the file is too large for the file system"),
    errno.EEXIST: (Conflict, "it exists"),
    errno.EISDIR: (Conflict, "a folder has that name"),
    errno.ENOTEMPTY: (Conflict, "a folder has that name"),
}
_WRITTEN = 64 << 10
"""Largest number of bytes in one `write` call.

For longer calls, the kernel searches for long runs of free memory. On Linux 6.18 with ext4, that search took several
times as long as the write.
"""
_AHEAD = 8 << 20
"""Number of written bytes after which the kernel is asked to start write-back."""
_MOST: Final = 128
"""Largest number of folders in `KnownFolders`; each folder keeps one descriptor open."""


class explained:  # noqa: N801 - named as those of contextlib, whose generators take four times as many steps
    """Convert an `OSError` in the block to a `ProtosliceError`; `other`, keyed by errno name, overrides `_ERRORS`."""

    def __init__(self, doing: str, name: object, **other: tuple[type[ProtosliceError], str]) -> None:
        self._about = doing, name, other

    def __enter__(self) -> None:
        return

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not isinstance(error, OSError):
            return
        doing, name, other = self._about
        code = error.errno or 0
        kind, why = _ERRORS.get(
            code, (StorageUnavailable, f"the file system reports {errno.errorcode.get(code, 'a fault')}")
        )
        kind, why = other.get(errno.errorcode.get(code, ""), (kind, why))
        raise kind(f"cannot {doing} {str(name)!r}: {why}") from None


class Tree:
    """The files and folders below one root, named by path segments.

    Symbolic links below the root are never followed. The root may be a link, because the operator chose it.
    """

    def __init__(self, root: str) -> None:
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._known = KnownFolders()

    def close(self) -> None:
        """Close all descriptors; repeated calls do nothing."""
        self._known.close()
        root, self._root = self._root, -1
        if root >= 0:
            os.close(root)

    @contextmanager
    def folders(self, segments: Sequence[str], *, create: bool = False) -> Iterator[list[int]]:
        """Yield descriptors of the root and of each folder on the path; `create` makes missing folders."""
        with ExitStack() as stack:
            chain = [self._root]
            for segment in segments:
                folder = _make_folder(segment, chain[-1]) if create else os.open(segment, _FOLDER, dir_fd=chain[-1])
                stack.callback(os.close, folder)
                chain.append(folder)
            yield chain

    def open(self, segments: Sequence[str]) -> int:
        """Open a file for reading and return its descriptor; never block on a pipe, never follow a link."""
        with self.folders(segments[:-1]) as chain:
            return os.open(segments[-1], _READ, dir_fd=chain[-1])

    def facts(self, segments: Sequence[str]) -> os.stat_result:
        """Return the `os.stat_result` of an entry; for a link, describe the link instead of its target."""
        with self.folders(segments[:-1]) as chain:
            return os.stat(segments[-1], dir_fd=chain[-1], follow_symlinks=False)

    def free_bytes(self) -> int:
        """Return how many bytes an unprivileged user may still write."""
        with explained("measure", "storage"):
            facts = os.fstatvfs(self._root)
        return facts.f_bavail * facts.f_frsize

    def create_staging(self, name: str) -> int:
        """Create a temporary file and return its descriptor; a shared lock on it shows that its writer is alive."""
        with self.folders(_STAGING, create=True) as chain:
            staging = os.open(name, _CREATE, _FILE_MODE, dir_fd=chain[-1])
            fcntl.flock(staging, fcntl.LOCK_SH)
            return staging

    def drop_staging(self, name: str) -> None:
        """Remove a temporary file if it still exists."""
        try:
            with self.folders(_STAGING) as chain:
                os.unlink(name, dir_fd=chain[-1])
        except FileNotFoundError:
            return

    def publish(self, staging: str, segments: Sequence[str]) -> None:
        """Rename a temporary file to its final name durably, replacing an existing file."""
        for _ in range(_TRIES):
            try:
                with self.folders(_STAGING) as staging_folder, self.folders(segments[:-1], create=True) as chain:
                    try:
                        os.rename(staging, segments[-1], src_dir_fd=staging_folder[-1], dst_dir_fd=chain[-1])
                    except OSError:
                        _drop_empty(segments, chain)
                        raise
                    # Another process may have made a folder without syncing it yet, so every folder that is not known
                    # to be durable is synced.
                    self._known.sync(chain)
                    return
            except FileNotFoundError:
                continue  # a concurrent delete has removed an empty folder of the path
        raise OSError(errno.EAGAIN, "a folder was removed again and again while the file was written: try again")

    def remove(self, segments: Sequence[str]) -> None:
        """Remove a file durably, then every folder that has become empty."""
        with self.folders(segments[:-1]) as chain:
            os.unlink(segments[-1], dir_fd=chain[-1])
            os.fsync(chain[-1])
            _drop_empty(segments, chain)

    def walk(self, segments: Sequence[str], after: str) -> Found:
        """Yield the key and `os.stat_result` of each entry, except folders, below the folder `segments`.

        The entries come in key order and begin after the key `after`.
        """
        with self.folders(segments) as chain:
            yield from _walk(
                chain[-1], "".join(f"{segment}/" for segment in segments), after, MAX_SEGMENTS - len(segments)
            )

    def drop_old_staging(self, before: float) -> int:
        """Remove temporary files that were last written before the Unix time `before`; return how many were removed.

        A file whose writer is alive is kept.
        """
        try:
            with self.folders(_STAGING) as chain:
                return sum(_drop_if_abandoned(name, chain[-1], before) for name in os.listdir(chain[-1]))
        except FileNotFoundError:
            return 0


def _drop_empty(segments: Sequence[str], chain: Sequence[int]) -> None:
    """Remove the empty folders of `chain`, from the innermost outwards; stop at the first that is not empty."""
    for depth in range(len(chain) - 2, -1, -1):
        try:
            os.rmdir(segments[depth], dir_fd=chain[depth])
        except OSError:
            return  # not empty


def _make_folder(name: str, parent: int) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=parent)
    except FileNotFoundError:
        with suppress(FileExistsError):
            os.mkdir(name, _FOLDER_MODE, dir_fd=parent)
        return os.open(name, _FOLDER, dir_fd=parent)


def _walk(folder: int, above: str, after: str, depth: int) -> Found:
    with os.scandir(folder) as entries:
        # A folder sorts like the keys inside it, that is with a slash: "a-b" < "a/b" < "a0".
        names = sorted(f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name for entry in entries)
    for name in names:
        path = above + name
        if path <= after and not (name.endswith("/") and after.startswith(path)):
            continue
        with suppress(FileNotFoundError, NotADirectoryError):
            if not name.endswith("/"):
                yield path, os.stat(name, dir_fd=folder, follow_symlinks=False)
            elif depth > 1 and path != f"{RESERVED}/":
                yield from _walk_into(folder, name[:-1], path, after, depth - 1)


def _walk_into(parent: int, name: str, path: str, after: str, depth: int) -> Found:
    folder = os.open(name, _FOLDER, dir_fd=parent)
    try:
        yield from _walk(folder, path, after, depth)
    finally:
        os.close(folder)


def _drop_if_abandoned(name: str, folder: int, before: float) -> bool:
    with suppress(FileNotFoundError, BlockingIOError):
        staging = os.open(name, _READ, dir_fd=folder)
        try:
            if os.fstat(staging).st_mtime >= before:
                return False
            fcntl.flock(staging, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(name, dir_fd=folder)
            return True
        finally:
            os.close(staging)
    return False


class StagingFile:
    """The temporary file of a new object.

    Threads may share a `StagingFile`: a lock admits one call at a time, and `drop` waits for a running call.
    """

    def __init__(self, tree: Tree, key: ObjectKey) -> None:
        self._tree = tree
        self._key = key
        self._name = token_hex(16)
        self._mutex = threading.Lock()
        self._descriptor = -1
        self._named = False
        self._size = self._begun = 0
        with explained("create", key):
            self._descriptor = tree.create_staging(self._name)

    def __del__(self) -> None:
        # If the caller was cancelled during creation, it never received this object and cannot drop the file.
        with suppress(Exception):
            self._drop()

    def write(self, piece: Buffer) -> None:
        """Append `piece`."""
        with self._mutex, explained("write", self._key), memoryview(piece).cast("B") as view:
            at = 0
            while at < len(view):
                at += os.write(self._open(), view[at : at + _WRITTEN])
            self._size += len(view)
            if self._size - self._begun >= _AHEAD:
                self._begin()

    def publish(self) -> str:
        """Publish the file durably under its key and return its entity tag; on failure, drop the file."""
        with self._mutex:
            try:
                with explained("publish", self._key, ENOTDIR=(Conflict, "a file exists where a folder is needed")):
                    etag = self._publish()
                    self._named = True
                    return etag
            finally:
                self._drop()

    def drop(self) -> None:
        """Remove the file unless it was published; repeated calls do nothing."""
        with self._mutex:
            self._drop()

    def _begin(self) -> None:
        """Start write-back of the bytes written so far, so that the final `fsync` has little left to write."""
        # `POSIX_FADV_DONTNEED` makes Linux start write-back of dirty pages. Pages in write-back stay in the cache.
        with suppress(OSError):  # only a hint
            os.posix_fadvise(self._open(), self._begun, self._size - self._begun, os.POSIX_FADV_DONTNEED)
        self._begun = self._size

    def _publish(self) -> str:
        # The entity tag contains this time. It is finer than the kernel's clock, and random low bits avoid repetition.
        moment = (time.time_ns() & ~0xFFFFF) | randbits(20)
        os.utime(self._open(), ns=(moment, moment))
        os.fsync(self._open())
        etag = describe(self._key, os.fstat(self._open())).etag
        self._tree.publish(self._name, self._key.segments)
        return etag

    def _open(self) -> int:
        if self._descriptor < 0:
            raise InvalidInput("the writer is already closed")
        return self._descriptor

    def _drop(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
            if self._named:
                return  # publishing removed the temporary name
            with explained("clean up after", self._key):
                self._tree.drop_staging(self._name)


class KnownFolders:
    """The folders that were recently synced, identified by inode.

    A descriptor stays open for each of these folders, so that no other folder can get the same inode. Folders are never
    renamed, so a folder that was synced into its parent stays in that parent until it is removed.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._descriptors: dict[tuple[int, int], int] = {}
        """The open descriptors by device and inode; the most recently used folder is last."""
        self._closed = False

    def sync(self, chain: Sequence[int]) -> None:
        """Make the entries of the last folder durable, and the entry of each folder in its parent."""
        named = [_inode(folder) for folder in chain]
        for depth in range(len(chain) - 1, -1, -1):
            if depth + 1 == len(chain) or not self._knows(named[depth + 1]):
                os.fsync(chain[depth])
        for name, folder in zip(named[1:], chain[1:], strict=True):
            self._learn(name, folder)

    def close(self) -> None:
        """Close all descriptors and accept no more folders."""
        with self._mutex:
            self._closed = True
            while self._descriptors:
                os.close(self._descriptors.popitem()[1])

    def _knows(self, name: tuple[int, int]) -> bool:
        with self._mutex:
            return name in self._descriptors

    def _learn(self, name: tuple[int, int], folder: int) -> None:
        with self._mutex:
            if self._closed:
                return
            known = self._descriptors.pop(name, None)
            self._descriptors[name] = os.dup(folder) if known is None else known
            if len(self._descriptors) > _MOST:
                os.close(self._descriptors.pop(next(iter(self._descriptors))))


def _inode(folder: int) -> tuple[int, int]:
    facts = os.fstat(folder)
    return facts.st_dev, facts.st_ino


def describe(key: ObjectKey, facts: os.stat_result) -> ObjectStat:
    """Return a file's facts as `ObjectStat`; raise `NotFound` for anything that is not a regular file.

    The entity tag consists of modification time, size and inode. Publishing sets random low bits in the time. So a
    reused inode gets another tag even within one tick of the clock, and so does a file that is changed in place.
    """
    if not modes.S_ISREG(facts.st_mode):
        raise NotFound(f"no object {str(key)!r}")
    etag = f"{facts.st_mtime_ns:x}-{facts.st_size:x}-{facts.st_ino:x}"
    return ObjectStat(key, facts.st_size, etag, datetime.fromtimestamp(facts.st_mtime, UTC))
