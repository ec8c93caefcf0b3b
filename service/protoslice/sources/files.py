"""Sources on this machine: files, bytes in memory, file objects."""

from __future__ import annotations

import errno
import os
import stat
import threading
from typing import BinaryIO

from protoslice._core import CoreFile
from protoslice.closing import ClosedAtEnd
from protoslice.errors import CorruptModel, InvalidInput, NotFound, ProtosliceError, StorageDenied, StorageError

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
        """The path, as that of any file object."""
        return self.path

    def fileno(self) -> int:
        """The file descriptor; it remains owned by this object."""
        return self._fd

    def core_file(self) -> CoreFile | None:
        """The file as the engine reads it; None after `close`, or if `path` now names another file."""
        # The engine opens the file anew, by its path: device and inode prove that it is the same one.
        if self._core_file is None and self._fd >= 0:
            found = os.fstat(self._fd)
            self._core_file = CoreFile.open(self.path, found.st_dev, found.st_ino)
        return self._core_file

    def read(self, offset: int, length: int, /) -> bytes:
        """Exactly `length` bytes at `offset`.

        `CorruptModel` for a range beyond the end, `StorageError` when the read fails or the file has shrunk.
        """
        _check(offset, length, self.size, self.path)
        if length > _LONGEST_READ:
            return self._read_long(offset, length)
        part = self._pread(offset, length)
        return part if len(part) == length else self._read_long(offset, length)

    def close(self) -> None:
        """Close the file descriptor, and drop the engine's file; may be called twice."""
        fd, self._fd = self._fd, -1
        self._core_file = None
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        if hasattr(self, "_fd"):
            self.close()

    def _read_long(self, offset: int, length: int) -> bytes:
        parts = []
        while length:
            part = self._pread(offset, min(length, _LONGEST_READ))
            if not part:
                raise _short(self.path, offset)
            parts.append(part)
            offset, length = offset + len(part), length - len(part)
        return b"".join(parts)

    def _pread(self, offset: int, length: int) -> bytes:
        try:
            return os.pread(self._open_fd(), length, offset)
        except OSError as error:
            raise _cannot_read(self.path, error) from error

    def _open_fd(self) -> int:
        if self._fd < 0:
            raise InvalidInput(f"{self.path} is closed; open it again to read from it")
        return self._fd


class BytesSource:
    """Bytes in memory, held without a copy."""

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._view = memoryview(data).cast("B").toreadonly()
        self.size = self._view.nbytes

    def read(self, offset: int, length: int, /) -> bytes:
        """Exactly `length` bytes at `offset`; `CorruptModel` for a range beyond the end."""
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
        """Exactly `length` bytes at `offset`.

        `CorruptModel` for a range beyond the end, `StorageError` when the file has shrunk.
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
