"""Folder of a storage as a mapping of range sources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from protoslice.defaults import MAX_FILES
from protoslice.errors import InvalidInput, LimitExceeded
from protoslice.sources.remote.reader import BlockingReader
from protoslice.sources.remote.source import ObjectSource
from protoslice.sources.source import FileSet
from protoslice.storage.interface import ObjectStat
from protoslice.storage.keys import ObjectKey

MOST_FILES: Final = MAX_FILES
"""Objects of a folder that are listed; a model has no more files."""


class ObjectFolder(FileSet):
    """Objects of a storage by path, each pinned to the version that was found first.

    A path that is asked for costs one request; going through all paths costs a listing, after which no path costs any.
    """

    def __init__(self, reader: BlockingReader, uri: str) -> None:
        """`uri` is that of the folder, for messages."""
        self._reader = reader
        self._uri = uri.rstrip("/")
        self._found: dict[str, ObjectStat | None] = {}
        self._open: dict[str, ObjectSource] = {}
        self._listed = False

    def __getitem__(self, path: str) -> ObjectSource:
        if path not in self._open:
            found = self.find(path)
            if found is None:
                raise KeyError(path)
            self._open[path] = ObjectSource(self._reader, found, f"{self._uri}/{path}")
        return self._open[path]

    def __contains__(self, path: object) -> bool:
        return isinstance(path, str) and self.find(path) is not None

    def __iter__(self) -> Iterator[str]:
        self._list()
        return iter(sorted(path for path, found in self._found.items() if found is not None))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def find(self, path: str) -> ObjectStat | None:
        """Facts of the object at `path`; None when there is none, or when `path` is no key."""
        if path not in self._found and not self._listed:
            try:
                key = ObjectKey(path)
            except InvalidInput:
                return None
            self._found[path] = self._reader.find(key)
        return self._found.get(path)

    def size_of(self, path: str) -> int:
        return self[path].size

    def close(self) -> None:
        """Close the storage; see `FileSet.close`."""
        self._reader.close()

    def _list(self) -> None:
        if self._listed:
            return
        listed = self._reader.listed(None, MOST_FILES + 1)
        if len(listed) > MOST_FILES:
            raise LimitExceeded(
                f"{self._uri} contains more than {MOST_FILES} objects: pass the folder or the file of a single model"
            )
        for found in listed:
            self._found.setdefault(found.key.text, found)
        self._listed = True
