"""Bytes of random messages, written in every form that a parser must accept."""

from __future__ import annotations

import struct
from random import Random
from typing import cast

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message


def descriptor_of(message: Message | type[Message]) -> Descriptor:
    """Return the descriptor of a message or of its class."""
    return cast(Descriptor, message.DESCRIPTOR)


def message_of(field: FieldDescriptor) -> Descriptor:
    """Return the message type of a field that has one."""
    return cast(Descriptor, field.message_type)


def enum_of(field: FieldDescriptor) -> EnumDescriptor:
    """Return the enum of a field that has one."""
    return cast(EnumDescriptor, field.enum_type)


def fields_of(message: Message | type[Message]) -> list[FieldDescriptor]:
    """Return the fields that a message may have."""
    return list(descriptor_of(message).fields)


_VARINT, _FIXED64, _LEN, _GROUP, _END, _FIXED32 = 0, 1, 2, 3, 4, 5
_F = FieldDescriptor
_WIRES = {
    _F.TYPE_DOUBLE: _FIXED64,
    _F.TYPE_FIXED64: _FIXED64,
    _F.TYPE_SFIXED64: _FIXED64,
    _F.TYPE_FLOAT: _FIXED32,
    _F.TYPE_FIXED32: _FIXED32,
    _F.TYPE_SFIXED32: _FIXED32,
    _F.TYPE_STRING: _LEN,
    _F.TYPE_BYTES: _LEN,
    _F.TYPE_MESSAGE: _LEN,
    _F.TYPE_GROUP: _GROUP,
}
_LARGEST_LIST = 100_000
_NUMBERS = [0, 1, 2, 5, 127, 128, 300, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1, 2**64 - 2]
_TEXTS = ["", "a", "b", "conv1", "é", 'q"\\\n', "name/0", "x" * 40]
_FLOATS = [0.0, -0.0, 1.0, 0.5, -2.25, 1e10, 1e16, 3.5e38, float("inf"), float("-inf"), float("nan"), 1e-45, 0.1]


def wire_of(kind: int) -> int:
    """Return the wire type for one value of a field type."""
    return _WIRES.get(kind, _VARINT)


def is_packable(field: FieldDescriptor) -> bool:
    """Return True if elements of `field` may be packed."""
    return wire_of(field.type) not in (_LEN, _GROUP)


def is_map(field: FieldDescriptor) -> bool:
    """Return True if `field` is a map."""
    message = field.message_type
    return message is not None and message.has_options and message.GetOptions().map_entry


def varint(value: int, width: int = 1) -> bytes:
    """Return `value` as a varint of at least `width` bytes."""
    out = bytearray()
    while value > 0x7F or len(out) + 1 < width:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def tag(number: int, wire: int, width: int = 1) -> bytes:
    """Return a field's tag, in at least `width` bytes."""
    return varint(number << 3 | wire, width)


class Writer:
    """A writer of random messages; `budget` limits the number of all their fields together."""

    def __init__(self, rng: Random, budget: int = 60, *, odd: bool = True) -> None:
        self.rng = rng
        self.left = budget
        self.odd = odd

    def message(self, descriptor: Descriptor, depth: int = 0) -> bytes:
        """Return the bytes of a random message."""
        fields = list(descriptor.fields)
        wanted = self.left if depth == 0 else self.rng.randint(0, 6)
        pieces: list[bytes] = []
        while self.left > 0 and len(pieces) < wanted:
            self.left -= 1
            if not fields or self.odd_now(0.08):
                pieces.append(self.unknown(descriptor))
            else:
                pieces += self.occurrences(self.rng.choice(fields), depth)
        if self.rng.random() < 0.7:
            self.rng.shuffle(pieces)
        return b"".join(pieces)

    def odd_now(self, chance: float) -> bool:
        """Decide at random whether to write an unusual form here."""
        return self.odd and self.rng.random() < chance

    def occurrences(self, field: FieldDescriptor, depth: int) -> list[bytes]:
        """Return some occurrences of `field`."""
        if self.odd_now(0.04):
            return [self.misfit(field)]
        if field.is_repeated and is_packable(field):
            return self.numbers(field)
        count = self.rng.choice([1, 1, 1, 2, 3])
        if field.is_repeated and self.rng.random() < 0.08:
            return self.many(field, depth)
        if not field.is_repeated and not self.odd:
            count = 1
        return [self.one(field, depth) for _ in range(count)]

    def many(self, field: FieldDescriptor, depth: int) -> list[bytes]:
        """Return a long list, which indexes store in blocks."""
        left, self.left = self.left, 12
        some = [self.one(field, depth) for _ in range(self.rng.randint(1, 8))]
        self.left = left
        # nested lists would be too large
        most = max(3, _LARGEST_LIST // max(map(len, some)))
        return [self.rng.choice(some) for _ in range(min(most, self.rng.choice([3, 127, 129, 300])))]

    def one(self, field: FieldDescriptor, depth: int) -> bytes:
        """Return one occurrence of `field`, in a form that fits."""
        if field.type == _F.TYPE_GROUP:
            return self.group(field.number, self.message(message_of(field), depth + 1) if depth < 6 else b"")
        if is_map(field):
            return self.delimited(field.number, self.entry(message_of(field), depth + 1))
        if field.type == _F.TYPE_MESSAGE:
            return self.delimited(field.number, self.message(message_of(field), depth + 1) if depth < 6 else b"")
        value = self.value(field)
        if wire_of(field.type) == _LEN:
            return self.delimited(field.number, value)
        return self.tag(field.number, wire_of(field.type)) + value

    def entry(self, descriptor: Descriptor, depth: int) -> bytes:
        """Return a map's entry, in which key or value may be missing, swapped or doubled.

        An entry has no unknown fields, because Python's runtime, unlike C++ and Java, then treats the whole entry as
        unknown.
        """
        key, value = descriptor.fields_by_number[1], descriptor.fields_by_number[2]
        pieces = []
        if not self.odd_now(0.15):
            pieces += [self.one(key, depth) for _ in range(2 if self.odd_now(0.1) else 1)]
        if not self.odd_now(0.15):
            pieces += [self.one(value, depth) for _ in range(2 if self.odd_now(0.1) else 1)]
        if self.odd_now(0.3):
            self.rng.shuffle(pieces)
        return b"".join(pieces)

    def numbers(self, field: FieldDescriptor) -> list[bytes]:
        """Return elements of a repeated number: packed, one by one, or both, in several pieces."""
        pieces = []
        for _ in range(self.rng.choice([1, 1, 2, 3])):
            values = [self.value(field) for _ in range(self.rng.choice([0, 1, 2, 5, 40, 2000]) or 1)]
            if self.rng.random() < 0.5:
                pieces.append(self.delimited(field.number, b"".join(values[: self.rng.choice([0, len(values)])])))
            else:
                wire = wire_of(field.type)
                pieces += [self.tag(field.number, wire) + value for value in values[:400]]
        return pieces

    def value(self, field: FieldDescriptor) -> bytes:
        """Return the bytes of one value without a tag."""
        match field.type:
            case _F.TYPE_STRING:
                return self.rng.choice(_TEXTS).encode() * self.rng.choice([1, 1, 1, 1, 30])
            case _F.TYPE_BYTES:
                length = self.rng.choice([0, 1, 3, 20, 63, 64, 65, 200, self.rng.choice([1000, 5000, 70_000])])
                return self.rng.randbytes(min(length, 64)) * (length // 64) + self.rng.randbytes(length % 64)
            case _F.TYPE_DOUBLE:
                return struct.pack("<d", self.rng.choice(_FLOATS))
            case _F.TYPE_FLOAT:
                return struct.pack("<f", min(self.rng.choice(_FLOATS), 3e38))
            case _F.TYPE_BOOL:
                return self.varint(self.rng.choice([0, 1, 1, 2, 2**64 - 1] if self.odd else [0, 1]))
            case _F.TYPE_ENUM:
                return self.varint(self.rng.choice(self.enum_numbers(field)) % 2**64)
            case kind if wire_of(kind) == _VARINT:
                return self.varint(self.rng.choice(_NUMBERS))
            case kind:
                return self.rng.choice(_NUMBERS).to_bytes(8, "little")[: 8 if wire_of(kind) == _FIXED64 else 4]

    def enum_numbers(self, field: FieldDescriptor) -> list[int]:
        """Return numbers for an enum, including unknown ones if the enum is open."""
        known = sorted(enum_of(field).values_by_number)
        return known if enum_of(field).is_closed else [*known, 7, -5]

    def misfit(self, field: FieldDescriptor) -> bytes:
        """Return `field` in a wire type that its kind does not have, which makes it an unknown field."""
        fits = {wire_of(field.type)} | ({_LEN} if field.is_repeated and is_packable(field) else set())
        wires = [wire for wire in (_VARINT, _FIXED64, _LEN, _GROUP, _FIXED32) if wire not in fits]
        return self.of_wire(field.number, self.rng.choice(wires))

    def unknown(self, descriptor: Descriptor) -> bytes:
        """Return a field that `descriptor` does not declare."""
        while (number := self.rng.choice([3, 14, 15, 16, 99, 2**29 - 1])) in descriptor.fields_by_number:
            pass
        return self.of_wire(number, self.rng.choice([_VARINT, _FIXED64, _LEN, _GROUP, _FIXED32]))

    def of_wire(self, number: int, wire: int, depth: int = 0) -> bytes:
        """Return field `number` with wire type `wire` and any content."""
        match wire:
            case 0:
                return self.tag(number, wire) + self.varint(self.rng.choice(_NUMBERS))
            case 2:
                return self.delimited(number, self.rng.randbytes(self.rng.choice([0, 3, 80])))
            case 3:
                wires = [self.rng.choice([0, 1, 2, 5, 3 if depth < 3 else 0]) for _ in range(self.rng.randint(0, 3))]
                inner = [self.of_wire(self.rng.choice([1, 2, 3, 77]), each, depth + 1) for each in wires]
                return self.group(number, b"".join(inner))
            case _:
                return self.tag(number, wire) + self.rng.randbytes(8 if wire == _FIXED64 else 4)

    def tag(self, number: int, wire: int) -> bytes:
        """Return a tag, sometimes longer than necessary."""
        return tag(number, wire, self.rng.randint(1, 5) if self.odd_now(0.15) else 1)

    def varint(self, value: int) -> bytes:
        """Return a varint, sometimes longer than necessary."""
        return varint(value, self.rng.randint(1, 10) if self.odd_now(0.15) else 1)

    def delimited(self, number: int, content: bytes) -> bytes:
        """Return a length-delimited field, whose length is sometimes longer than necessary."""
        length = varint(len(content), self.rng.randint(1, 5) if self.odd_now(0.15) else 1)
        return self.tag(number, _LEN) + length + content

    def group(self, number: int, content: bytes) -> bytes:
        """Return a group field: start tag, content, end tag."""
        return self.tag(number, _GROUP) + content + self.tag(number, _END)
