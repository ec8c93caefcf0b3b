"""The checksums that TensorFlow keeps beside its bytes: CRC-32C, turned and moved."""

from __future__ import annotations

from protoslice._core import crc32c
from protoslice.errors import CorruptModel
from protoslice.formats.model import Bytes
from protoslice.ropes import Rope
from protoslice.schema.detection.magic import masked

__all__ = ["check", "crc_of", "masked"]


def crc_of(data: Bytes) -> int:
    """The CRC-32C of `data`, which is read piece by piece."""
    crc = 0
    for piece in Rope(data.rope, data.sources).pieces():
        crc = crc32c(piece, crc)
    return crc


def check(what: str, crc: int, stored: int) -> None:
    """A `CorruptModel` unless `stored`, which the model says of its bytes, is the masked form of `crc`."""
    if masked(crc) != stored:
        raise CorruptModel(f"the checksum of {what} does not match: it was damaged")
