"""Directory tree accessed through descriptors, so that no name and no link leads out. Calls block."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

from protoslice.errors import Conflict, NotFound, ProtosliceError, StorageDenied, StorageFull, StorageUnavailable
from protoslice.storage.keys import MAX_SEGMENTS, RESERVED
from protoslice.storage.local.known_folders import KnownFolders

Found = Generator[tuple[str, os.stat_result], None, None]

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_MODE: Final = 0o600
"""Mode of all files: some are secrets, and models are private too."""
_FOLDER_MODE: Final = 0o700
_STAGING: Final = (RESERVED, "tmp")
_TRIES: Final = 16

_ERRORS: Final[dict[int, tuple[type[ProtosliceError], str]]] = {
    errno.ENOENT: (NotFound, "no such object"),
    errno.ENOTDIR: (NotFound, "no such object"),
    errno.ELOOP: (StorageDenied, "it is a symbolic link"),
    errno.EACCES: (StorageDenied, "permission denied"),
    errno.EPERM: (StorageDenied, "the file system denies it"),
    errno.EROFS: (StorageDenied, "read-only file system"),
    errno.ENOSPC: (StorageFull, "no space left"),
    errno.EDQUOT: (StorageFull, "disk quota exceeded"),
    errno.EFBIG: (StorageFull, "the file is too large for the file system"),
    errno.EEXIST: (Conflict, "it exists"),
    errno.EISDIR: (Conflict, "a folder has that name"),
    errno.ENOTEMPTY: (Conflict, "a folder has that name"),
}


@contextmanager
def explained(doing: str, name: object, **other: tuple[type[ProtosliceError], str]) -> Iterator[None]:
    """Turn an `OSError` in the block into a `ProtosliceError`; `other` overrides the table, by errno name."""
    try:
        yield
    except OSError as error:
        code = error.errno or 0
        kind, why = _ERRORS.get(
            code, (StorageUnavailable, f"the file system reports {errno.errorcode.get(code, 'a fault')}")
        )
        kind, why = other.get(errno.errorcode.get(code, ""), (kind, why))
        raise kind(f"cannot {doing} {str(name)!r}: {why}") from None


class Tree:
    """Files and folders below one root, named by path segments.

    Links below the root are never followed; the root itself may be a link, because the operator named it.
    """

    def __init__(self, root: str) -> None:
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._known = KnownFolders()

    def close(self) -> None:
        """Close all descriptors; harmless when repeated."""
        self._known.close()
        root, self._root = self._root, -1
        if root >= 0:
            os.close(root)

    @contextmanager
    def folders(self, segments: Sequence[str], *, create: bool = False) -> Iterator[list[int]]:
        """Descriptors of the root and of each folder of `segments`, in order; `create` makes missing folders."""
        with ExitStack() as stack:
            chain = [self._root]
            for segment in segments:
                folder = _make_folder(segment, chain[-1]) if create else os.open(segment, _FOLDER, dir_fd=chain[-1])
                stack.callback(os.close, folder)
                chain.append(folder)
            yield chain

    def open(self, segments: Sequence[str]) -> int:
        """Read-only descriptor of the entry at `segments`; never blocks on a pipe or follows a link."""
        with self.folders(segments[:-1]) as chain:
            return os.open(segments[-1], _READ, dir_fd=chain[-1])

    def facts(self, segments: Sequence[str]) -> os.stat_result:
        """`os.stat_result` of the entry at `segments`, of a link the link's own."""
        with self.folders(segments[:-1]) as chain:
            return os.stat(segments[-1], dir_fd=chain[-1], follow_symlinks=False)

    def free_bytes(self) -> int:
        """Bytes that an unprivileged user may still write."""
        with explained("measure", "storage"):
            facts = os.fstatvfs(self._root)
        return facts.f_bavail * facts.f_frsize

    def create_staging(self, name: str) -> int:
        """Create a temporary file and return its descriptor, whose shared lock marks a live writer."""
        with self.folders(_STAGING, create=True) as chain:
            staging = os.open(name, _CREATE, _FILE_MODE, dir_fd=chain[-1])
            fcntl.flock(staging, fcntl.LOCK_SH)
            return staging

    def drop_staging(self, name: str) -> None:
        """Remove a temporary file, if it still exists."""
        try:
            with self.folders(_STAGING) as chain:
                os.unlink(name, dir_fd=chain[-1])
        except FileNotFoundError:
            return

    def publish(self, staging: str, segments: Sequence[str]) -> None:
        """Give a temporary file its final name, durably, in place of what has the name."""
        for _ in range(_TRIES):
            try:
                with self.folders(_STAGING) as staging_folder, self.folders(segments[:-1], create=True) as chain:
                    try:
                        os.rename(staging, segments[-1], src_dir_fd=staging_folder[-1], dst_dir_fd=chain[-1])
                    except OSError:
                        _drop_empty(segments, chain)
                        raise
                    # Another process may have made a folder and not synced it yet: all that are not known are synced.
                    self._known.sync(chain)
                    return
            except FileNotFoundError:
                continue  # a delete removed an empty folder on the way
        raise OSError(errno.EAGAIN, "a folder was removed again and again while the file was written: try again")

    def remove(self, segments: Sequence[str]) -> None:
        """Remove a file durably, and the folders that become empty."""
        with self.folders(segments[:-1]) as chain:
            os.unlink(segments[-1], dir_fd=chain[-1])
            os.fsync(chain[-1])
            _drop_empty(segments, chain)

    def walk(self, segments: Sequence[str], after: str) -> Found:
        """Key and `os.stat_result` of each entry but folders below `segments`, in key order, after `after`."""
        with self.folders(segments) as chain:
            yield from _walk(
                chain[-1], "".join(f"{segment}/" for segment in segments), after, MAX_SEGMENTS - len(segments)
            )

    def drop_old_staging(self, before: float) -> int:
        """Remove temporary files last written before the Unix time `before`, and return their number.

        Files whose writer is alive are kept.
        """
        try:
            with self.folders(_STAGING) as chain:
                return sum(_drop_if_abandoned(name, chain[-1], before) for name in os.listdir(chain[-1]))
        except FileNotFoundError:
            return 0


def _drop_empty(segments: Sequence[str], chain: Sequence[int]) -> None:
    """Remove the folders of `chain` that are empty, the innermost first."""
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
        # A folder sorts as the keys in it do: "a-b" < "a/b" < "a0".
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
