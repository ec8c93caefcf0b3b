"""Varints, and streams in which each record follows its length."""

from __future__ import annotations

from collections.abc import Iterator


def read(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """Return the value of the varint at offset `at`, and the offset after it.

    The returned offset is -1 if the varint is truncated or has more than ten bytes.
    """
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
    """Encode `value`, which must not be negative, as a varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def size(value: int) -> int:
    """Return the number of bytes in the varint of `value`. A negative number has ten bytes."""
    return (value.bit_length() + 6) // 7 or 1 if value >= 0 else 10


def records(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the start and end offsets of each record in `data`; stop at a truncated record."""
    at = 0
    while at < len(data):
        length, start = read(data, at)
        at = start + length
        if start < 0 or at > len(data):
            return
        yield start, at
