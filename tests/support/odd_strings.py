"""Messages of any type whose strings are not UTF-8, made from descriptors and from real models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from tests.support.protos.writer import varint

from protoslice import schema
from protoslice.detection import candidates
from protoslice.schema.types import bundled_bytes

ODD: Final = b"\xff"
_DEEPEST: Final = 12
_EACH: Final = 3
"""The most times that a type occurs in a message, because some types contain each other."""
_WIRE: Final = {1: 1, 2: 5, 6: 1, 7: 5, 15: 5, 16: 1}
"""The wire types of fixed-width fields, by field type; all others are varints."""


def root_types() -> list[str]:
    """Return the root types that detection knows, and all proto2 types that none of these contains."""
    files = descriptor_pb2.FileDescriptorSet.FromString(bundled_bytes()).file
    loose = [f"{file.package}.{each.name}" for file in files if file.syntax != "proto3" for each in file.message_type]
    roots = dict.fromkeys(candidates())
    held = set[str]()
    for name in [*roots, *filter(schema.bundled().__contains__, loose)]:
        if name not in held:
            roots[name] = None
            _reach(schema.bundled().descriptor(name), held)
    return sorted(roots)


def _reach(descriptor: Descriptor, held: set[str]) -> None:
    """Add the type's name and the names of all types that it contains to `held`."""
    if descriptor.full_name not in held:
        held.add(descriptor.full_name)
        for field in descriptor.fields:
            if field.message_type:
                _reach(field.message_type, held)


def odd_message(type_name: str, text: bytes = ODD) -> bytes:
    """Return a message with each of its fields set at every depth, and with `text` in each string."""
    return _fields(schema.bundled().descriptor(type_name), text, 0, Counter())


def _fields(descriptor: Descriptor, text: bytes, depth: int, seen: Counter[str]) -> bytes:
    seen[descriptor.full_name] += 1
    if depth > _DEEPEST or seen[descriptor.full_name] > _EACH:
        return b""
    return b"".join(_field(field, text, depth, seen) for field in descriptor.fields)


def _field(field: FieldDescriptor, text: bytes, depth: int, seen: Counter[str]) -> bytes:
    number = field.number << 3
    if field.type == FieldDescriptor.TYPE_GROUP and field.message_type:
        return varint(number | 3) + _fields(field.message_type, text, depth + 1, seen) + varint(number | 4)
    if field.message_type:
        content = _fields(field.message_type, text, depth + 1, seen)
    elif field.type == FieldDescriptor.TYPE_STRING:
        content = text
    elif field.type == FieldDescriptor.TYPE_BYTES:
        content = b"\0\0\0\0"
    else:
        wire = _WIRE.get(field.type, 0)
        return varint(number | wire) + (b"\1" if wire == 0 else b"\1" + bytes(7 if wire == 1 else 3))
    return varint(number | 2) + varint(len(content)) + content


def with_odd_strings(data: bytes, type_name: str) -> bytes:
    """Return the message `data` with each string's first byte replaced by a byte that UTF-8 never uses."""
    odd = bytearray(data)
    for start in _strings(data, 0, len(data), schema.bundled().descriptor(type_name)):
        odd[start] = ODD[0]
    return bytes(odd)


def _strings(data: bytes, at: int, end: int, descriptor: Descriptor) -> Iterator[int]:
    """Yield the offsets of all nonempty strings in the message between `at` and `end`."""
    while at < end:
        tag, at = _varint(data, at)
        field = descriptor.fields_by_number.get(tag >> 3)
        match tag & 7:
            case 0:
                _, at = _varint(data, at)
            case 1:
                at += 8
            case 5:
                at += 4
            case 2:
                length, at = _varint(data, at)
                if field is not None and field.message_type:
                    yield from _strings(data, at, at + length, field.message_type)
                elif field is not None and field.type == FieldDescriptor.TYPE_STRING and length:
                    yield at
                at += length
            case _:
                raise AssertionError("no model of the corpus has groups")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return value, at
