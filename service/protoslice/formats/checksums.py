"""The checksums that TensorFlow keeps beside its bytes: CRC-32C, turned and moved."""

from __future__ import annotations

from typing import Final

from protoslice._core import crc32c
from protoslice.errors import IntegrityError
from protoslice.formats.model import Bytes
from protoslice.ropes import Rope

__all__ = ["check", "crc_of", "masked"]

_DELTA: Final = 0xA282_EAD8


def masked(crc: int) -> int:
    """How a CRC-32C is kept where it may itself be summed."""
    return ((crc >> 15 | crc << 17) + _DELTA) & 0xFFFF_FFFF


def crc_of(data: Bytes) -> int:
    """The CRC-32C of `data`, which is read piece by piece."""
    crc = 0
    for piece in Rope(data.rope, data.sources).pieces():
        crc = crc32c(piece, crc)
    return crc


def check(what: str, crc: int, stored: int) -> None:
    """An `IntegrityError` unless `stored` is the masked form of `crc`."""
    if masked(crc) != stored:
        raise IntegrityError(f"the checksum of {what} does not match: it was damaged")
