"""Selection of bytes by a Range header (RFC 9110, section 14), from the header and the length.

Choices that the RFC leaves open: a header is ignored when it does not parse, has more than 4096 characters or 64
ranges, or meets an empty representation. Ranges that overlap or lie less than 80 bytes apart are answered as one.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, TypeAlias

MAX_HEADER: Final = 4096
MAX_RANGES: Final = 64
NEAR: Final = 80
_OWS: Final = " \t"
_PLAIN: Final = re.compile(r"bytes=([0-9]{1,19})-([0-9]{1,19})")


class ByteRange(NamedTuple):
    """Bytes from `start` up to `end`, at least one."""

    start: int
    end: int

    @property
    def length(self) -> int:
        """Number of bytes."""
        return self.end - self.start

    def content_range(self, length: int) -> bytes:
        """Value of Content-Range for this part of a representation of `length` bytes."""
        return b"bytes %d-%d/%d" % (self.start, self.end - 1, length)


Selection: TypeAlias = tuple[ByteRange, ...] | None
"""Disjoint ranges in the order of the request, for 206; empty for 416, None for the whole with 200."""

# Requested range: first and last position, or a number of bytes from the end.
_Spec: TypeAlias = tuple[int, int | None] | int


def select(header: str | None, length: int) -> Selection:
    """Selection that a GET with this Range header makes in a representation of `length` bytes.

    Pass None for other methods and when If-Range does not hold: the header is ignored then.
    """
    plain = None if header is None else _PLAIN.fullmatch(header)
    if plain is not None:
        # Fast path for by far the most common form: one range, within the representation.
        first, last = int(plain[1]), int(plain[2])
        if first <= last < length:
            return (ByteRange(first, last + 1),)
    specs = None if header is None or length == 0 else _parse(header)
    if specs is None:
        return None
    found = [located for spec in specs if (located := _locate(spec, length)) is not None]
    return _join(found)


def _parse(header: str) -> list[_Spec] | None:
    """Requested ranges; None when the header is to be ignored."""
    unit, equals, rest = header.strip(_OWS).partition("=")
    if len(header) > MAX_HEADER or not equals or unit.lower() != "bytes" or rest[:1] in _OWS:
        return None
    # Empty elements of a list are no error (section 5.6.1).
    parts = [part for text in rest.split(",") if (part := text.strip(_OWS))]
    specs = [spec for part in parts[: MAX_RANGES + 1] if (spec := _parse_one(part)) is not None]
    return specs if 0 < len(parts) <= MAX_RANGES and len(specs) == len(parts) else None


def _parse_one(text: str) -> _Spec | None:
    first, dash, last = text.partition("-")
    if not dash or not all(_is_number(part) for part in (first, last) if part) or not (first or last):
        return None
    if not first:
        return int(last)
    spec = (int(first), int(last) if last else None)
    return None if spec[1] is not None and spec[1] < spec[0] else spec


def _is_number(text: str) -> bool:
    # Not int(): it accepts signs, underscores and digits of every script. The header is shorter than the longest text
    # that int() reads.
    return text.isascii() and text.isdigit()


def _locate(spec: _Spec, length: int) -> ByteRange | None:
    """Bytes that the requested range has in the representation; None when there are none."""
    if isinstance(spec, int):
        return ByteRange(max(0, length - spec), length) if spec else None
    first, last = spec
    if first >= length:
        return None
    return ByteRange(first, length if last is None else min(last + 1, length))


def _join(ranges: list[ByteRange]) -> tuple[ByteRange, ...]:
    """Disjoint ranges that cover the given ones, each at the place of the first range joined into it."""
    joined: list[tuple[int, ByteRange]] = []
    for place, found in sorted(enumerate(ranges), key=lambda item: item[1]):
        if joined and found.start < joined[-1][1].end + NEAR:
            before, last = joined[-1]
            joined[-1] = (min(before, place), ByteRange(last.start, max(last.end, found.end)))
        else:
            joined.append((place, found))
    return tuple(found for _, found in sorted(joined))
