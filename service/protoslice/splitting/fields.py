"""Properties of fields, read from descriptors, and sizes of fields and messages, computed from the values.

The runtime's `ByteSize` serializes the message to count the bytes. A message of 3 GiB then takes 6 GiB more memory.
The functions in this module do not serialize messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from protoslice import varints
from protoslice.errors import LimitExceeded

_TEXT = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)

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
"""The range of each integer type."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The properties of a field. For a map, `key` and `value` are the fields of its entries.

    `may_be_empty` is True if an empty message is a valid value of the field. `siblings_optional` is True if a message
    without the other fields is valid. Required fields make these two attributes False.
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
    may_be_empty: bool
    siblings_optional: bool
    tag_size: int
    descriptor: FieldDescriptor

    def of(self, message: Message) -> Any:
        """Return the value of this field in `message`."""
        if self.descriptor.is_extension:
            return message.Extensions[cast(Any, self.descriptor)]
        return getattr(message, self.name)

    @property
    def map_key(self) -> Shape:
        """The key field. This field must be a map."""
        assert self.key is not None
        return self.key

    @property
    def map_value(self) -> Shape:
        """The value field. This field must be a map."""
        assert self.value is not None
        return self.value


@lru_cache(maxsize=65536)
def shape(field: FieldDescriptor) -> Shape:
    """Return the properties of `field`. They are cached."""
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
        may_be_empty=message is not None and complete_when_empty(message),
        siblings_optional=complete_when_empty(cast(Descriptor, field.containing_type)),
        tag_size=varints.size(field.number << 3) * (2 if field.type == FieldDescriptor.TYPE_GROUP else 1),
        descriptor=field,
    )


def complete_when_empty(message: Descriptor) -> bool:
    """Return True when the message type has no required fields. Required fields of its submessages do not count."""
    return not any(each.is_required for each in message.fields)


def descriptor_of(message: Message) -> Descriptor:
    """Return the descriptor of `message`."""
    return cast(Descriptor, message.DESCRIPTOR)


def present(message: Message) -> Iterator[tuple[Shape, Any]]:
    """Yield each field that is set in `message` with its value, including extensions."""
    for field, value in message.ListFields():
        yield shape(field), value


def field_by_number(descriptor: Descriptor, number: int) -> FieldDescriptor | None:
    """Return the field with this number, or None. Extensions are never found, because metadata cannot name them."""
    return descriptor.fields_by_number.get(number)


_FIXED32, _FIXED64, _DELIMITED, _GROUP = 5, 1, 2, 3
_Field = FieldDescriptor


def message_size(message: Message, depth: int = 100) -> int:
    """Return the serialized size of `message`; raise `LimitExceeded` if messages nest deeper than `depth`."""
    if depth < 1:
        raise LimitExceeded("messages nest deeper than the limit; allow a larger depth")
    known = sum(field_size(field, value, depth) for field, value in present(message))
    return known + unknown_size(UnknownFieldSet(message))


def field_size(field: Shape, value: Any, depth: int = 100) -> int:
    """Return the serialized size of a whole field, including all tags."""
    if not field.repeated:
        return field.tag_size + value_size(field, value, depth)
    if field.key is not None:
        return sum(entry_size(field, key, value[key], depth) for key in value)
    if field.packed:
        return packed_size(field, value)
    return sum(field.tag_size + value_size(field, each, depth) for each in value)


def entry_size(field: Shape, key: Any, value: Any, depth: int = 100) -> int:
    """Return the serialized size of one map entry, including its tag and length."""
    return sized_entry(field, key, value_size(field.map_value, value, depth - 1))


def sized_entry(field: Shape, key: Any, value: int) -> int:
    """Return the serialized size of a map entry. Its value takes `value` bytes, including a length prefix."""
    inside = 2 + value_size(field.map_key, key, 1) + value
    return field.tag_size + delimited(inside)


def value_size(field: Shape, value: Any, depth: int) -> int:
    """Return the serialized size of one value without its tag, but including a length prefix."""
    if field.message:
        size = message_size(value, depth - 1)
        return size if field.type == _Field.TYPE_GROUP else delimited(size)
    return _SCALARS[field.type](value)


def packed_size(field: Shape, values: Sequence[Any]) -> int:
    """Return the serialized size of a packed field, including its tag and length; 0 without values."""
    size = sum(map(_SCALARS[field.type], values)) if (width := FIXED.get(field.type)) is None else width * len(values)
    return field.tag_size + delimited(size) if size else 0


def delimited(size: int) -> int:
    """Return the sum of `size` and the size of its length prefix."""
    return size + varints.size(size)


def unknown_size(fields: UnknownFieldSet) -> int:
    """Return the serialized size of unknown fields, which the descriptor does not declare."""
    return sum(_unknown(field.field_number, field.wire_type, field.data) for field in cast(Any, fields))


def _unknown(number: int, wire_type: int, data: Any) -> int:
    tag = varints.size(number << 3)
    if wire_type == _GROUP:
        return 2 * tag + unknown_size(data)
    if wire_type == _DELIMITED:
        return tag + delimited(len(data))
    return tag + {_FIXED32: 4, _FIXED64: 8}.get(wire_type, varints.size(data))


def _text_size(value: str) -> int:
    return delimited(len(value) if value.isascii() else len(value.encode()))


def _zigzag_size(value: int) -> int:
    return varints.size(value * 2 if value >= 0 else -value * 2 - 1)


def _of(size: int) -> Callable[[Any], int]:
    return lambda _: size


FIXED: dict[int, int] = {
    _Field.TYPE_BOOL: 1,
    **dict.fromkeys((_Field.TYPE_FLOAT, _Field.TYPE_FIXED32, _Field.TYPE_SFIXED32), 4),
    **dict.fromkeys((_Field.TYPE_DOUBLE, _Field.TYPE_FIXED64, _Field.TYPE_SFIXED64), 8),
}
"""The size of a value in bytes, for the types whose values all have the same size."""

_SCALARS: dict[int, Callable[[Any], int]] = {
    _Field.TYPE_STRING: _text_size,
    _Field.TYPE_BYTES: lambda value: delimited(len(value)),
    _Field.TYPE_SINT32: _zigzag_size,
    _Field.TYPE_SINT64: _zigzag_size,
    **{kind: _of(size) for kind, size in FIXED.items()},
    **dict.fromkeys(
        (_Field.TYPE_INT32, _Field.TYPE_INT64, _Field.TYPE_UINT32, _Field.TYPE_UINT64, _Field.TYPE_ENUM), varints.size
    ),
}
