"""Sources of range reads: files, URIs, bytes in memory, file objects, and the protocol for others."""

from __future__ import annotations

import errno
import io
import os
import re
import stat
import threading
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import BinaryIO, Final, Protocol, Self, cast, runtime_checkable

from protoslice._core import CoreFile, Sources
from protoslice.errors import CorruptModel, InvalidInput, NotFound, ProtosliceError, StorageDenied, StorageError

__all__ = [
    "BytesSource", "Closable", "FileObjectSource", "FileSet", "FileSource", "RangeSource", "SourceLike",
    "SourceOwner", "as_source", "filename_of", "is_uri", "local_path", "opened_by",
]  # fmt: skip

_URI: Final = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
"""Begin of a URI; a scheme of one letter is a drive of Windows."""
_LONGEST_READ = 1 << 30  # bytes per call; the kernel stops at 2 GiB


@runtime_checkable
class RangeSource(Protocol):
    """Immutable bytes, read by range."""

    @property
    def size(self) -> int:
        """Length in bytes."""

    def read(self, offset: int, length: int, /) -> bytes:
        """Exactly `length` bytes at `offset`; raises an error for any fewer."""


@runtime_checkable
class Closable(Protocol):
    """Object that holds files or connections."""

    def close(self) -> None:
        """Release what is held; may be called twice."""


class SourceOwner:
    """Reader of sources, which closes what was opened for it; a context that ends by closing."""

    def __init__(self, sources: Sequence[RangeSource]) -> None:
        self._read = Sources(sources)
        self._owned: list[Closable] = []

    def own(self, *taken: Closable) -> None:
        """Close `taken` together with this reader."""
        self._owned += taken

    def close(self) -> None:
        """Close the files that were opened for this reader; its ropes become unreadable."""
        self._read.close()
        while self._owned:
            self._owned.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


class FileSet(Mapping[str, RangeSource]):
    """Files by path, each opened when it is asked for and closed with the others."""

    @abstractmethod
    def size_of(self, path: str) -> int:
        """Size in bytes of the file at `path`, which is not opened; `KeyError` when there is none."""

    @abstractmethod
    def close(self) -> None:
        """Close the opened files; may be called twice."""


SourceLike = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO | RangeSource


class FileSource:
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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


def is_uri(name: object) -> bool:
    """True for a text such as `s3://bucket/key`, unless a file of that name exists."""
    return isinstance(name, str) and _URI.match(name) is not None and not os.path.lexists(name)


def local_path(uri: str) -> str | None:
    """The path that a `file://` URI names; None for other schemes, `InvalidInput` for a malformed one."""
    if not uri.lower().startswith("file://"):
        return None
    from protoslice.storage.locations import parse_root

    return "/" + "/".join(parse_root(uri).segments)


def as_source(x: SourceLike, storage_options: Mapping[str, str] | None = None) -> RangeSource:
    """A range source over a path, a URI, bytes or a seekable binary file.

    Range sources are returned as they are. `storage_options` are those of the storage at a URI; without them
    PROTOSLICE_STORAGE_OPTIONS counts. `InvalidInput` for any other object, or an unknown scheme.
    """
    if is_uri(x):
        from protoslice.storage.blocking import open_object

        uri = cast(str, x)
        path = local_path(uri)
        return open_object(uri, storage_options) if path is None else FileSource(path)
    if isinstance(x, str | os.PathLike):
        return FileSource(x)
    if isinstance(x, bytes | bytearray | memoryview):
        return BytesSource(x)
    if (file := _as_file(x)) is not None:
        return FileObjectSource(file)
    if hasattr(x, "size") and hasattr(x, "read"):
        return cast(RangeSource, x)
    raise InvalidInput(
        f"{type(x).__name__} is not a source: give a path, a URI, bytes, a seekable binary file, "
        "or an object with `size` and `read(offset, length)`"
    )


def filename_of(source: SourceLike) -> str | None:
    """File name of `source` without folders; None for bytes and for sources without a name."""
    name = source if isinstance(source, str | os.PathLike) else getattr(source, "name", None)
    return os.path.basename(os.fspath(name)) if isinstance(name, str | os.PathLike) else None


def opened_by(source: RangeSource, x: SourceLike) -> list[Closable]:
    """`source`, to be closed, when `as_source(x)` has opened a file or a storage; else nothing."""
    return [source] if source is not x and isinstance(source, Closable) else []


def _as_file(x: object) -> BinaryIO | None:
    if isinstance(x, io.TextIOBase):
        raise InvalidInput("a file object has to be open in binary mode to be a source")
    seekable = getattr(x, "seekable", None)
    return cast(BinaryIO, x) if seekable is not None and seekable() else None


def _check(offset: int, length: int, size: int, name: str) -> None:
    if offset < 0 or length < 0:
        raise InvalidInput(f"a range of {name} must not begin at {offset} with length {length}")
    if offset + length > size:
        raise CorruptModel(f"{name} has {size} bytes where {offset + length} are needed", offset)


def _short(name: str, offset: int) -> StorageError:
    return StorageError(f"{name} has become shorter while it was read", offset)


def _cannot_read(name: str, error: OSError) -> StorageError:
    return StorageError(f"{name} cannot be read: {error.strerror}")


def _cannot_open(name: str, error: OSError) -> ProtosliceError:
    message = f"{name} cannot be opened: {error.strerror}"
    match error:
        case FileNotFoundError():
            return NotFound(message)
        case PermissionError():
            return StorageDenied(message)
        case _:
            return StorageError(message)
