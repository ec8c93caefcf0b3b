"""The temporary file of a download, with which a later download can resume."""

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
"""Maximum number of bytes in one write call.

For longer calls, the kernel searches for long runs of free memory. On Linux 6.18 with ext4, this search took several
times as long as the write itself.
"""


class PartialFile(ClosedAtEnd):
    """The temporary file, in the folder of `target`, that holds the bytes that have arrived so far.

    The file name contains a digest of the entity tag and size, so a download never resumes other content. If another
    process has locked the file, a new file with a random name is created.
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
        """Append `data` to the file."""
        left = memoryview(data)
        try:
            while left:
                written = os.pwrite(self._fd, left[:_WRITTEN], self.size)
                self.size, left = self.size + written, left[written:]
        except OSError as error:
            raise write_failure(self.target, error) from error

    def pieces(self) -> Iterator[bytes]:
        """Return an iterator over the current content in pieces; bytes that are appended later are not included."""
        size = self.size
        return (os.pread(self._fd, min(_STEP, size - at), at) for at in range(0, size, _STEP))

    def finish(self) -> None:
        """Rename the complete, verified file to its final name. After this call, the file survives a power failure."""
        try:
            replace_durably(self._path, self.target)
        except OSError as error:
            raise write_failure(self.target, error) from error

    def drop(self) -> None:
        """Delete the temporary file."""
        with suppress(FileNotFoundError):
            os.unlink(self._path)

    def close(self) -> None:
        """Close the file, and keep its content for a later download."""
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
