"""A file on its way: its parts, a checksum of each, and the digest of all of it, made beside the sending."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from functools import reduce
from types import TracebackType
from typing import Self

from protoslice import _core
from protoslice.client.http.digests import Hashing
from protoslice.client.upload.bodies import Item

__all__ = ["Sending"]


class Sending:
    """A file is read twice: for what is said of it, ahead of the sending, and to be sent, out of the page cache then.

    The digest is of what lies on the disk, from its first byte on, whatever was sent by a process before.
    """

    def __init__(self, item: Item) -> None:
        self._item = item
        self._hashing = Hashing()
        self._due = 0
        self._sums: dict[tuple[int, int], int] = {}

    def pieces(self, start: int, end: int) -> Iterator[bytes]:
        """The bytes of a part."""
        return self._item.read(start, end - start)

    def expect(self, start: int, end: int) -> None:
        """Take all bytes before `end` into the digest, soon; by the way make the checksum of the part from `start`."""
        if end > self._due:
            self._hashing.update(self._summed(self._due, start, end))
            self._due = end

    def checksum(self, start: int, end: int) -> str:
        """The CRC-32C of a part, in base64; made now, when it was not expected early enough."""
        crc = self._sums.pop((start, end), None)
        if crc is None:
            crc = reduce(lambda before, piece: _core.crc32c(piece, before), self.pieces(start, end), 0)
        return b64encode(crc.to_bytes(4, "big")).decode()

    def _summed(self, at: int, start: int, end: int) -> Iterator[bytes]:
        """The bytes from `at` on; the checksum of the part is there when all were taken, unless `at` is within it."""
        if at <= start:
            yield from self.pieces(at, start)
            crc, at = 0, end
            for piece in self.pieces(start, end):
                crc = _core.crc32c(piece, crc)
                yield piece
            self._sums[start, end] = crc
        yield from self.pieces(at, end)

    def hexdigest(self) -> str:
        """The sha-256 of all bytes taken."""
        return self._hashing.hexdigest()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._hashing.__exit__(kind, value, tb)
