"""The local cache of model pieces by SHA-256, from which downloads of other versions take shared pieces."""

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
from protoslice.local_files import private_folder

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_ABANDONED_SECONDS: Final = 3600


class Cache:
    """Keep pieces of models in a local folder, so that a piece that several versions share is downloaded once.

    A cache that exceeds its size removes the least recently used pieces. Every read compares a piece with its digest,
    and removes a damaged piece. Several processes may share the folder. Each process may exceed the size by a
    sixteenth.

    Args:
        folder: Folder of the cache, which is created when it is needed.
        max_bytes: Maximum size in bytes. The default is 10 GiB.

    Raises:
        InvalidInput: `max_bytes` is negative.

    Examples:
        >>> from protoslice.client import Cache
        >>> with protoslice.Client("http://127.0.0.1:8000", token=token, cache=Cache("cache", 1 << 30)) as cached:
        ...     files = cached.download("demo:1", "model/")
    """

    def __init__(self, folder: str | os.PathLike[str], max_bytes: int = 10 << 30) -> None:
        if max_bytes < 0:
            raise InvalidInput("Invalid max_bytes: use a size in bytes, 0 or more")
        self.folder = Path(folder).expanduser()
        self.max_bytes = max_bytes
        self._added = max_bytes  # makes the first `put` check the folder's size
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Cache], tuple[Path, int]]:
        return type(self), (self.folder, self.max_bytes)

    def get(self, sha256: str, size: int) -> bytes | None:
        """Return a piece, or None if the piece is missing or damaged.

        Args:
            sha256: SHA-256 of the piece, in hex.
            size: Size of the piece in bytes.

        Returns:
            The verified bytes of the piece, or None.

        Examples:
            >>> from protoslice.client import Cache
            >>> Cache("empty").get("0" * 64, 100) is None
            True
        """
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
        """Return True if the cache has a file of the right size for the piece. Only `get` verifies the content.

        Args:
            sha256: SHA-256 of the piece, in hex.
            size: Size of the piece in bytes.

        Returns:
            True if the piece seems to be in the cache.

        Examples:
            >>> from protoslice.client import Cache
            >>> Cache("empty").has("0" * 64, 100)
            False
        """
        try:
            return self._path(sha256).stat().st_size == size
        except OSError:
            return False

    def put(self, sha256: str, data: bytes | memoryview) -> None:
        """Keep a piece if possible. A failed write, for example on a full disk, raises no error.

        Args:
            sha256: SHA-256 of the piece, in hex.
            data: The bytes of the piece. A piece larger than the cache is not kept.

        Examples:
            >>> import hashlib
            >>> from protoslice.client import Cache
            >>> cache, digest = Cache("kept"), hashlib.sha256(b"abc").hexdigest()
            >>> cache.put(digest, b"abc")
            >>> cache.get(digest, 3)
            b'abc'
        """
        if len(data) > self.max_bytes:
            return
        # If the disk is full, the piece is not cached, but the download continues.
        path = self._path(sha256)
        try:
            private_folder(path.parent)
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
        """Remove the least recently used pieces until the cache does not exceed its size.

        Returns:
            The number of bytes that remain in the cache.

        Examples:
            >>> from protoslice.client import Cache
            >>> Cache("empty").shrink()
            0
        """
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
        """Remove all pieces from the cache.

        Examples:
            >>> from protoslice.client import Cache
            >>> Cache("empty").clear()
        """
        for _, _, path in self._entries():
            with suppress(FileNotFoundError):
                path.unlink()

    def _path(self, sha256: str) -> Path:
        if not _DIGEST.fullmatch(sha256):
            raise InvalidInput(f"Invalid SHA-256 {sha256[:80]!r}: use 64 hexadecimal digits")
        return self.folder / sha256[:2] / sha256

    def _entries(self) -> Iterator[tuple[float, int, Path]]:
        """Yield the time of last use, the size and the path of each piece.

        For temporary files, the yielded time is an hour earlier, so that abandoned files are removed first.
        """
        try:
            folders = [each for each in os.scandir(self.folder) if each.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageError(f"Cannot read the cache: {error.strerror}") from error
        for folder in folders:
            with suppress(FileNotFoundError), os.scandir(folder) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):
                        stat = entry.stat(follow_symlinks=False)
                        age = _ABANDONED_SECONDS if entry.name.startswith(".new-") else 0
                        yield stat.st_mtime - age, stat.st_size, Path(entry.path)
