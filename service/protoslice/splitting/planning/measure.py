"""Sizes of serialized messages in bytes, added up from the fields.

The runtime's `ByteSize` serializes the message to count the bytes: 6 GiB more memory for a message of 3 GiB. Functions
here serialize no messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from protoslice import varints
from protoslice.errors import LimitExceeded
from protoslice.splitting.planning.shape import Shape, present

_FIXED32, _FIXED64, _DELIMITED, _GROUP = 5, 1, 2, 3
_Field = FieldDescriptor


def message_size(message: Message, depth: int = 100) -> int:
    """Size of `message` when serialized; `LimitExceeded` when messages nest deeper than `depth`."""
    if depth < 1:
        raise LimitExceeded("messages nest deeper than the limit; allow a larger depth")
    known = sum(field_size(field, value, depth) for field, value in present(message))
    return known + unknown_size(UnknownFieldSet(message))


def field_size(field: Shape, value: Any, depth: int = 100) -> int:
    """Size of a whole field, all tags included."""
    if not field.repeated:
        return field.tag_size + value_size(field, value, depth)
    if field.key is not None:
        return sum(entry_size(field, key, value[key], depth) for key in value)
    if field.packed:
        return packed_size(field, value)
    return sum(field.tag_size + value_size(field, each, depth) for each in value)


def entry_size(field: Shape, key: Any, value: Any, depth: int = 100) -> int:
    """Size of one map entry, tag and length included."""
    return sized_entry(field, key, value_size(field.map_value, value, depth - 1))


def sized_entry(field: Shape, key: Any, value: int) -> int:
    """Size of a map entry whose value takes `value` bytes, length prefix included."""
    inside = 2 + value_size(field.map_key, key, 1) + value
    return field.tag_size + delimited(inside)


def value_size(field: Shape, value: Any, depth: int) -> int:
    """Size of one value without its tag, a length prefix included."""
    if field.message:
        size = message_size(value, depth - 1)
        return size if field.type == _Field.TYPE_GROUP else delimited(size)
    return _SCALARS[field.type](value)


def packed_size(field: Shape, values: Sequence[Any]) -> int:
    """Size of a packed field, tag and length included; 0 without values."""
    size = sum(map(_SCALARS[field.type], values)) if (width := FIXED.get(field.type)) is None else width * len(values)
    return field.tag_size + delimited(size) if size else 0


def delimited(size: int) -> int:
    """Sum of `size` and the size of its length prefix."""
    return size + varints.size(size)


def unknown_size(fields: UnknownFieldSet) -> int:
    """Size of the fields that the descriptor does not know."""
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
"""Size of a value, for the types whose values all have one size."""

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
