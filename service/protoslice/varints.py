"""Varints, and streams of records after their lengths."""

from __future__ import annotations

from collections.abc import Iterator


def read(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """Return value and end offset of the varint at `at`; the offset is -1 if it is truncated or above ten bytes."""
    if at < len(data) and data[at] < 0x80:
        return data[at], at + 1
    value = 0
    for shift, byte in zip(range(0, 70, 7), data[at : at + 10], strict=False):
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
    return 0, -1


def write(value: int) -> bytes:
    """Return the varint of `value`, which must not be negative."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def size(value: int) -> int:
    """Return the length of the varint of `value` in bytes; ten for negative numbers."""
    return (value.bit_length() + 6) // 7 or 1 if value >= 0 else 10


def records(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield start and end of each record in `data`, up to one that is truncated."""
    at = 0
    while at < len(data):
        length, start = read(data, at)
        at = start + length
        if start < 0 or at > len(data):
            return
        yield start, at
