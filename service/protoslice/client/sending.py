"""A file on its way: its parts, a checksum of each, and the digest of all of it, made beside the sending."""

from __future__ import annotations

import hashlib
import threading
from base64 import b64encode
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from protoslice import _core
from protoslice.client.bodies import Item

__all__ = ["Sending"]


class Sending:
    """A file is read up to three times, the later times out of the page cache: a part's checksum goes before it.

    The digest is of what lies on the disk, from its first byte on, whatever was sent by a process before.
    """

    def __init__(self, item: Item) -> None:
        self._item = item
        self._sha = hashlib.sha256()
        self._due = 0
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="protoslice-hash")
        self._jobs: deque[Future[None]] = deque()
        self._stopped = threading.Event()

    def pieces(self, start: int, end: int) -> Iterator[bytes]:
        """The bytes of a part."""
        return self._item.read(start, end - start)

    def checksum(self, start: int, end: int) -> str:
        """The CRC-32C of a part, in base64."""
        crc = 0
        for piece in self.pieces(start, end):
            crc = _core.crc32c(piece, crc)
        return b64encode(crc.to_bytes(4, "big")).decode()

    def digest(self, end: int) -> None:
        """Take all bytes before `end` into the digest, soon."""
        if end > self._due:
            self._jobs.append(self._pool.submit(self._take, self._due, end))
            self._due = end
        while self._jobs and self._jobs[0].done():
            self._jobs.popleft().result()

    def hexdigest(self) -> str:
        """The sha-256 of all bytes taken."""
        while self._jobs:
            self._jobs.popleft().result()
        return self._sha.hexdigest()

    def _take(self, start: int, end: int) -> None:
        for piece in self.pieces(start, end):
            if self._stopped.is_set():
                return
            self._sha.update(piece)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._stopped.set()
        self._pool.shutdown(cancel_futures=True)
