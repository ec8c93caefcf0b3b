"""Descriptors as the flat table that the wire engine reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from protoslice._core import Schema

FieldRow = tuple[int, str, int, bool, int, int]
"""Number, name, type as in descriptor.proto, repeated, oneof counted from 1, index of the message or enum."""

MessageRow = tuple[str, bool, list[FieldRow]]
"""Full name, whether it is the entry of a map, fields by number."""


@dataclass(frozen=True, slots=True)
class Table:
    """All message types that one root reaches, the root first, and the values of their enums."""

    messages: list[MessageRow]
    enums: list[dict[str, int]]

    def schema(self) -> Schema:
        """The table as the engine's own object."""
        return Schema(self.messages, self.enums)


def flatten(root: Descriptor) -> Table:
    """The table of `root` and everything it reaches, breadth first and by field number: the same at every run."""
    builder = _Builder()
    builder.message(root)
    messages = [builder.row(descriptor) for descriptor in builder.queue]
    return Table(messages, builder.enums)


@dataclass(slots=True)
class _Builder:
    queue: list[Descriptor] = field(default_factory=list)
    enums: list[dict[str, int]] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)

    def message(self, descriptor: Descriptor) -> int:
        number = self.numbers.get(descriptor.full_name)
        if number is None:
            number = self.numbers[descriptor.full_name] = len(self.queue)
            self.queue.append(descriptor)
        return number

    def enum(self, descriptor: EnumDescriptor) -> int:
        number = self.numbers.get(descriptor.full_name)
        if number is None:
            number = self.numbers[descriptor.full_name] = len(self.enums)
            self.enums.append({value.name: value.number for value in descriptor.values})
        return number

    def row(self, descriptor: Descriptor) -> MessageRow:
        map_entry = descriptor.has_options and descriptor.GetOptions().map_entry
        return descriptor.full_name, map_entry, [self.field(each) for each in fields_of(descriptor)]

    def field(self, each: FieldDescriptor) -> FieldRow:
        target = 0
        if each.message_type is not None:
            target = self.message(each.message_type)
        elif each.enum_type is not None:
            target = self.enum(each.enum_type)
        name = f"[{each.full_name}]" if each.is_extension else each.name
        return each.number, name, each.type, each.is_repeated, _oneof(each), target


def fields_of(descriptor: Descriptor) -> list[FieldDescriptor]:
    """The fields of `descriptor` by number, with the extensions its pool knows."""
    fields = list(descriptor.fields)
    if descriptor.is_extendable:
        pool: Any = descriptor.file.pool
        fields += pool.FindAllExtensions(descriptor)
    return sorted(fields, key=_number)


def _number(each: FieldDescriptor) -> int:
    return each.number


def _oneof(each: FieldDescriptor) -> int:
    """The oneof of a field; 0 for none, and for the one-member oneof that stands for proto3's `optional`."""
    oneof = each.containing_oneof
    if oneof is None or (oneof.name == f"_{each.name}" and len(oneof.fields) == 1):
        return 0
    return oneof.index + 1
