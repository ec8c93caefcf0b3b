"""Shards of Xet: lists of files by the chunks of xorbs that make them up, read row by row."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from protoslice.errors import InvalidInput, LimitExceeded

_ROW: Final = 48
_HEAD: Final = struct.Struct("<32sII8x")
_EXTENT: Final = struct.Struct("<32sIIII")
_DIGEST: Final = struct.Struct("<32s16x")
_VERSION: Final = struct.Struct("<32xQQ")
_END: Final = b"\xff" * 32
_CHECKED: Final = 1 << 31
"""Flag of a file: each of its extents has one more row, with a hash over its chunks."""
_DIGESTED: Final = 1 << 30
"""Flag of a file: a last row has its SHA-256."""
_MOST_EXTENTS: Final = 1 << 17


@dataclass(frozen=True, slots=True)
class ShardExtent:
    """Consecutive chunks of a xorb."""

    xorb: str
    size: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class ShardFile:
    """File of a shard: its SHA-256 in hex, and the chunks that it consists of."""

    sha256: str
    extents: list[ShardExtent]

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return sum(extent.size for extent in self.extents)


async def files_of(pieces: AsyncIterator[bytes]) -> AsyncIterator[ShardFile]:
    """Files in order, each with its SHA-256; what follows them is read and passed over."""
    rows = _rows(pieces)
    version, _ = _VERSION.unpack(await _next(rows))
    if version != 2:
        raise InvalidInput(f"Unsupported shard version {version}: use 2")
    while (row := await _next(rows))[:32] != _END:
        _, flags, count = _HEAD.unpack(row)
        if count > _MOST_EXTENTS:
            raise LimitExceeded(f"A file of the shard has too many terms: at most {_MOST_EXTENTS}, not {count}")
        extents = [_extent(await _next(rows)) for _ in range(count)]
        for _ in range(count if flags & _CHECKED else 0):
            await _next(rows)
        if not flags & _DIGESTED:
            raise InvalidInput("A file of the shard has no SHA-256")
        (digest,) = _DIGEST.unpack(await _next(rows))
        yield ShardFile(_spelled(digest), extents)
    async for _ in rows:
        pass


def _extent(row: bytes) -> ShardExtent:
    xorb, _, size, first, end = _EXTENT.unpack(row)
    return ShardExtent(_spelled(xorb), size, first, end)


async def _rows(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    held = b""
    async for piece in pieces:
        held += piece
        whole = len(held) - len(held) % _ROW
        for at in range(0, whole, _ROW):
            yield held[at : at + _ROW]
        held = held[whole:]


async def _next(rows: AsyncIterator[bytes]) -> bytes:
    row = await anext(rows, None)
    if row is None:
        raise InvalidInput("The shard ends inside its list of files")
    return row


def _spelled(hash: bytes) -> str:
    """A hash in hex: four words, each of which is little-endian."""
    return "".join(hash[at : at + 8][::-1].hex() for at in range(0, 32, 8))
