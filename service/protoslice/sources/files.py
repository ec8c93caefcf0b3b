"""Sources on this machine: files, bytes in memory, file objects, folders of files."""

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

_LONGEST_READ = 1 << 30  # bytes per call; the kernel stops at 2 GiB


class FileSource(ClosedAtEnd):
    """A file read with `pread`; threads may share it."""

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
        """The path, as for any file object."""
        return self.path

    def fileno(self) -> int:
        """Return the file descriptor; it remains owned by this object."""
        return self._fd

    def core_file(self) -> CoreFile | None:
        """Return the file in the form of the engine; None after `close`, or if `path` now names another file."""
        # The engine opens the file again, by its path: device and inode prove that it is the same one.
        if self._core_file is None and self._fd >= 0:
            found = os.fstat(self._fd)
            self._core_file = CoreFile.open(self.path, found.st_dev, found.st_ino)
        return self._core_file

    def read(self, offset: int, length: int, /) -> bytes:
        """Return exactly `length` bytes at `offset`.

        Raise `CorruptModel` for a range beyond the end, `StorageError` when the read fails or the file has shrunk.
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
        """Close the file descriptor, and drop the engine's file; may be called twice."""
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
    """Bytes in memory, held without a copy."""

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._view = memoryview(data).cast("B").toreadonly()
        self.size = self._view.nbytes

    def read(self, offset: int, length: int, /) -> bytes:
        """Return exactly `length` bytes at `offset`; raise `CorruptModel` for a range beyond the end."""
        _check(offset, length, self.size, "the bytes in memory")
        return bytes(self._view[offset : offset + length])


class FileObjectSource:
    """A seekable binary file object; reads move its position, one at a time under a lock."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._name = str(getattr(file, "name", "the file object"))
        self.size = file.seek(0, os.SEEK_END)

    def read(self, offset: int, length: int, /) -> bytes:
        """Return exactly `length` bytes at `offset`.

        Raise `CorruptModel` for a range beyond the end, `StorageError` when the file has shrunk.
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
"""Files of a folder that stay open; each may take two descriptors, one of them the engine's."""


class Folder(FileSet):
    """Files below a directory by path, without links that lead out of it.

    The files used last stay open; others are opened again when they are read. The file that the caller has `named` may
    be such a link, or missing; opening it raises the error.
    """

    def __init__(self, place: str | os.PathLike[str], named: str | None = None) -> None:
        # Not Path.resolve(), which raises for circular links.
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
        """Return the paths in order; raise `LimitExceeded` for more files than a model has, before the first path."""
        return (path for path in self._listed() if self._has(path))

    def _listed(self) -> list[str]:
        # No file is looked at before all are counted: a look takes longer than the name of one.
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
        """Close the files; reading them raises `InvalidInput` from now on."""
        self._open.close()

    def _has(self, path: str) -> bool:
        if path == self._named or "\0" in path:
            return path == self._named
        found = Path(os.path.realpath(self._place / path))
        return found.is_relative_to(self._place) and found.is_file()


class FolderFile:
    """A file of a folder, a `RangeSource` that holds no open descriptor."""

    def __init__(self, path: str, opened: _OpenFiles) -> None:
        self._path = path
        self._opened = opened
        found = opened.get(path, None)
        self._identity = _identity(found)
        self.size = found.size

    @property
    def name(self) -> str:
        """Path of the file, as for any file object."""
        return self._path

    def core_file(self) -> CoreFile | None:
        """See `FileSource.core_file`."""
        return self._opened.get(self._path, self._identity).core_file()

    def read(self, offset: int, length: int, /) -> bytes:
        """See `FileSource.read`; raise `StorageError` as well when the file has been changed while it was not open."""
        return self._opened.get(self._path, self._identity).read(offset, length)


_Identity = tuple[int, int, int, int]


class _OpenFiles:
    """The files used last, at most `MOST_OPEN`."""

    def __init__(self) -> None:
        self._kept: LruCache[str, FileSource] | None = LruCache(most=MOST_OPEN, room=MOST_OPEN)
        self._lock = threading.Lock()

    def get(self, path: str, identity: _Identity | None) -> FileSource:
        """Return the file at `path`, opened if need be; raise `StorageError` unless it has the given identity."""
        with self._lock:
            found = self._of_open(path).get(path)
        if found is not None:
            return found
        found = FileSource(path)
        if identity not in {None, _identity(found)}:
            found.close()
            raise StorageError(f"{path} changed since it was opened; open it again")
        with self._lock:
            # Evicted files are not closed, as another thread may read from them: the last reference closes them.
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
    """Return the device, inode, size and time of modification in nanoseconds."""
    found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
