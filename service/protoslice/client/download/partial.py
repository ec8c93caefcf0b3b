"""Partial download: a file under a temporary name, which a later download resumes."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from protoslice.client.http.ranges import ObjectInfo
from protoslice.errors import ProtosliceError, StorageDenied, StorageError, StorageFull
from protoslice.local_files import lock, replace_durably
from protoslice.sources.source import ClosedAtEnd

_STEP: Final = 1 << 20
_WRITTEN: Final = 64 << 10
"""Bytes in one `write` call at most.

For longer calls the kernel looks for long runs of free memory, which was measured (Linux 6.18, ext4) to cost several
times as much as the write itself.
"""


class PartialFile(ClosedAtEnd):
    """Temporary file next to `target` for one content; its size is the number of bytes that have arrived.

    The name contains a digest of the entity tag, so a download never resumes another version. While another process
    holds the file, a new one is created.
    """

    def __init__(self, target: Path, facts: ObjectInfo) -> None:
        self.target = target
        mark = hashlib.sha256(f"{facts.etag} {facts.size}".encode()).hexdigest()[:16]
        self._path = target.with_name(f".{target.name[:200]}.{mark}.part")
        self._fd = -1
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            self._fd = self._open()
            self.size = os.fstat(self._fd).st_size
            if self.size > facts.size:
                os.ftruncate(self._fd, 0)
                self.size = 0
        except OSError as error:
            self.close()
            raise write_failure(target, error) from error

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
        left = memoryview(data)
        try:
            while left:
                written = os.pwrite(self._fd, left[:_WRITTEN], self.size)
                self.size, left = self.size + written, left[written:]
        except OSError as error:
            raise write_failure(self.target, error) from error

    def pieces(self) -> Iterator[bytes]:
        """Return the pieces of the current content, up to the size at the time of the call."""
        size = self.size
        return (os.pread(self._fd, min(_STEP, size - at), at) for at in range(0, size, _STEP))

    def finish(self) -> None:
        """Rename the complete, verified file to its final name, durably."""
        try:
            replace_durably(self._path, self.target)
        except OSError as error:
            raise write_failure(self.target, error) from error

    def drop(self) -> None:
        """Remove the temporary file."""
        with suppress(FileNotFoundError):
            os.unlink(self._path)

    def close(self) -> None:
        """Close the file; its content stays for a later download."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def write_failure(target: Path, error: OSError) -> ProtosliceError:
    """Return the error for a `target` that cannot be written."""
    message = f"Cannot write {target}: {error.strerror}"
    match error:
        case PermissionError():
            return StorageDenied(message)
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            return StorageFull(message)
        case _:
            return StorageError(message)
