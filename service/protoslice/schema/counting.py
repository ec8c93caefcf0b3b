"""How many parts a descriptor set declares, told from its bytes alone: parsed, a part of two bytes takes hundreds."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import islice

from protoslice.errors import LimitExceeded
from protoslice.schema.registry import bundled
from protoslice.schema.varints import varint_at

MAX_PARTS = 250_000
"""Files, messages, fields, enum values, imports and the like in one set."""

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_STRING, _MESSAGE, _BYTES = 9, 11, 12
_WIDTH = {_FIXED64: 8, _FIXED32: 4}
_Parts = list[dict[int, int]]


def check_parts(data: bytes) -> None:
    """Raise `LimitExceeded` for more parts than are taken; what breaks off counts as far as it goes."""
    if next(islice(_parts(data), MAX_PARTS, None), None) is not None:
        raise LimitExceeded(f"the descriptor set declares more than {MAX_PARTS} files, messages, fields and the like")


def _parts(data: bytes) -> Iterator[int]:
    """The offset of every part, in the order in which a parser meets them."""
    tags = _tags()
    open_messages, at, end, kind = list[tuple[int, int]](), 0, len(data), 0
    while at <= end:
        while at == end and open_messages:
            end, kind = open_messages.pop()
        if at == end:
            return
        tag, at = varint_at(data, at)
        value = _WIDTH.get(tag & 7, 0)
        if at >= 0 and tag & 7 in (_VARINT, _LENGTH):
            value, at = varint_at(data, at)
        part = tags[kind].get(tag)
        if part is not None:
            yield at
        if at < 0:
            return
        if part and at + value <= end:
            open_messages.append((end, kind))
            end, kind = at + value, part
        elif tag & 7 != _VARINT:
            at += value


@cache
def _tags() -> _Parts:
    """By message type, the tags of what is a part: the number of its type, 0 for a repeated string."""
    rows = bundled().table("google.protobuf.FileDescriptorSet").messages
    return [
        {
            number << 3 | _LENGTH: target if type_ == _MESSAGE else 0
            for number, _, type_, repeated, _, target in fields
            if type_ == _MESSAGE or (repeated and type_ in (_STRING, _BYTES))
        }
        for _, _, fields in rows
    ]
