"""Random messages of any type in canonical order: fields by number, elements of one field together."""

from __future__ import annotations

import struct
from random import Random
from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from protoslice.varints import read as varint_at

_F: Final = FieldDescriptor
_FIXED: Final = {_F.TYPE_DOUBLE: 8, _F.TYPE_FIXED64: 8, _F.TYPE_SFIXED64: 8}
_FIXED_32: Final = {_F.TYPE_FLOAT: 4, _F.TYPE_FIXED32: 4, _F.TYPE_SFIXED32: 4}
_TEXTS: Final = ("", "a", "ä.b", 'quote " and \\', "[x]", "new\nline", "graph", "\x00")
_NUMBERS: Final = (0, 1, 2, 127, 128, 300, 0x7FFF_FFFF)


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def delimited(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def in_order(data: bytes, kind: Descriptor) -> bool:
    """Return True if a message's fields are in canonical order at every level, and it has no groups."""
    at, last = 0, 0
    while at < len(data):
        tag, at = varint_at(data, at)
        if tag >> 3 < last or tag & 7 in (3, 4):
            return False
        last = tag >> 3
        if tag & 7 != 2:
            at = at + {1: 8, 5: 4}[tag & 7] if tag & 7 else varint_at(data, at)[1]
            continue
        size, at = varint_at(data, at)
        field = kind.fields_by_number.get(last)
        below = None if field is None else field.message_type
        if below is not None and not in_order(data[at : at + size], below):
            return False
        at += size
    return True


class Canonical:
    """A maker of messages from one seed; `unknown` mixes in fields that the types do not declare.

    With `distinct_keys`, no map has two entries with one key. Otherwise the first of two such entries has no effect.
    """

    def __init__(self, seed: int, *, unknown: bool = True, distinct_keys: bool = False) -> None:
        self._random = Random(seed)
        self._unknown = unknown
        self._distinct_keys = distinct_keys
        self._left = 400

    def message(self, kind: Descriptor, depth: int = 6) -> bytes:
        """Return a serialized message with every required field and some of the others."""
        chosen: set[str] = set()
        fields = {}
        for field in [*kind.fields, *kind.file.pool.FindAllExtensions(kind)]:
            oneof = field.containing_oneof
            if self._wanted(field) and not (oneof is not None and oneof.name in chosen):
                fields[field.number] = field
                chosen.update([oneof.name] if oneof is not None else [])
        numbers = set(fields)
        if self._unknown and self._random.random() < 0.3:
            numbers |= {self._random.choice([3, 90, 1 << 20, (1 << 29) - 1])} - {each.number for each in kind.fields}
        out = bytearray()
        for number in sorted(numbers):
            known = fields.get(number)
            out += delimited(number, self._bytes()) if known is None else self._field(known, depth)
        return bytes(out)

    def _wanted(self, field: FieldDescriptor) -> bool:
        return field.is_required or (self._left > 0 and self._random.random() < 0.5)

    def _field(self, field: FieldDescriptor, depth: int) -> bytes:
        if not field.is_repeated:
            return self._one(field, depth)
        count = self._random.choice([1, 2, 3, 7])
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            if self._distinct_keys:
                entries = {self._key(kind): self._value(kind, depth) for _ in range(count)}.items()
                return b"".join(delimited(field.number, key + value) for key, value in entries)
            return b"".join(delimited(field.number, self._entry(kind, depth)) for _ in range(count))
        if field.is_packed:
            return delimited(field.number, b"".join(self._scalar(field) for _ in range(count)))
        return b"".join(self._one(field, depth) for _ in range(count))

    def _entry(self, kind: Descriptor, depth: int) -> bytes:
        return b"".join(self._one(field, depth) for field in kind.fields if self._random.random() < 0.9)

    def _key(self, kind: Descriptor) -> bytes:
        return self._one(kind.fields_by_number[1], 0)

    def _value(self, kind: Descriptor, depth: int) -> bytes:
        return self._one(kind.fields_by_number[2], depth)

    def _one(self, field: FieldDescriptor, depth: int) -> bytes:
        self._left -= 1
        number = field.number
        if field.message_type is not None:
            below = self.message(field.message_type, depth - 1) if depth and self._left > 0 else b""
            if field.type == _F.TYPE_GROUP:
                return varint(number << 3 | 3) + below + varint(number << 3 | 4)
            return delimited(number, below)
        if field.type == _F.TYPE_STRING:
            return delimited(number, self._random.choice(_TEXTS).encode())
        if field.type == _F.TYPE_BYTES:
            return delimited(number, self._bytes())
        wire = 1 if field.type in _FIXED else 5 if field.type in _FIXED_32 else 0
        return varint(number << 3 | wire) + self._scalar(field)

    def _scalar(self, field: FieldDescriptor) -> bytes:
        value = self._random.choice(_NUMBERS)
        if field.type in _FIXED:
            return struct.pack("<Q", value)
        if field.type in _FIXED_32:
            return struct.pack("<I", value)
        if field.enum_type is not None:
            return varint(self._random.choice(field.enum_type.values).number & (1 << 64) - 1)
        return varint(value & 1 if field.type == _F.TYPE_BOOL else value)

    def _bytes(self) -> bytes:
        return self._random.randbytes(self._random.choice([0, 1, 20, 90, 400]))
