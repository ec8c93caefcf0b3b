"""The sources on this machine: files, bytes in memory, file objects, and folders of files."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from protoslice._core import CoreFile
from protoslice.concurrency.results import LruCache
from protoslice.defaults import MAX_FILES
from protoslice.errors import (
    CorruptModel,
    InvalidInput,
    LimitExceeded,
    NotFound,
    ProtosliceError,
    StorageDenied,
    StorageError,
)
from protoslice.sources.source import ClosedAtEnd, FileSet

_LONGEST_READ = 1 << 30  # bytes per call; the kernel reads less than 2 GiB in one call


class FileSource(ClosedAtEnd):
    """A local file that is read with `pread`. Threads may share the source."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._fd = -1
        self._core_file: CoreFile | None = None
        try:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            if stat.S_ISDIR(os.fstat(self._fd).st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            self.size = os.lseek(self._fd, 0, os.SEEK_END)
        except OSError as error:
            self.close()
            raise _cannot_open(self.path, error) from error

    @property
    def name(self) -> str:
        """The path of the file; file objects have this attribute too."""
        return self.path

    def fileno(self) -> int:
        """Return the file descriptor. Callers must not close it, because this object closes it."""
        return self._fd

    def core_file(self) -> CoreFile | None:
        """Return the file as an object of the Rust engine, which can read the file without Python.

        Return None after `close`. Also return None if `path` now names another file.
        """
        # The engine opens the path again: equal device and inode numbers prove that it opened the same file.
        if self._core_file is None and self._fd >= 0:
            found = os.fstat(self._fd)
            self._core_file = CoreFile.open(self.path, found.st_dev, found.st_ino)
        return self._core_file

    def read(self, offset: int, length: int, /) -> bytes:
        """Return exactly `length` bytes at `offset`.

        Raise `CorruptModel` if the range exceeds the file. Raise `StorageError` if the read fails, or if the file
        has become shorter.
        """
        _check(offset, length, self.size, self.path)
        part = self._pread(offset, length)
        if len(part) == length:
            return part
        parts, done = [part], len(part)
        while done < length:
            if not part:
                raise _short(self.path, offset + done)
            part = self._pread(offset + done, length - done)
            parts.append(part)
            done += len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Close the file descriptor and the engine's file. A second call does nothing."""
        fd, self._fd = self._fd, -1
        self._core_file = None
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        if hasattr(self, "_fd"):
            self.close()

    def _pread(self, offset: int, length: int) -> bytes:
        if self._fd < 0:
            raise InvalidInput(f"{self.path} is closed; open it again to read from it")
        try:
            return os.pread(self._fd, min(length, _LONGEST_READ), offset)
        except OSError as error:
            raise _cannot_read(self.path, error) from error


class BytesSource:
    """A source over bytes in memory, which are not copied."""

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._view = memoryview(data).cast("B").toreadonly()
        self.size = self._view.nbytes

    def read(self, offset: int, length: int, /) -> bytes:
        """Return exactly `length` bytes at `offset`; raise `CorruptModel` if the range exceeds the bytes in memory."""
        _check(offset, length, self.size, "the bytes in memory")
        return bytes(self._view[offset : offset + length])


class FileObjectSource:
    """A source over a seekable binary file object.

    Each read moves the position of the file object. A lock admits one read at a time.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._name = str(getattr(file, "name", "the file object"))
        self.size = file.seek(0, os.SEEK_END)

    def read(self, offset: int, length: int, /) -> bytes:
        """Return exactly `length` bytes at `offset`.

        Raise `CorruptModel` if the range exceeds the file, and `StorageError` if the file has become shorter.
        """
        _check(offset, length, self.size, self._name)
        parts: list[bytes] = []
        with self._lock:
            self._file.seek(offset)
            while length:
                part = self._file.read(length)
                if not part:
                    raise _short(self._name, offset + sum(map(len, parts)))
                parts.append(part)
                length -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _check(offset: int, length: int, size: int, name: str) -> None:
    if offset < 0 or length < 0:
        raise InvalidInput(f"Invalid range of {name}: offset {offset}, length {length}")
    if offset + length > size:
        raise CorruptModel(f"{name} has only {size} bytes, but {offset + length} are needed", offset)


def _short(name: str, offset: int) -> StorageError:
    return StorageError(f"{name} became shorter while it was read", offset)


def _cannot_read(name: str, error: OSError) -> StorageError:
    return StorageError(f"Cannot read {name}: {error.strerror}")


def _cannot_open(name: str, error: OSError) -> ProtosliceError:
    message = f"Cannot open {name}: {error.strerror}"
    match error:
        case FileNotFoundError():
            return NotFound(message)
        case PermissionError():
            return StorageDenied(message)
        case _:
            return StorageError(message)


_MOST_FOLDERS: Final = 10 * MAX_FILES
MOST_OPEN: Final = 32
"""Maximum number of files of a folder that stay open.

Each open file may take two descriptors, because the engine opens the file too.
"""


class Folder(FileSet):
    """The files below a directory, by path. Links to places outside the directory are left out.

    The most recently used files stay open; other files are opened again when they are read. The file `named` is exempt
    from the rule about links. If this file does not exist, an error is raised only when the file is opened.
    """

    def __init__(self, place: str | os.PathLike[str], named: str | None = None) -> None:
        # Path.resolve() would raise an error for circular links.
        self._place = Path(os.path.realpath(place))
        self._named = named
        self._files: dict[str, FolderFile] = {}
        self._open = _OpenFiles()

    def __getitem__(self, path: str) -> FolderFile:
        if path not in self._files:
            if not self._has(path):
                raise KeyError(path)
            self._files[path] = FolderFile(os.fspath(self._place / path), self._open)
        return self._files[path]

    def __contains__(self, path: object) -> bool:
        return isinstance(path, str) and (path in self._files or self._has(path))

    def __iter__(self) -> Iterator[str]:
        """Return an iterator over the sorted paths.

        Raise `LimitExceeded` before the first path if the directory has more files than a model may have.
        """
        return (path for path in self._listed() if self._has(path))

    def _listed(self) -> list[str]:
        # First count the names, then examine the files: examining a file takes longer than reading its name.
        found: list[str] = []
        for number, (folder, folders, names) in enumerate(os.walk(self._place)):
            folders.sort()
            found += (Path(folder, name).relative_to(self._place).as_posix() for name in sorted(names)[: MAX_FILES + 1])
            if len(found) > MAX_FILES or number > _MOST_FOLDERS:
                most = f"{MAX_FILES} files" if len(found) > MAX_FILES else f"{_MOST_FOLDERS} folders"
                raise LimitExceeded(
                    f"{self._place} contains more than {most}: pass the folder or the file of a single model"
                )
        return found

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def size_of(self, path: str) -> int:
        if not self._has(path):
            raise KeyError(path)
        return os.path.getsize(self._place / path)

    def close(self) -> None:
        """Close the files; every later read raises `InvalidInput`."""
        self._open.close()

    def _has(self, path: str) -> bool:
        if path == self._named or "\0" in path:
            return path == self._named
        found = Path(os.path.realpath(self._place / path))
        return found.is_relative_to(self._place) and found.is_file()


class FolderFile:
    """A file of a folder, as a `RangeSource`. The folder opens and closes the file."""

    def __init__(self, path: str, opened: _OpenFiles) -> None:
        self._path = path
        self._opened = opened
        found = opened.get(path, None)
        self._identity = _identity(found)
        self.size = found.size

    @property
    def name(self) -> str:
        """The path of the file; file objects have this attribute too."""
        return self._path

    def core_file(self) -> CoreFile | None:
        """See `FileSource.core_file`."""
        return self._opened.get(self._path, self._identity).core_file()

    def read(self, offset: int, length: int, /) -> bytes:
        """See `FileSource.read`. Also raise `StorageError` if the file was changed while the folder had closed it."""
        return self._opened.get(self._path, self._identity).read(offset, length)


_Identity = tuple[int, int, int, int]


class _OpenFiles:
    """Largest number of recently used files of a folder, of which at most `MOST_OPEN` stay open."""

    def __init__(self) -> None:
        self._kept: LruCache[str, FileSource] | None = LruCache(most=MOST_OPEN, room=MOST_OPEN)
        self._lock = threading.Lock()

    def get(self, path: str, identity: _Identity | None) -> FileSource:
        """Return the open file at `path`, and open the file first if necessary.

        Raise `StorageError` if a newly opened file does not have the `identity`. An identity of None accepts any file.
        """
        with self._lock:
            found = self._of_open(path).get(path)
        if found is not None:
            return found
        found = FileSource(path)
        if identity not in {None, _identity(found)}:
            found.close()
            raise StorageError(f"{path} changed since it was opened; open it again")
        with self._lock:
            # A file that leaves the cache is not closed here, because another thread may read from it. The file is
            # closed when its last reference disappears.
            self._of_open(path).put(path, found, 1)
        return found

    def close(self) -> None:
        """Close all files."""
        with self._lock:
            self._kept = None

    def _of_open(self, path: str) -> LruCache[str, FileSource]:
        if self._kept is None:
            raise InvalidInput(f"{path} is closed; open it again to read from it")
        return self._kept


def _identity(file: FileSource) -> _Identity:
    """Return the device, the inode, the size, and the modification time in nanoseconds, which identify a file."""
    found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
