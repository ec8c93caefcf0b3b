"""Masked CRC-32C checksums, as TensorFlow stores them."""

from __future__ import annotations

from protoslice._core import crc32c
from protoslice.errors import CorruptModel
from protoslice.formats.bytes import Bytes
from protoslice.schema.detection.magic import masked
from protoslice.sources.ropes import PIECE, Rope


def crc_of(data: Bytes) -> int:
    """The CRC-32C of `data`, read in pieces."""
    rope, crc = Rope(data.rope, data.sources), 0
    for at in range(0, rope.size, PIECE):
        crc = crc32c(rope.read(at, min(PIECE, rope.size - at)), crc)  # bytes, which need no copy
    return crc


def check(what: str, crc: int, stored: int) -> None:
    """Raise `CorruptModel`, with `what` in its message, unless `stored` is the masked form of `crc`."""
    if masked(crc) != stored:
        raise CorruptModel(f"The checksum of {what} does not match: the file is damaged")
