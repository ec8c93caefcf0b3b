"""A merge of chunks that does the same as TensorFlow's Merger, and refuses all input that aborts the Merger."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cmp_to_key
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from tests.support.protos.writer import descriptor_of, is_map, message_of

_KEYS = {"s": str, "boolean": bool, "ui32": int, "ui64": int, "i32": int, "i64": int}


def merge_chunks(chunks: Sequence[bytes], chunked: Any, into: Message) -> Message:
    """Merge the chunks that `chunked` names into `into`, and return it.

    Raise `AssertionError` where TensorFlow's Merger aborts.
    """
    if chunked.HasField("chunk_index"):
        into.MergeFromString(chunks[chunked.chunk_index])
    for field in sorted(chunked.chunked_fields, key=cmp_to_key(_compare)):
        _place(chunks, list(field.field_tag), field.message, into)
    return into


def _compare(a: Any, b: Any) -> int:
    for x, y in zip(a.field_tag, b.field_tag, strict=False):
        assert x.WhichOneof("kind") == y.WhichOneof("kind"), "kinds of tags differ"
        if x.HasField("map_key"):
            break
        if x != y:
            return 1 if (x.field, x.index) > (y.field, y.index) else -1
    else:
        if len(a.field_tag) != len(b.field_tag):
            return len(a.field_tag) - len(b.field_tag)
    return int(a.message.chunk_index) - int(b.message.chunk_index)


def _place(chunks: Sequence[bytes], tags: list[Any], message: Any, into: Message) -> None:
    if not tags:
        assert not message.chunked_fields, "fields below an empty tag are ignored"
        into.MergeFromString(chunks[message.chunk_index])
        return
    field = descriptor_of(into).fields_by_number[tags[0].field]
    rest = tags[1:]
    if is_map(field):
        child = _map_value(field, rest, getattr(into, field.name))
        rest = rest[1:]
    elif field.is_repeated:
        child = _element(field, rest, getattr(into, field.name))
        rest = rest[1:]
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        child = getattr(into, field.name)
        child.SetInParent()
    else:
        assert not rest, "a path goes on after a scalar"
        _set_text(chunks, field, message, into)
        return
    if rest:
        _place(chunks, rest, message, child)
    else:
        merge_chunks(chunks, message, child)


def _map_value(field: FieldDescriptor, rest: list[Any], values: Any) -> Message:
    assert rest, "a map field without key"
    assert rest[0].HasField("map_key"), "a map field without key"
    assert message_of(field).fields_by_number[2].message_type is not None, "a map of scalars"
    kind = rest[0].map_key.WhichOneof("type")
    key = getattr(rest[0].map_key, kind)
    wanted = message_of(field).fields_by_number[1].cpp_type
    assert _FITS[wanted] == kind, f"a key of kind {kind}"
    value: Message = values[_KEYS[kind](key)]
    return value


_FITS = {
    FieldDescriptor.CPPTYPE_STRING: "s",
    FieldDescriptor.CPPTYPE_BOOL: "boolean",
    FieldDescriptor.CPPTYPE_UINT32: "ui32",
    FieldDescriptor.CPPTYPE_UINT64: "ui64",
    FieldDescriptor.CPPTYPE_INT32: "i32",
    FieldDescriptor.CPPTYPE_INT64: "i64",
}


def _element(field: FieldDescriptor, rest: list[Any], values: Any) -> Message:
    assert rest, "a repeated field without index"
    assert rest[0].HasField("index"), "a repeated field without index"
    assert field.type == FieldDescriptor.TYPE_MESSAGE, "elements of a repeated scalar"
    index = rest[0].index
    assert index <= len(values), "a gap"
    element: Message = values[index] if index < len(values) else values.add()
    return element


def _set_text(chunks: Sequence[bytes], field: FieldDescriptor, message: Any, into: Message) -> None:
    assert field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES), "a scalar as a chunk"
    assert not message.chunked_fields, "fields below bytes"
    chunk = chunks[message.chunk_index]
    setattr(into, field.name, chunk if field.type == FieldDescriptor.TYPE_BYTES else chunk.decode())
