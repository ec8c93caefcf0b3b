"""Fields of found messages as bytes and numbers; shared by formats that keep elements in messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from protoslice import _core, varints
from protoslice.errors import CorruptModel, LimitExceeded
from protoslice.formats.model import Encoding, Later, RootProto, Stored
from protoslice.sources.ropes import Rope

Place = tuple[int, int, int, int, int]
"""Field number, wire type, start, end, count.

Start and end enclose one field's content, or a run of fields with their tags.
"""

_LENGTH = 2
_WIDTHS = {1: 8, 5: 4}
_MOST_UNPACKED = 64 << 20
"""Limit in bytes for unpacked numbers: each of them has a tag, so they are copied together in memory."""


def content(proto: RootProto, found: _core.Finding, number: int) -> Rope | None:
    """The bytes field `number`: its last occurrence, as protobuf merges; None if absent."""
    *_, last = (None, *contents(proto, found, number))
    return last


def contents(proto: RootProto, found: _core.Finding, number: int) -> Iterator[Rope]:
    """The elements of the repeated bytes field `number`."""
    for place in places_of(found, number):
        if place[1] == _LENGTH:
            yield Rope(proto.document.at(place[2], place[3]), proto.sources)


def numbers(proto: RootProto, found: _core.Finding, number: int, encoding: Encoding) -> Stored | Later[Stored] | None:
    """The values of the numeric field `number`, packed, unpacked or both; None if absent.

    `encoding` is PLAIN for fixed-width fields, else the encoding of their varints. `LimitExceeded` for more than 64 MiB
    of unpacked numbers.
    """
    places = places_of(found, number)
    if not places:
        return None
    if any(count > 1 for *_, count in places):
        return Later(lambda: Stored(_joined(proto, places), encoding))
    return Stored(_joined(proto, places), encoding)


def fixed_count(found: _core.Finding, number: int, width: int) -> int:
    """Number of values in the fixed-width field `number`, of `width` bytes each."""
    places = places_of(found, number)
    return sum(count if count > 1 else (end - start) // width for _, _, start, end, count in places)


def places_of(found: _core.Finding, number: int) -> Sequence[Place]:
    return [place for place in found.places if place[0] == number]


def _joined(proto: RootProto, places: Sequence[Place]) -> Rope:
    unpacked = sum(end - start for _, _, start, end, count in places if count > 1)
    if unpacked > _MOST_UNPACKED:
        raise LimitExceeded(
            f"{unpacked} bytes of unpacked numbers are too many to combine (at most {_MOST_UNPACKED}): "
            "write the model with packed fields",
            places[0][2],
        )
    pieces: list[bytes | _core.Rope] = []
    for _, wire, start, end, count in places:
        rope = proto.document.at(start, end)
        pieces.append(rope if count == 1 else _values(Rope(rope, proto.sources).read(), wire, start))
    return Rope(_core.Rope(pieces), proto.sources)


def _values(run: bytes, wire: int, offset: int) -> bytes:
    """The values in a run of fields, without tags."""
    values = bytearray()
    at = 0
    while at < len(run):
        at = _after_varint(run, at, offset)
        end = at + _WIDTHS[wire] if wire in _WIDTHS else _after_varint(run, at, offset)
        values += run[at:end]
        at = end
    return bytes(values)


def _after_varint(run: bytes, at: int, offset: int) -> int:
    _, end = varints.read(run, at)
    if end < 0:
        raise CorruptModel("The data ends in the middle of a number", offset + at)
    return end
