"""A file on its way: its parts, a checksum of each, and the digest of all of it, made beside the sending."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from protoslice import _core
from protoslice.client.bodies import Item
from protoslice.client.digests import Hashing

__all__ = ["Sending"]


class Sending:
    """A file is read up to three times, the later times out of the page cache: a part's checksum goes before it.

    The digest is of what lies on the disk, from its first byte on, whatever was sent by a process before.
    """

    def __init__(self, item: Item) -> None:
        self._item = item
        self._hashing = Hashing()
        self._due = 0

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
            self._hashing.update(self.pieces(self._due, end))
            self._due = end

    def hexdigest(self) -> str:
        """The sha-256 of all bytes taken."""
        return self._hashing.hexdigest()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._hashing.__exit__(kind, value, tb)
