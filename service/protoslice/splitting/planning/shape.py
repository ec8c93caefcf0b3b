"""Shapes of fields, from descriptors alone, so that messages may come from any pool."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from protoslice import varints

_TEXT = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)
_GROUP = FieldDescriptor.TYPE_GROUP

INT_32 = range(-(1 << 31), 1 << 31)
INT_64 = range(-(1 << 63), 1 << 63)
UINT_32 = range(1 << 32)
UINT_64 = range(1 << 64)
WHOLE: dict[int, range] = {
    **dict.fromkeys((FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_SINT32, FieldDescriptor.TYPE_SFIXED32), INT_32),
    **dict.fromkeys((FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_SINT64, FieldDescriptor.TYPE_SFIXED64), INT_64),
    **dict.fromkeys((FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_FIXED32), UINT_32),
    **dict.fromkeys((FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64), UINT_64),
}
"""Range of each integer type."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A field as splitters see it; for a map, `key` and `value` are the fields of its entries.

    `hollow`: an empty message is valid as the field's value. `alone`: a message without the other fields is valid.
    Required fields make either False.
    """

    name: str
    number: int
    type: int
    repeated: bool
    message: bool
    text: bool
    packed: bool
    addressable: bool
    key: Shape | None
    value: Shape | None
    hollow: bool
    alone: bool
    tag_size: int
    descriptor: FieldDescriptor

    def of(self, message: Message) -> Any:
        """The value of this field in `message`."""
        if self.descriptor.is_extension:
            return message.Extensions[cast(Any, self.descriptor)]
        return getattr(message, self.name)

    @property
    def map_key(self) -> Shape:
        """Key field of a map, which the field has to be."""
        assert self.key is not None
        return self.key

    @property
    def map_value(self) -> Shape:
        """Value field of a map, which the field has to be."""
        assert self.value is not None
        return self.value


@lru_cache(maxsize=65536)
def shape(field: FieldDescriptor) -> Shape:
    """Shape of `field`, cached."""
    message = field.message_type
    entry = message if message is not None and message.GetOptions().map_entry else None
    return Shape(
        name=field.name,
        number=field.number,
        type=field.type,
        repeated=field.is_repeated,
        message=message is not None,
        text=field.type in _TEXT,
        packed=field.is_repeated and field.is_packed,
        addressable=not (field.is_extension or field.is_required),
        key=None if entry is None else shape(entry.fields_by_name["key"]),
        value=None if entry is None else shape(entry.fields_by_name["value"]),
        hollow=message is not None and complete_when_empty(message),
        alone=complete_when_empty(cast(Descriptor, field.containing_type)),
        tag_size=varints.size(field.number << 3) * (2 if field.type == _GROUP else 1),
        descriptor=field,
    )


def complete_when_empty(message: Descriptor) -> bool:
    """True when the message type has no required fields of its own."""
    return not any(each.is_required for each in message.fields)


def descriptor_of(message: Message) -> Descriptor:
    """The descriptor of `message`."""
    return cast(Descriptor, message.DESCRIPTOR)


def present(message: Message) -> Iterator[tuple[Shape, Any]]:
    """The fields that are set in `message`, extensions too, each with its value."""
    for field, value in message.ListFields():
        yield shape(field), value


def field_by_number(descriptor: Descriptor, number: int) -> FieldDescriptor | None:
    """Field with that number, or None; extensions are never found, as metadata cannot name them."""
    return descriptor.fields_by_number.get(number)
