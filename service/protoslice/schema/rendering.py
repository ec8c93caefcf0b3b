"""Messages as JSON and in text format, one or a stream of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final

from google.protobuf import json_format, text_format
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from protoslice.schema.closed_enums import Undeclared
from protoslice.schema.strings import parsed
from protoslice.schema.types import MessageTypes, find, from_descriptor_set, pool_of
from protoslice.schema.well_known import with_well_known
from protoslice.varints import records

FORMS: Final = ("json", "text", "jsonl", "texts")
"""Forms of a message. The last two are of a stream with varint lengths: lines of JSON, or texts."""

_NO_MEMORY: Final = "alloc failed"
"""Words of the runtime's error when memory is short, which is no fault of the message."""


def render(type_name: str, form: str, descriptor_set: bytes, data: bytes) -> bytes:
    """The messages in `data` in one of `FORMS`; `ValueError` says why they cannot be shown.

    `descriptor_set` declares the type, unless it is empty and the type a bundled one.
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
        # Sorted: the runtime keeps maps in an order that differs between processes.
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
    """Yield the records of a stream with varint lengths, or `data` for a form of one message."""
    if form in ("json", "text"):
        yield data
        return
    for start, end in records(data):
        yield data[start:end]


@lru_cache(maxsize=8)
def _types(descriptor_set: bytes) -> MessageTypes:
    """The types of a canonical set, in which each field has the name that it has in our JSON.

    That is the name which its schema declares for JSON; without one, its own, and not the one in camel case.
    """
    files = FileDescriptorSet.FromString(with_well_known(descriptor_set))
    messages = [message for file in files.file for message in file.message_type]
    for message in messages:
        messages += message.nested_type
        for field in message.field:
            shared = field.json_name == f"{field.name}#{field.number}"  # as the engine declares it
            field.json_name = field.name if shared else field.json_name or field.name
    return from_descriptor_set(files, one_pool=True)
