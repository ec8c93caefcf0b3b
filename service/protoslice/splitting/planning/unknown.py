"""Copies of unknown fields, serialized again.

The runtime has no other way to copy unknown fields alone.
"""

from __future__ import annotations

from typing import Any, cast

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from protoslice import varints

_VARINT, _FIXED64, _DELIMITED, _GROUP, _END_GROUP, _FIXED32 = range(6)


def copy_unknown(target: Message, source: Message) -> None:
    """Add the unknown fields of `source` to `target`, without those of submessages."""
    fields = UnknownFieldSet(source)
    if len(fields):
        target.MergeFromString(_encode(fields))


def _encode(fields: UnknownFieldSet) -> bytes:
    return b"".join(_one(field.field_number, field.wire_type, field.data) for field in cast(Any, fields))


def _one(number: int, wire_type: int, data: Any) -> bytes:
    tag = varints.write(number << 3 | wire_type)
    if wire_type == _VARINT:
        return tag + varints.write(data)
    if wire_type == _DELIMITED:
        return tag + varints.write(len(data)) + bytes(data)
    if wire_type == _GROUP:
        return tag + _encode(data) + varints.write(number << 3 | _END_GROUP)
    return tag + int(data).to_bytes(4 if wire_type == _FIXED32 else 8, "little")
