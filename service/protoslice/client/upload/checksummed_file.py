"""Sending of one file, with checksums of the parts and the digest of the whole."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from functools import reduce
from types import TracebackType
from typing import Self

from protoslice import _core
from protoslice.client.http.digests import BackgroundHash
from protoslice.client.upload.bodies import Item


class ChecksummedFile:
    """Reads a file twice: ahead for checksums and digest, then for sending, from the page cache.

    The digest covers the file on the disk from its first byte, whatever an earlier process sent.
    """

    def __init__(self, item: Item) -> None:
        self._item = item
        self._hashing = BackgroundHash()
        self._due = 0
        self._sums: dict[tuple[int, int], int] = {}

    def pieces(self, start: int, end: int) -> Iterator[bytes]:
        """Bytes from `start` up to `end`."""
        return self._item.read(start, end - start)

    def expect(self, start: int, end: int) -> None:
        """Start hashing all bytes before `end`, and computing the checksum of the part from `start`."""
        if end > self._due:
            self._hashing.update(self._summed(self._due, start, end))
            self._due = end

    def checksum(self, start: int, end: int) -> str:
        """CRC-32C of a part in base64; computed now unless `expect` announced the part in time."""
        crc = self._sums.pop((start, end), None)
        if crc is None:
            crc = reduce(lambda before, piece: _core.crc32c(piece, before), self.pieces(start, end), 0)
        return b64encode(crc.to_bytes(4, "big")).decode()

    def _summed(self, at: int, start: int, end: int) -> Iterator[bytes]:
        """Bytes from `at` to `end`; sets the checksum of the part, unless `at` lies within the part."""
        if at <= start:
            yield from self.pieces(at, start)
            crc, at = 0, end
            for piece in self.pieces(start, end):
                crc = _core.crc32c(piece, crc)
                yield piece
            self._sums[start, end] = crc
        yield from self.pieces(at, end)

    def hexdigest(self) -> str:
        """SHA-256 of all bytes hashed."""
        return self._hashing.hexdigest()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._hashing.__exit__(kind, value, tb)
