"""Files below a directory by path: any number of them, of which few are open at a time."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from protoslice._core import CoreFile
from protoslice.concurrency.lru import LruCache
from protoslice.defaults import MAX_FILES
from protoslice.errors import InvalidInput, LimitExceeded, StorageError
from protoslice.sources.files import FileSource
from protoslice.sources.source import FileSet

_MOST_FOLDERS: Final = 10 * MAX_FILES
MOST_OPEN: Final = 32
"""Files of a folder that stay open; each may take two descriptors, one of them the engine's."""


class Folder(FileSet):
    """Files below a directory by path, without those whose links lead out of it.

    The files used last stay open; others are opened again when they are read. The file that the caller has `named` may
    be such a link, or missing: opening it says so.
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
        """Paths in order; `LimitExceeded` for more files than a model has, before the first path."""
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
    """A file of a folder, a `RangeSource` that holds no descriptor of its own."""

    def __init__(self, path: str, opened: _OpenFiles) -> None:
        self._path = path
        self._opened = opened
        found = opened.get(path, None)
        self._identity = _identity(found)
        self.size = found.size

    @property
    def name(self) -> str:
        """Path of the file, as that of any file object."""
        return self._path

    def core_file(self) -> CoreFile | None:
        """See `FileSource.core_file`."""
        return self._opened.get(self._path, self._identity).core_file()

    def read(self, offset: int, length: int, /) -> bytes:
        """See `FileSource.read`; `StorageError` as well when the file has been changed while it was not open."""
        return self._opened.get(self._path, self._identity).read(offset, length)


_Identity = tuple[int, int, int, int]


class _OpenFiles:
    """The files used last, at most `MOST_OPEN`."""

    def __init__(self) -> None:
        self._kept: LruCache[str, FileSource] | None = LruCache(most=MOST_OPEN, room=MOST_OPEN)
        self._lock = threading.Lock()

    def get(self, path: str, identity: _Identity | None) -> FileSource:
        """The file at `path`, opened if need be; `StorageError` unless it has the given identity."""
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
    """Device, inode, size and time of modification in nanoseconds."""
    found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
