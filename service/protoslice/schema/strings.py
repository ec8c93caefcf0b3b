"""Decoding of strings in models. Bytes that are not UTF-8 become escapes such as `\\xff`.

The protobuf runtime returns a proto2 string that is not UTF-8 as `bytes`, and refuses a proto3 message with such a
string. All code that reads models uses this module to parse messages and decode names, so that strings are always text.
A test finds code that does not.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message


def text_of(data: bytes) -> str:
    """Decode `data`. Each byte that is not UTF-8 becomes four characters, such as `\\xff`, as in paths."""
    return data.decode("utf-8", "backslashreplace")


def parsed(kind: type[Message], data: bytes) -> Any:
    """Parse `data` as a message of class `kind` in which all strings are text.

    Raise `DecodeError` if `data` does not parse.
    """
    message = kind.FromString(data)
    if not data.isascii():
        _decode_strings(message)
    return message


def _decode_strings(message: Message) -> None:
    """Replace the strings in `message` that are not UTF-8; raise `DecodeError` if a map key is not UTF-8."""
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_STRING:
            _decode(message, field, value)
        elif (kind := field.message_type) is not None:
            for inner in _messages(field, kind, value):
                _decode_strings(inner)


def _decode(message: Message, field: FieldDescriptor, value: Any) -> None:
    if not field.is_repeated:
        if isinstance(value, bytes):
            setattr(message, field.name, text_of(value))
        return
    for at, each in enumerate(value):
        if isinstance(each, bytes):
            value[at] = text_of(each)


def _messages(field: FieldDescriptor, kind: Descriptor, value: Any) -> list[Message]:
    """Return the messages in a field, including messages that are values of a map."""
    if not field.is_repeated:
        return [value]
    if not kind.GetOptions().map_entry:
        return list(value)
    try:
        items = list(value.items())
    except UnicodeDecodeError as error:
        raise DecodeError(f"A key of the map {field.name} is not UTF-8") from error
    for key, each in items:
        if isinstance(each, bytes) and kind.fields_by_name["value"].type == FieldDescriptor.TYPE_STRING:
            value[key] = text_of(each)
    return [each for _, each in items if isinstance(each, Message)]
