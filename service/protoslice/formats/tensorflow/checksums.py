"""Masked CRC-32C checksums, as TensorFlow stores them."""

from __future__ import annotations

from protoslice._core import crc32c
from protoslice.errors import CorruptModel
from protoslice.schema.detection.magic import masked
from protoslice.sources.ropes import PIECE, Rope


def crc_of(data: Rope) -> int:
    """The CRC-32C of `data`, read in pieces."""
    crc = 0
    for at in range(0, data.size, PIECE):
        crc = crc32c(data.read(at, min(PIECE, data.size - at)), crc)  # bytes, which need no copy
    return crc


def check(what: str, crc: int, stored: int) -> None:
    """Raise `CorruptModel`, with `what` in its message, unless `stored` is the masked form of `crc`."""
    if masked(crc) != stored:
        raise CorruptModel(f"The checksum of {what} does not match: the file is damaged")
