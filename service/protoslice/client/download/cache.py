"""Pieces of models on the local disk, found by their sha-256: what one version has, the next need not fetch."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from protoslice.errors import InvalidInput, StorageError

__all__ = ["Cache"]

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_ABANDONED_SECONDS: Final = 3600


class Cache:
    """A folder of at most about `max_bytes`, least recently used pieces going first. Processes may share it.

    Nothing in it is believed: what is read is compared with its digest, and removed when it is something else. The
    size is looked at whenever a sixteenth of the most has been added, so each process may be over by that much.
    """

    def __init__(self, folder: str | os.PathLike[str], max_bytes: int = 10 << 30) -> None:
        if max_bytes < 0:
            raise InvalidInput("max_bytes is a size in bytes, from 0 on")
        self.folder = Path(folder).expanduser()
        self.max_bytes = max_bytes
        self._added = max_bytes  # so that the first addition looks at what is there
        self._lock = threading.Lock()

    def get(self, sha256: str, size: int) -> bytes | None:
        """The piece, if it is there and is what it should be."""
        path = self._path(sha256)
        try:
            with path.open("rb") as file:
                data = file.read(size + 1)
        except OSError:
            return None
        if len(data) != size or hashlib.sha256(data).hexdigest() != sha256:
            with suppress(OSError):
                path.unlink()
            return None
        with suppress(OSError):
            os.utime(path)
        return data

    def has(self, sha256: str, size: int) -> bool:
        """Whether the piece seems to be there: `get` tells for sure."""
        try:
            return self._path(sha256).stat().st_size == size
        except OSError:
            return False

    def put(self, sha256: str, data: bytes | memoryview) -> None:
        """Keep a piece. What cannot be kept is not: a full disk costs the cache, and no download."""
        if len(data) > self.max_bytes:
            return
        path = self._path(sha256)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".new-", delete=False) as file:
                try:
                    file.write(data)
                    file.close()
                    os.replace(file.name, path)
                except BaseException:
                    os.unlink(file.name)
                    raise
        except OSError:
            return
        with self._lock:
            self._added += len(data)
            due = self._added * 16 > self.max_bytes
            if due:
                self._added = 0
        if due:
            self.shrink()

    def shrink(self) -> int:
        """Remove what was used the longest ago until the rest fits; how many bytes are left."""
        found = sorted(self._entries())
        left = sum(size for _, size, _ in found)
        for _, size, path in found:
            if left <= self.max_bytes:
                break
            with suppress(FileNotFoundError):
                path.unlink()
            left -= size
        return left

    def clear(self) -> None:
        """Remove every piece."""
        for _, _, path in self._entries():
            with suppress(FileNotFoundError):
                path.unlink()

    def _path(self, sha256: str) -> Path:
        if not _DIGEST.fullmatch(sha256):
            raise InvalidInput(f"{sha256[:80]!r} is no sha-256 in hexadecimal digits")
        return self.folder / sha256[:2] / sha256

    def _entries(self) -> Iterator[tuple[float, int, Path]]:
        """When each piece was last used, its size and its place; files half written are pieces that were not used."""
        try:
            folders = [each for each in os.scandir(self.folder) if each.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageError(f"the cache cannot be read: {error.strerror}") from error
        for folder in folders:
            with suppress(FileNotFoundError), os.scandir(folder) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):
                        stat = entry.stat(follow_symlinks=False)
                        age = _ABANDONED_SECONDS if entry.name.startswith(".new-") else 0
                        yield stat.st_mtime - age, stat.st_size, Path(entry.path)
