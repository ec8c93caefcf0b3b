"""Temporary file that is published as an object or dropped. Calls block."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from secrets import randbits, token_hex

from protoslice.errors import Conflict, InvalidInput
from protoslice.storage.interface import Buffer
from protoslice.storage.keys import ObjectKey
from protoslice.storage.local.handle import describe
from protoslice.storage.local.tree import Tree, explained

_WRITTEN = 64 << 10
"""Bytes in one `write` call at most.

For longer calls the kernel looks for long runs of free memory, which was measured (Linux 6.18, ext4) to cost several
times as much as the write itself.
"""
_AHEAD = 8 << 20
"""Bytes written between requests to the kernel to start write-back."""


class StagingFile:
    """Temporary file of the object `key`.

    Threads may share a `StagingFile`; a lock admits one call at a time, and `drop` waits for a call under way.
    """

    def __init__(self, tree: Tree, key: ObjectKey) -> None:
        self._tree = tree
        self._key = key
        self._name = token_hex(16)
        self._mutex = threading.Lock()
        self._descriptor = -1
        self._named = False
        self._size = self._begun = 0
        with explained("create", key):
            self._descriptor = tree.create_staging(self._name)

    def __del__(self) -> None:
        # A caller cancelled during creation never received this object, so nobody else drops the file.
        with suppress(Exception):
            self._drop()

    def write(self, piece: Buffer) -> None:
        """Append `piece`."""
        with self._mutex, explained("write", self._key), memoryview(piece).cast("B") as view:
            at = 0
            while at < len(view):
                at += os.write(self._open(), view[at : at + _WRITTEN])
            self._size += len(view)
            if self._size - self._begun >= _AHEAD:
                self._begin()

    def publish(self) -> str:
        """Publish the file durably under its key and return its entity tag; on failure the file is dropped."""
        with self._mutex:
            try:
                with explained("publish", self._key, ENOTDIR=(Conflict, "a file exists where a folder is needed")):
                    etag = self._publish()
                    self._named = True
                    return etag
            finally:
                self._drop()

    def drop(self) -> None:
        """Remove the file unless it was published; harmless when repeated."""
        with self._mutex:
            self._drop()

    def _begin(self) -> None:
        """Start write-back of the bytes written so far, which leaves little for the final `fsync`."""
        # `POSIX_FADV_DONTNEED` makes Linux start write-back of dirty pages; pages under write-back stay cached.
        with suppress(OSError):  # a hint
            os.posix_fadvise(self._open(), self._begun, self._size - self._begun, os.POSIX_FADV_DONTNEED)
        self._begun = self._size

    def _publish(self) -> str:
        # The entity tag contains this time: finer than the kernel's clock, with random low bits against repetition.
        moment = (time.time_ns() & ~0xFFFFF) | randbits(20)
        os.utime(self._open(), ns=(moment, moment))
        os.fsync(self._open())
        etag = describe(self._key, os.fstat(self._open())).etag
        self._tree.publish(self._name, self._key.segments)
        return etag

    def _open(self) -> int:
        if self._descriptor < 0:
            raise InvalidInput("the writer is already closed")
        return self._descriptor

    def _drop(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
            if self._named:
                return  # publishing removed the temporary name
            with explained("clean up after", self._key):
                self._tree.drop_staging(self._name)
