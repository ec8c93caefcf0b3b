"""Strings of tensors: all lengths, in bundles a checksum of the lengths, and all strings."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final

from protoslice import varints
from protoslice._core import crc32c
from protoslice.errors import CorruptModel, LimitExceeded
from protoslice.formats.tensorflow.checksums import check
from protoslice.sources.ropes import Rope

_MOST_STRING_BYTES: Final = 64 << 20
_LONGEST: Final = 9
"""Bytes of a length, at most."""
_CHECKSUM: Final = 4
_SHORT: Final = 0xFFFF_FFFF
"""Longest length that enters a checksum as four bytes; longer ones enter as eight."""


def strings(data: Rope, count: int, crc: int | None, name: str) -> Sequence[bytes]:
    """The `count` strings of tensor `name`, compared with `crc`, their masked checksum, unless None.

    `CorruptModel` for checksums and lengths that do not match, `LimitExceeded` above 64 MiB.
    """
    if data.size > _MOST_STRING_BYTES:
        raise LimitExceeded(
            f"The strings of {name!r} have {data.size} bytes; at most {_MOST_STRING_BYTES} are read at once"
        )
    stored = data.read()
    lengths, start = lengths_of(stored, count)
    content = start + _CHECKSUM
    if content > len(stored):
        raise CorruptModel(f"The data of {name!r} ends before the checksum of its string lengths", start)
    summed = 0
    for length in lengths:
        summed = crc32c(length.to_bytes(4 if length <= _SHORT else 8, "little"), summed)
    check(f"the lengths of the strings of {name!r}", summed, int.from_bytes(stored[start:content], "little"))
    if content + sum(lengths) != len(stored):
        raise CorruptModel(
            f"The strings of {name!r} should take {content + sum(lengths)} bytes, but there are {len(stored)}"
        )
    if crc is not None:
        check(f"the strings of {name!r}", crc32c(stored[content:], crc32c(stored[start:content], summed)), crc)
    ends = accumulate(lengths, initial=content)
    return [stored[begin:end] for begin, end in pairwise(ends)]


def lengths_of(data: bytes, count: int) -> tuple[list[int], int]:
    """The first `count` lengths in `data` and the offset of their end; `CorruptModel` if malformed."""
    lengths, at = list[int](), 0
    while len(lengths) < count:
        length, end = varints.read(data, at)
        if end < 0 or end - at > _LONGEST:
            raise CorruptModel("The string lengths of a tensor are cut off or too long", at)
        lengths.append(length)
        at = end
    return lengths, at
