"""Lengths of strings as varints, one behind the other."""

from __future__ import annotations

from protoslice.errors import CorruptModel

__all__ = ["lengths_of"]

_LONGEST = 56
"""Bits in front of the last byte of a length: nine bytes are more than any string has."""


def lengths_of(data: bytes, count: int) -> tuple[list[int], int]:
    """The first `count` lengths in `data`, and where they end."""
    lengths: list[int] = []
    value = shift = at = 0
    while len(lengths) < count:
        if at >= len(data) or shift > _LONGEST:
            raise CorruptModel("the lengths of the strings of a tensor are cut off or too long", at)
        value |= (data[at] & 0x7F) << shift
        shift += 7
        if data[at] < 0x80:
            lengths.append(value)
            value = shift = 0
        at += 1
    return lengths, at
