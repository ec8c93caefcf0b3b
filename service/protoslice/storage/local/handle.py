"""Handle of an open local object. Calls block."""

from __future__ import annotations

import os
import stat as modes
import threading
from datetime import UTC, datetime

from protoslice.errors import NotFound, StorageUnavailable
from protoslice.storage.interface import ObjectStat, OpenFile
from protoslice.storage.keys import ObjectKey
from protoslice.storage.spans import check_inside


def describe(key: ObjectKey, facts: os.stat_result) -> ObjectStat:
    """`ObjectStat` from a file's `os.stat_result`; `NotFound` for anything but a regular file.

    The entity tag is made of modification time, size and inode. Publishing sets the time with random low bits, so an
    inode that is used again within one tick of the clock still gets another tag; so does a change in place.
    """
    if not modes.S_ISREG(facts.st_mode):
        raise NotFound(f"no object {str(key)!r}")
    etag = f"{facts.st_mtime_ns:x}-{facts.st_size:x}-{facts.st_ino:x}"
    return ObjectStat(key, facts.st_size, etag, datetime.fromtimestamp(facts.st_mtime, UTC))


class FileHandle(OpenFile):
    """An open file with exact reads from any thread.

    `close` returns at once; the last read under way closes the descriptor.
    """

    def __init__(self, key: ObjectKey, descriptor: int) -> None:
        self._descriptor = descriptor
        self._mutex = threading.Lock()
        self._readers = 0
        self._closed = False
        try:
            self._stat = describe(key, os.fstat(descriptor))
        except BaseException:
            os.close(descriptor)
            self._descriptor = -1
            raise

    @property
    def stat(self) -> ObjectStat:
        return self._stat

    def fileno(self) -> int:
        return self._descriptor

    def pread(self, start: int, end: int) -> bytes:
        self.check(end)
        with self._mutex:
            if self._closed:
                raise StorageUnavailable("the file is closed")
            self._readers += 1
        try:
            return self._read(start, end)
        finally:
            with self._mutex:
                self._readers -= 1
                self._release()

    def check(self, end: int) -> None:
        """Raise `IntegrityError` when the file ends before `end`."""
        check_inside(self._stat.key, end, self._stat.size)

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            self._release()

    def __del__(self) -> None:
        self.close()

    def _read(self, start: int, end: int) -> bytes:
        data = os.pread(self._descriptor, end - start, start)
        pieces = [data]
        at = start + len(data)
        while at < end:  # pread returns at most 2 GiB at once, and nothing when the file was cut short meanwhile
            data = os.pread(self._descriptor, end - at, at)
            if not data:
                check_inside(self._stat.key, end, at)
            pieces.append(data)
            at += len(data)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _release(self) -> None:
        if self._closed and not self._readers and self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
