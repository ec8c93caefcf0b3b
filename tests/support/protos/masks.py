"""All places that paths can name in a parsed message, and field masks, computed in a slow and simple way."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message
from tests.support.protos.writer import enum_of, fields_of, is_map, is_packable, message_of

Value = Any
"""A message, or the value of a field, as the runtime returns it."""


@dataclass(frozen=True, slots=True)
class Place:
    """A path, the field at its end, and the value there."""

    path: str
    field: FieldDescriptor
    value: Value

    def agrees(self, got: bytes) -> bool:
        """Return True if `got` is a right answer of the engine for this place."""
        if isinstance(self.value, Message):
            return canonical(type(self.value).FromString(got)) == canonical(self.value)
        if isinstance(self.value, bytes):
            return got == bytes(self.value)
        if self.field.type == FieldDescriptor.TYPE_STRING:
            return got == str(self.value).encode()
        return _scalar_agrees(self.field, got.decode("ascii"), self.value)


def canonical(message: Message) -> bytes:
    """Return bytes that are the same for equal messages, including unknown fields and NaNs."""
    return message.SerializeToString(deterministic=True)


def places(message: Message, rng: Random, path: str = "") -> Iterator[Place]:
    """Yield all places below `message`; `rng` chooses whether a path has a field's name or its number."""
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
    """Return the elements by the text of one of their fields; the first element with a text counts."""
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
    """Return a map's key as it is written in brackets."""
    if isinstance(key, bool):
        return "true" if key else "false"
    return str(key) if isinstance(key, int) else quoted(key)


def quoted(text: str | bytes) -> str:
    """Return a text in quotes, with escapes for all characters that are not plain."""
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


@dataclass(frozen=True, slots=True)
class Step:
    """One segment of a mask's path: a field, and the elements of it that the segment selects."""

    field: FieldDescriptor
    by_name: bool = True
    index: int | None = None
    bounds: tuple[int | None, int | None] | None = None
    key: Value = None
    star: bool = False

    def __str__(self) -> str:
        label = self.field.name if self.by_name else str(self.field.number)
        if self.index is not None:
            return f"{label}[{self.index}]"
        if self.bounds is not None:
            return f"{label}[{':'.join('' if bound is None else str(bound) for bound in self.bounds)}]"
        if self.key is not None:
            return f"{label}[{bracket(self.key)}]"
        return f"{label}[*]" if self.star else label

    def takes(self, at: Value) -> bool:
        """Return True if the step selects the element with position or key `at`."""
        if self.key is not None:
            return bool(self.key == at)
        if self.bounds is not None:
            first, last = self.bounds
            return (first or 0) <= at and (last is None or at < last)
        return self.index is None or bool(self.index == at)


def path_of(steps: Sequence[Step]) -> str:
    """Return the path with these steps."""
    return ".".join(map(str, steps))


def random_path(message: Message, rng: Random) -> list[Step]:
    """Return a random path into `message`, mostly to a place that exists."""
    steps: list[Step] = []
    at: Value = message
    while isinstance(at, Message) and (not steps or rng.random() < 0.7):
        there = [field for field, _ in at.ListFields()]
        fields = there if there and rng.random() < 0.9 else fields_of(at)
        if not fields:
            break
        field = rng.choice(fields)
        step, at = _step(field, getattr(at, field.name), rng)
        steps.append(step)
    return steps


def _step(field: FieldDescriptor, value: Value, rng: Random) -> tuple[Step, Value]:
    by_name = rng.random() < 0.5
    if is_map(field):
        key = rng.choice(list(value)) if value else None
        inner = None if key is None else value[key]
        return rng.choice([Step(field, by_name, key=key), Step(field, by_name), Step(field, by_name, star=True)]), inner
    if not field.is_repeated:
        return Step(field, by_name), value
    count = len(value)
    at = rng.randrange(count) if count else 0
    bounds = (rng.choice([None, at]), rng.choice([None, at + 1, count, at + 30]))
    ways = [Step(field, by_name), Step(field, by_name, star=True)]
    if not is_packable(field):
        ways += [Step(field, by_name, index=at), Step(field, by_name, bounds=bounds)]
    return rng.choice(ways), value[at] if count else None


def masked(message: Message, paths: Sequence[Sequence[Step]]) -> Message:
    """Return a copy of `message` with only the parts at `paths`."""
    if any(not path for path in paths):
        return message
    out = type(message)()
    for field, value in message.ListFields():
        mine = [path for path in paths if path[0].field.number == field.number]
        if mine:
            _keep(out, field, value, mine)
    return out


def _keep(out: Message, field: FieldDescriptor, value: Value, paths: list[Sequence[Step]]) -> None:
    target = getattr(out, field.name)
    if is_map(field):
        for key in value:
            _keep_entry(target, key, value[key], _below(paths, key))
    elif field.is_repeated:
        for at, element in enumerate(value):
            if below := _below(paths, at):
                target.append(masked(element, below) if isinstance(element, Message) else element)
    elif isinstance(value, Message):
        target.CopyFrom(masked(value, _below(paths, None)))
        target.SetInParent()
    else:
        setattr(out, field.name, value)


def pruned(message: Message, paths: Sequence[Sequence[Step]]) -> Message:
    """Return a copy of `message` without the parts at `paths`."""
    out = type(message)()
    out.CopyFrom(message)
    for field, value in message.ListFields():
        mine = [path for path in paths if path[0].field.number == field.number]
        if mine:
            _prune(out, field, value, mine)
    return out


def _prune(out: Message, field: FieldDescriptor, value: Value, paths: list[Sequence[Step]]) -> None:
    out.ClearField(field.name)
    target = getattr(out, field.name)
    items = value.items() if is_map(field) else enumerate(value) if field.is_repeated else [(None, value)]
    for at, element in items:
        below = _below(paths, at)
        if not all(below):
            continue
        kept = pruned(element, below) if below and isinstance(element, Message) else element
        if is_map(field) and isinstance(kept, Message):
            target[at].CopyFrom(kept)
        elif is_map(field):
            target[at] = kept
        elif field.is_repeated:
            target.append(kept)
        elif isinstance(kept, Message):
            target.CopyFrom(kept)
            target.SetInParent()
        else:
            setattr(out, field.name, kept)


def _keep_entry(target: Value, key: Value, value: Value, below: list[Sequence[Step]]) -> None:
    if below and isinstance(value, Message):
        target[key].CopyFrom(masked(value, below))
    elif below:
        target[key] = value


def _below(paths: list[Sequence[Step]], at: Value) -> list[Sequence[Step]]:
    """Return the remaining steps of each path whose first step selects `at`."""
    return [path[1:] for path in paths if at is None or path[0].takes(at)]


def clear_large(message: Message, limit: int) -> None:
    """Clear bytes, strings and repeated numbers above `limit` on the wire."""
    message.DiscardUnknownFields()
    for field, value in message.ListFields():
        if is_map(field):
            _clear_entries(value, limit)
        elif field.is_repeated and is_packable(field):
            message.ClearField(field.name)
        elif field.is_repeated:
            _clear_elements(value, limit)
        elif isinstance(value, Message):
            clear_large(value, limit)
        elif _is_large(value, limit):
            message.ClearField(field.name)


def _clear_entries(entries: Value, limit: int) -> None:
    for key in list(entries):
        if isinstance(entries[key], Message):
            clear_large(entries[key], limit)
        elif _is_large(entries[key], limit):
            entries[key] = type(entries[key])()


def _clear_elements(elements: Value, limit: int) -> None:
    for at in reversed(range(len(elements))):
        if isinstance(elements[at], Message):
            clear_large(elements[at], limit)
        elif _is_large(elements[at], limit):
            del elements[at]


def _is_large(value: Value, limit: int) -> bool:
    size = len(value.encode()) if isinstance(value, str) else len(value) if isinstance(value, bytes) else 0
    return size > limit
