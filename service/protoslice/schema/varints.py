"""Varints as they stand in bytes."""

from __future__ import annotations

__all__ = ["varint_at"]


def varint_at(data: bytes, at: int) -> tuple[int, int]:
    """A varint and where it ends: -1 when it does not."""
    value = 0
    for shift, byte in zip(range(0, 70, 7), data[at : at + 10], strict=False):
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
    return 0, -1
