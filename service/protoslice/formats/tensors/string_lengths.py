"""Varint lengths in front of the strings of a tensor."""

from __future__ import annotations

from protoslice.errors import CorruptModel

_LONGEST = 56
"""Largest shift of a length's last byte: a length has at most nine bytes."""


def lengths_of(data: bytes, count: int) -> tuple[list[int], int]:
    """The first `count` lengths in `data` and the offset of their end; `CorruptModel` if malformed."""
    lengths: list[int] = []
    value = shift = at = 0
    while len(lengths) < count:
        if at >= len(data) or shift > _LONGEST:
            raise CorruptModel("The string lengths of a tensor are cut off or too long", at)
        value |= (data[at] & 0x7F) << shift
        shift += 7
        if data[at] < 0x80:
            lengths.append(value)
            value = shift = 0
        at += 1
    return lengths, at
