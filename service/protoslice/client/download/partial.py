"""A file that arrives: under a temporary name until it is whole, and taken up again where it was left."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from protoslice.client.http.range_answers import RemoteFacts
from protoslice.client.locks import lock
from protoslice.errors import ProtosliceError, StorageDenied, StorageError, StorageFull

__all__ = ["PartialFile"]

_STEP: Final = 1 << 20
_WRITTEN: Final = 64 << 10
"""At most so much is written by one call. For longer ones the kernel looks for long stretches of free memory, which
was measured (Linux 6.18, ext4) to cost several times as much as the writing itself."""


class PartialFile:
    """The temporary file beside `target` for just this content; as long as what has arrived of it.

    Its name is made of the entity tag, so what another version left is never gone on with. Who finds it in use by
    another process begins a new one.
    """

    def __init__(self, target: Path, facts: RemoteFacts) -> None:
        self.target = target
        mark = hashlib.sha256(f"{facts.etag} {facts.size}".encode()).hexdigest()[:16]
        self._path = target.with_name(f".{target.name[:200]}.{mark}.part")
        self._fd = -1
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            self._fd = self._open()
            self.size = os.fstat(self._fd).st_size
            if self.size > facts.size:
                self.restart()
        except OSError as error:
            self.close()
            raise _failed(target, error) from error

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(self._path, flags, 0o666)
        try:
            lock(fd, self._path)
            return fd
        except OSError:
            os.close(fd)
        self._path = self._path.with_name(f"{self._path.name[:-5]}-{os.urandom(4).hex()}.part")
        return os.open(self._path, flags | os.O_EXCL, 0o666)

    def write(self, data: bytes | memoryview) -> None:
        """Append `data`."""
        self.write_at(self.size, data)
        self.size += len(data)

    def write_at(self, offset: int, data: bytes | memoryview) -> None:
        """Put `data` where it belongs."""
        left = memoryview(data)
        try:
            while left:
                written = os.pwrite(self._fd, left[:_WRITTEN], offset)
                offset, left = offset + written, left[written:]
        except OSError as error:
            raise _failed(self.target, error) from error

    def read(self, offset: int, length: int) -> bytes:
        """What it has of these bytes."""
        return os.pread(self._fd, length, offset)

    def pieces(self) -> Iterator[bytes]:
        """All it has now, whatever is appended until somebody reads them."""
        size = self.size
        return (self.read(at, min(_STEP, size - at)) for at in range(0, size, _STEP))

    def restart(self) -> None:
        """Begin anew: what had arrived is not what it should be."""
        os.ftruncate(self._fd, 0)
        self.size = 0

    def finish(self) -> None:
        """Give the file its name: it is whole and right."""
        try:
            os.replace(self._path, self.target)
        except OSError as error:
            raise _failed(self.target, error) from error

    def drop(self) -> None:
        """Leave nothing of it."""
        with suppress(FileNotFoundError):
            os.unlink(self._path)

    def close(self) -> None:
        """Give back the file; what has arrived stays for another time."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def _failed(target: Path, error: OSError) -> ProtosliceError:
    message = f"{target} cannot be written: {error.strerror}"
    match error:
        case PermissionError():
            return StorageDenied(message)
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            return StorageFull(message)
        case _:
            return StorageError(message)
