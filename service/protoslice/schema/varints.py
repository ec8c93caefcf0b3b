"""Varint decoding."""

from __future__ import annotations


def varint_at(data: bytes, at: int) -> tuple[int, int]:
    """Value and end offset of the varint at `at`; the offset is -1 if it is cut off or above ten bytes."""
    value = 0
    for shift, byte in zip(range(0, 70, 7), data[at : at + 10], strict=False):
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
    return 0, -1
