"""Values that a closed enum does not declare, shown as numbers.

The protobuf runtime moves such a value of a proto2 enum to the unknown fields of its message, so JSON and text format
drop it, while paths such as `codes[2]` count it. Rendering declares the values that occur under placeholder names and
writes numbers for them.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, EncodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

MOST: Final = 1000
"""Most different undeclared values in what is rendered at once."""

_ANY: Final = "google.protobuf.Any"


class Undeclared:
    """Enum values without a declaration, collected from messages of types in one pool."""

    def __init__(self, pool: DescriptorPool) -> None:
        self._pool = pool
        self._found: set[tuple[str, int]] = set()
        # Random, so that no text of a model can look like a placeholder.
        self._prefix = f"UNDECLARED_{secrets.token_hex(12)}"

    def __bool__(self) -> bool:
        return bool(self._found)

    def collect(self, message: Message) -> None:
        """Add the undeclared enum values in `message`; raise `ValueError` above `MOST`."""
        known = type(message)()
        known.CopyFrom(message)
        known.DiscardUnknownFields()  # type: ignore[no-untyped-call, unused-ignore]
        try:
            has_unknown = known.ByteSize() != message.ByteSize()
        except EncodeError:  # it lacks required fields
            has_unknown = True
        if has_unknown or _reaches_any(message.DESCRIPTOR):
            self._walk(message)

    def declared(self, descriptor_set: bytes) -> bytes:
        """Return `descriptor_set` with a placeholder declared for each value."""
        files = FileDescriptorSet.FromString(descriptor_set)
        missing: dict[str, list[int]] = {}
        for name, number in sorted(self._found):
            missing.setdefault(name, []).append(number)
        for file in files.file:
            self._declare(file.package, file.enum_type, file.message_type, missing)
        return files.SerializeToString()

    def numbered(self, shown: str) -> str:
        """Return `shown` with numbers in place of placeholders."""
        return re.sub(rf'"?{self._prefix}_\d+_(m?)(\d+)"?', lambda at: ("-" if at[1] else "") + at[2], shown)

    def _walk(self, message: Message) -> None:
        kind = message.DESCRIPTOR
        if kind.full_name == _ANY:
            self._walk_any(message)
        unknowns: Any = UnknownFieldSet(message)
        for unknown in unknowns:
            field = _field(self._pool, kind, unknown.field_number)
            if field is not None:
                self._add(field, unknown.data)
        for field, value in message.ListFields():
            if field.message_type is not None:
                for each in _messages(field, field.message_type, value):
                    self._walk(each)

    def _walk_any(self, message: Any) -> None:
        try:
            kind = self._pool.FindMessageTypeByName(message.type_url.rpartition("/")[2])
            inner = GetMessageClass(kind).FromString(message.value)
        except (KeyError, DecodeError):
            return  # rendering says what is wrong with it
        self._walk(inner)

    def _add(self, field: FieldDescriptor, data: Any) -> None:
        if isinstance(data, bytes) and field.message_type is not None and field.message_type.GetOptions().map_entry:
            self._walk(GetMessageClass(field.message_type).FromString(data))
        enum = field.enum_type
        if enum is None or not enum.is_closed or not isinstance(data, int):
            return
        if (number := _int32(data)) not in enum.values_by_number:
            self._found.add((enum.full_name, number))
        if len(self._found) > MOST:
            raise ValueError(
                f"the message has more than {MOST} enum values that its type does not declare; use the binary "
                "format instead"
            )

    def _declare(
        self,
        scope: str,
        enums: Iterable[EnumDescriptorProto],
        messages: Iterable[DescriptorProto],
        missing: dict[str, list[int]],
    ) -> None:
        for enum in enums:
            name = f"{scope}.{enum.name}".lstrip(".")
            for number in missing.get(name, ()):
                # Values are declared in the scope around their enum: names differ between enums.
                place = sorted(missing).index(name)
                sign = "m" if number < 0 else ""
                enum.value.add(name=f"{self._prefix}_{place}_{sign}{abs(number)}", number=number)
        for message in messages:
            self._declare(f"{scope}.{message.name}", message.enum_type, message.nested_type, missing)


def _messages(field: FieldDescriptor, kind: Descriptor, value: Any) -> Iterable[Message]:
    """Return the messages in a field, with those in values of a map."""
    if not field.is_repeated:
        return [value]
    if not kind.GetOptions().map_entry:
        return value  # type: ignore[no-any-return]
    return value.values() if kind.fields_by_name["value"].message_type is not None else []


def _reaches_any(kind: Any) -> bool:
    seen, ahead = {kind.full_name}, [kind]
    while ahead:
        for field in ahead.pop().fields:
            inner = field.message_type
            if inner is not None and inner.full_name not in seen:
                seen.add(inner.full_name)
                ahead.append(inner)
    return _ANY in seen


def _field(pool: Any, kind: Any, number: int) -> FieldDescriptor | None:
    """Return the field or extension of `kind` with this number, None if there is none."""
    found: FieldDescriptor | None = kind.fields_by_number.get(number)
    if found is None:
        with suppress(KeyError):
            found = pool.FindExtensionByNumber(kind, number)
    return found


def _int32(value: int) -> int:
    """Return `value` as an enum holds it."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)
