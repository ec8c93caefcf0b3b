"""One header block of a tar archive: ustar, the older v7, and what GNU tar makes of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from protoslice.errors import CorruptModel

TAR_BLOCK: Final = 512
LARGEST_NUMBER: Final = (1 << 63) - 1
_OCTAL: Final = re.compile(rb"[ \0]*([0-7]*)[ \0]*")
_CHECKSUM: Final = slice(148, 156)


@dataclass(frozen=True, slots=True)
class Header:
    """Parsed header block. `type` is the byte that distinguishes files, folders and other entries."""

    name: bytes
    size: int
    type: bytes


def parse_header(block: bytes, offset: int) -> Header:
    """The header in a block of 512 bytes that stands at `offset` of the archive, its checksum verified."""
    _verify(block, offset)
    name = _text(block[:100])
    # Only POSIX has a prefix there; GNU tar keeps times in the same bytes.
    if block[257:263] == b"ustar\0":
        prefix = _text(block[345:500])
        name = prefix + b"/" + name if prefix else name
    return Header(name, _size(block[124:136], offset + 124), block[156:157])


def _verify(block: bytes, offset: int) -> None:
    claimed = _octal(block[_CHECKSUM], offset + _CHECKSUM.start)
    unsigned = sum(block) - sum(block[_CHECKSUM]) + 8 * ord(" ")
    if claimed == unsigned:
        return
    # Some old writers summed signed characters.
    high = sum(byte > 127 for byte in block) - sum(byte > 127 for byte in block[_CHECKSUM])
    if claimed != unsigned - 256 * high:
        raise CorruptModel("The archive has no valid tar header here: wrong checksum", offset)


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _size(field: bytes, offset: int) -> int:
    if not field[0] & 0x80:
        return _octal(field, offset)
    # GNU tar's form for what octal digits cannot hold: a flag, then the number, big-endian, in two's complement.
    value = int.from_bytes(field) - (0x80 << 88)
    if value > LARGEST_NUMBER:
        raise CorruptModel("The tar header has a negative size or one beyond 2^63-1", offset)
    return value


def _octal(field: bytes, offset: int) -> int:
    match = _OCTAL.fullmatch(field)
    if match is None:
        raise CorruptModel(f"The tar header has {field!r} instead of an octal number", offset)
    return int(match[1] or b"0", 8)
