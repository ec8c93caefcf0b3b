"""Rendering of a message, or of a stream of messages, as JSON or in text format."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any, Final

from google.protobuf import (
    any_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    json_format,
    struct_pb2,
    text_format,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, EncodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from protoslice.errors import InvalidInput
from protoslice.schema.strings import parsed
from protoslice.schema.types import MessageTypes, find, from_descriptor_set, pool_of
from protoslice.varints import records

_MODULES: Final = (any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
_PACKAGE: Final = ("google", "protobuf")


def with_well_known(descriptor_set: bytes) -> bytes:
    """Return the canonical `descriptor_set` with the well-known types in separate files before the other types.

    A canonical set is one file, in which oneofs have no names. The protobuf runtime renders some types of
    `google.protobuf` in a special form. It identifies wrappers by the name of their file, and the kinds of a `Value` by
    the name of their oneof.

    The set stays one file if it declares a well-known type differently, or if its packages below `google` depend on
    each other. In this case, only the oneof of `Value` gets its name.
    """
    found = FileDescriptorSet.FromString(descriptor_set)
    if len(found.file) != 1:
        return descriptor_set
    divided = _divided(found.file[0])
    if divided is not None:
        try:
            pool_of(divided)
        except InvalidInput:
            pass
        else:
            return divided
    _name_oneof(found.file[0])
    return found.SerializeToString()


def _divided(file: FileDescriptorProto) -> bytes | None:
    """Return the set as separate files: the well-known types, `google.protobuf`, `google`, and everything else.

    Return None if this is not possible, because a well-known type is declared differently or a package is a message.
    """
    standard = _standard()
    rest = FileDescriptorProto()
    rest.CopyFrom(file)
    files = FileDescriptorSet.FromString(_standard_set()).file
    names = [each.name for each in files]
    packages: list[FileDescriptorProto] = []
    scopes: list[DescriptorProto] = []
    nested = rest.message_type
    for part in _PACKAGE:
        scope = next((each for each in nested if each.name == part), None)
        if scope is None:
            break
        if scope.field or scope.oneof_decl or scope.HasField("options"):
            return None  # a message has the name of a package
        scopes.append(scope)
        nested = scope.nested_type
    if len(scopes) == len(_PACKAGE):
        for message in list(scopes[-1].nested_type):
            known = standard.get(message.name)
            if known is None:
                continue
            if known != message:
                return None
            scopes[-1].nested_type.remove(message)
        for enum in [each for each in scopes[-1].enum_type if each.name == "NullValue"]:
            scopes[-1].enum_type.remove(enum)
    for depth in range(len(scopes), 0, -1):
        scope = scopes[depth - 1]
        package = FileDescriptorProto(name=f"{'.'.join(_PACKAGE[:depth])}.proto", package=".".join(_PACKAGE[:depth]))
        package.syntax, package.edition = file.syntax, file.edition
        package.options.CopyFrom(file.options)
        package.message_type.extend(scope.nested_type)
        package.enum_type.extend(scope.enum_type)
        package.extension.extend(scope.extension)
        package.dependency.extend([*names, *(each.name for each in packages)])
        packages.append(package)
        (scopes[depth - 2].nested_type if depth > 1 else rest.message_type).remove(scope)
    rest.dependency.extend([*names, *(each.name for each in packages)])
    return FileDescriptorSet(file=[*files, *packages, rest]).SerializeToString()


def _name_oneof(file: FileDescriptorProto) -> None:
    """Rename the oneof of `google.protobuf.Value` to the name that the protobuf runtime expects."""
    nested = file.message_type
    for part in (*_PACKAGE, "Value"):
        found = next((each for each in nested if each.name == part), None)
        if found is None:
            return
        nested = found.nested_type
        if part == "Value" and len(found.oneof_decl) == 1:
            found.oneof_decl[0].name = "kind"


@cache
def _standard_set() -> bytes:
    """Return the descriptor set of the well-known types in the protobuf runtime."""
    files = []
    for module in _MODULES:
        module.DESCRIPTOR.CopyToProto(file := FileDescriptorProto())
        files.append(file)
    return FileDescriptorSet(file=files).SerializeToString()


@cache
def _standard() -> dict[str, DescriptorProto]:
    """Return the canonical declaration of each well-known type by its short name."""
    types = from_descriptor_set(_standard_set())
    found = {}
    for full_name in types.names():
        name = full_name.removeprefix("google.protobuf.")
        if "." in name:
            continue
        file = FileDescriptorSet.FromString(types.canonical(full_name)).file[0]
        scope = file.message_type[0].nested_type[0]
        found[name] = next(each for each in scope.nested_type if each.name == name)
    return found


MAX_UNDECLARED: Final = 1000
"""Largest number of different undeclared values that one rendering may contain."""

_ANY: Final = "google.protobuf.Any"


class Undeclared:
    """A collector of enum values that their closed enum does not declare, so that they can be shown as numbers.

    The protobuf runtime moves such values of proto2 enums to the unknown fields of their message. JSON and text format
    then drop them, although paths such as `codes[2]` count them. Rendering therefore declares the values under
    placeholder names, and replaces the placeholders with numbers in its output. All messages belong to one pool.
    """

    def __init__(self, pool: DescriptorPool) -> None:
        self._pool = pool
        self._found: set[tuple[str, int]] = set()
        # The prefix is random, so that no text in a model can look like a placeholder.
        self._prefix = f"UNDECLARED_{secrets.token_hex(12)}"

    def __bool__(self) -> bool:
        return bool(self._found)

    def collect(self, message: Message) -> None:
        """Add the undeclared enum values in `message`; raise `ValueError` for more than `MAX_UNDECLARED` values."""
        known = type(message)()
        known.CopyFrom(message)
        known.DiscardUnknownFields()  # type: ignore[no-untyped-call, unused-ignore]
        try:
            has_unknown = known.ByteSize() != message.ByteSize()
        except EncodeError:  # the message lacks required fields
            has_unknown = True
        if has_unknown or _reaches_any(message.DESCRIPTOR):
            self._walk(message)

    def declared(self, descriptor_set: bytes) -> bytes:
        """Return `descriptor_set` with a declared placeholder for each collected value."""
        files = FileDescriptorSet.FromString(descriptor_set)
        missing: dict[str, list[int]] = {}
        for name, number in sorted(self._found):
            missing.setdefault(name, []).append(number)
        for file in files.file:
            self._declare(file.package, file.enum_type, file.message_type, missing)
        return files.SerializeToString()

    def numbered(self, shown: str) -> str:
        """Return the rendered text `shown` with numbers in place of placeholders."""
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
            return  # rendering reports this error
        self._walk(inner)

    def _add(self, field: FieldDescriptor, data: Any) -> None:
        if isinstance(data, bytes) and field.message_type is not None and field.message_type.GetOptions().map_entry:
            self._walk(GetMessageClass(field.message_type).FromString(data))
        enum = field.enum_type
        if enum is None or not enum.is_closed or not isinstance(data, int):
            return
        if (number := _int32(data)) not in enum.values_by_number:
            self._found.add((enum.full_name, number))
        if len(self._found) > MAX_UNDECLARED:
            raise ValueError(
                f"the message has more than {MAX_UNDECLARED} enum values that its type does not declare; "
                "use the binary format instead"
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
                # Enum values share the scope around their enum, so the names must differ between enums.
                place = sorted(missing).index(name)
                sign = "m" if number < 0 else ""
                enum.value.add(name=f"{self._prefix}_{place}_{sign}{abs(number)}", number=number)
        for message in messages:
            self._declare(f"{scope}.{message.name}", message.enum_type, message.nested_type, missing)


def _messages(field: FieldDescriptor, kind: Descriptor, value: Any) -> Iterable[Message]:
    """Return the messages in a field, including messages that are values of a map."""
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
    """Return the field or extension of `kind` with this number; None if there is none."""
    found: FieldDescriptor | None = kind.fields_by_number.get(number)
    if found is None:
        with suppress(KeyError):
            found = pool.FindExtensionByNumber(kind, number)
    return found


def _int32(value: int) -> int:
    """Return `value` as a signed 32-bit integer, as enums hold it."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


FORMS: Final = ("json", "text", "jsonl", "texts")
"""The forms of rendering. The last two render a stream with varint lengths, as lines of JSON or as texts."""

_NO_MEMORY: Final = "alloc failed"
"""A part of the runtime's error message when memory is exhausted. The rendered message itself is not faulty then."""


def render(type_name: str, form: str, descriptor_set: bytes, data: bytes) -> bytes:
    """Render the messages in `data` in one of `FORMS`; raise `ValueError` if they cannot be shown.

    `descriptor_set` declares the type `type_name`. It is empty for a bundled type.
    """
    extra = [_types(descriptor_set)] if descriptor_set else []
    types = find(type_name, extra)
    kind, pool = types.message_class(type_name), types.descriptor(type_name).file.pool
    # Text format can write any bytes in a string; JSON cannot.
    parse = _as_is if form in ("text", "texts") else parsed
    undeclared = Undeclared(pool)
    for record in _records(data, form):
        undeclared.collect(_parsed(parse, kind, record))
    if undeclared:
        pool = pool_of(undeclared.declared(types.whole()))
        kind = GetMessageClass(pool.FindMessageTypeByName(type_name))
    messages = (_parsed(parse, kind, record) for record in _records(data, form))
    if form in ("text", "texts"):
        shown = "\n".join(_text(message, pool) for message in messages)
    elif form == "json":
        shown = _json(next(messages), pool, own_names=not extra, indent=2)
    else:
        shown = "".join(_json(message, pool, own_names=not extra, indent=None) + "\n" for message in messages)
    return (undeclared.numbered(shown) if undeclared else shown).encode("utf-8", "replace")


def _as_is(kind: type[Message], data: bytes) -> Message:
    return kind.FromString(data)


def _parsed(parse: Callable[[type[Message], bytes], Message], kind: type[Message], data: bytes) -> Message:
    try:
        return parse(kind, data)
    except DecodeError as error:
        if _NO_MEMORY in str(error):
            raise MemoryError from None
        raise ValueError(
            f"These bytes are not a {kind.DESCRIPTOR.full_name}: {str(error).rpartition(': ')[2]}"
        ) from None


def _text(message: Message, pool: DescriptorPool) -> str:
    return text_format.MessageToString(message, as_utf8=True, descriptor_pool=pool)


def _json(message: Message, pool: DescriptorPool, *, own_names: bool, indent: int | None) -> str:
    try:
        # Keys are sorted, because the runtime's order of maps differs between processes.
        return json_format.MessageToJson(
            message,
            preserving_proto_field_name=own_names,
            ensure_ascii=False,
            descriptor_pool=pool,
            sort_keys=True,
            indent=indent,
        )
    except (json_format.Error, TypeError) as error:
        name = message.DESCRIPTOR.full_name
        raise ValueError(f"This {name} has no JSON form: {str(error)[:200]}") from None


def _records(data: bytes, form: str) -> Iterator[bytes]:
    """Yield the records in `data`, a stream with varint lengths. If `form` is for one message, yield `data` itself."""
    if form in ("json", "text"):
        yield data
        return
    for start, end in records(data):
        yield data[start:end]


@lru_cache(maxsize=8)
def _types(descriptor_set: bytes) -> MessageTypes:
    """Return the types of a canonical set with the service's JSON names of fields.

    A field's JSON name is the name that the schema declares. If the schema declares none, it is the field's own name,
    not in camel case.
    """
    files = FileDescriptorSet.FromString(with_well_known(descriptor_set))
    messages = [message for file in files.file for message in file.message_type]
    for message in messages:
        messages += message.nested_type
        for field in message.field:
            shared = (
                field.json_name == f"{field.name}#{field.number}"
            )  # the engine's replacement for a JSON name that two fields share
            field.json_name = field.name if shared else field.json_name or field.name
    return from_descriptor_set(files, one_pool=True)
