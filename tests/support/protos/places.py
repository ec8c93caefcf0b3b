"""Every place in a parsed message that a path can name, and what is due there."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message
from tests.support.protos.descriptors import enum_of, message_of
from tests.support.protos.writer import is_map

Value = Any
"""A message or the value of a field, as the runtime gives it."""


@dataclass(frozen=True, slots=True)
class Place:
    """A path, the field it ends at, and the value that stands there."""

    path: str
    field: FieldDescriptor
    value: Value

    def agrees(self, got: bytes) -> bool:
        """True if the engine may answer `got` here."""
        if isinstance(self.value, Message):
            return canonical(type(self.value).FromString(got)) == canonical(self.value)
        if isinstance(self.value, bytes):
            return got == bytes(self.value)
        if self.field.type == FieldDescriptor.TYPE_STRING:
            return got == str(self.value).encode()
        return _scalar_agrees(self.field, got.decode("ascii"), self.value)


def canonical(message: Message) -> bytes:
    """Bytes that are the same for equal messages, unknown fields and NaNs included."""
    return message.SerializeToString(deterministic=True)


def places(message: Message, rng: Random, path: str = "") -> Iterator[Place]:
    """All places below `message`, each field named or numbered as `rng` wants."""
    for field, value in message.ListFields():
        step = rng.choice([field.name, str(field.number)])
        here = f"{path}.{step}" if path else step
        if is_map(field):
            yield from _of_map(field, value, here, rng)
        elif field.is_repeated:
            yield from _of_list(field, value, here, rng)
        else:
            yield from _of_one(field, value, here, rng)


def _of_one(field: FieldDescriptor, value: Value, path: str, rng: Random) -> Iterator[Place]:
    yield Place(path, field, value)
    if isinstance(value, Message):
        yield from places(value, rng, path)


def _of_map(field: FieldDescriptor, values: Value, path: str, rng: Random) -> Iterator[Place]:
    value_field = message_of(field).fields_by_number[2]
    for key in values:
        yield from _of_one(value_field, values[key], f"{path}[{bracket(key)}]", rng)


def _of_list(field: FieldDescriptor, values: Value, path: str, rng: Random) -> Iterator[Place]:
    chosen = range(len(values)) if len(values) < 20 else sorted(rng.sample(range(len(values)), 20))
    for i in chosen:
        yield from _of_one(field, values[i], f"{path}[{i}]", rng)
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        yield from _by_text(field, values, path, rng)


def _by_text(field: FieldDescriptor, values: Value, path: str, rng: Random) -> Iterator[Place]:
    """The elements by the text of one of their fields: the first that has it."""
    for each in message_of(field).fields:
        if each.is_repeated or each.type not in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
            continue
        first: dict[Value, Message] = {}
        for value in values:
            first.setdefault(getattr(value, each.name), value)
        for text, value in list(first.items())[:10]:
            name = rng.choice([each.name, str(each.number)])
            if len(text) < 500:
                yield Place(f"{path}[{name}={quoted(text)}]", field, value)


def bracket(key: Value) -> str:
    """A map's key as it stands in brackets."""
    if isinstance(key, bool):
        return "true" if key else "false"
    return str(key) if isinstance(key, int) else quoted(key)


def quoted(text: str | bytes) -> str:
    """Text in quotes, everything escaped that is not plain."""
    data = text.encode() if isinstance(text, str) else text
    plain = (chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\x{byte:02x}" for byte in data)
    return f'"{"".join(plain)}"'


def _scalar_agrees(field: FieldDescriptor, text: str, value: Value) -> bool:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_BOOL:
            return text == ("true" if value else "false")
        case FieldDescriptor.CPPTYPE_ENUM:
            return text == _enum_text(enum_of(field), value)
        case FieldDescriptor.CPPTYPE_DOUBLE:
            return _same(float(text), value, "d")
        case FieldDescriptor.CPPTYPE_FLOAT:
            return _same(float(text), value, "f")
        case _:
            return text == str(value)


def _enum_text(enum: EnumDescriptor, number: int) -> str:
    names = [value.name for value in enum.values if value.number == number]
    return min(names, default=str(number))


def _same(a: float, b: float, width: str) -> bool:
    return (math.isnan(a) and math.isnan(b)) or struct.pack(width, a) == struct.pack(width, b)
