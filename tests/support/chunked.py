"""Chunked files of a message type that has every kind of field, made chunk by chunk."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.text_format import Parse

from protoslice.library.opening import open_proto
from protoslice.riegeli import RecordWriter
from protoslice.schema import bundled, from_descriptor_set

METADATA: Any = bundled().message_class("tensorflow.proto_splitter.ChunkMetadata")

_KEYS = {"s": "STRING", "boolean": "BOOL", "ui32": "UINT32", "ui64": "UINT64", "i32": "INT32", "i64": "INT64"}
_VALUES = {"floats": "TYPE_FLOAT", "blobs": "TYPE_BYTES", "flags": "TYPE_BOOL", "names": "TYPE_STRING"}


def _map(name: str, number: int, key: str, value: str) -> str:
    entry = f"{name.replace('_', ' ').title().replace(' ', '')}Entry"
    return f"""
    field {{ name: "{name}" number: {number} type: TYPE_MESSAGE type_name: ".t.M.{entry}" label: LABEL_REPEATED }}
    nested_type {{
      name: "{entry}" options {{ map_entry: true }}
      field {{ name: "key" number: 1 type: TYPE_{key} label: LABEL_OPTIONAL }}
      field {{ name: "value" number: 2 {value} label: LABEL_OPTIONAL }}
    }}"""


_MAPS = [
    _map(f"by_{kind}", at, key, 'type: TYPE_MESSAGE type_name: ".t.M"')
    for at, (kind, key) in enumerate(_KEYS.items(), 30)
]
_MAPS += [_map(name, at, "STRING", f"type: {value}") for at, (name, value) in enumerate(_VALUES.items(), 40)]
_SINGULAR = (
    "bytes:BYTES str:STRING i32:INT32 i64:INT64 u32:UINT32 u64:UINT64 "
    "flt:FLOAT dbl:DOUBLE bool:BOOL s32:SINT32 fx64:FIXED64"
)
_FIELDS = [
    f'field {{ name: "{name}" number: {at} type: TYPE_{kind} label: LABEL_OPTIONAL }}'
    for at, (name, kind) in enumerate((each.split(":") for each in _SINGULAR.split()), 1)
]
_FILE = f"""
name: "t.proto" package: "t" syntax: "proto3"
enum_type {{ name: "Color" value {{ name: "RED" number: 0 }} value {{ name: "GREEN" number: 1 }} }}
message_type {{
  name: "M"
  {"".join(_FIELDS)}
  field {{ name: "enum" number: 15 type: TYPE_ENUM type_name: ".t.Color" label: LABEL_OPTIONAL }}
  field {{ name: "sub" number: 16 type: TYPE_MESSAGE type_name: ".t.M" label: LABEL_OPTIONAL }}
  field {{ name: "subs" number: 20 type: TYPE_MESSAGE type_name: ".t.M" label: LABEL_REPEATED }}
  field {{ name: "strs" number: 21 type: TYPE_STRING label: LABEL_REPEATED }}
  field {{ name: "ints" number: 22 type: TYPE_INT32 label: LABEL_REPEATED }}
  field {{ name: "left" number: 50 type: TYPE_MESSAGE type_name: ".t.M" label: LABEL_OPTIONAL oneof_index: 0 }}
  field {{ name: "right" number: 51 type: TYPE_MESSAGE type_name: ".t.M" label: LABEL_OPTIONAL oneof_index: 0 }}
  field {{ name: "text" number: 52 type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 0 }}
  oneof_decl {{ name: "one" }}
  {"".join(_MAPS)}
}}
"""
TYPES = from_descriptor_set(FileDescriptorSet(file=[Parse(_FILE, FileDescriptorProto())]))
M: Any = TYPES.message_class("t.M")
NUMBERS = {field.name: field.number for field in M.DESCRIPTOR.fields}

Tag = str | int | tuple[str, Any]
"""A tag of a field: its name or number, ("index", number of an element), or (kind of a map key, key)."""


def fill(message: Any, chunk: int | None, fields: Sequence[Any] = ()) -> Any:
    """Fill in a `ChunkedMessage` and return it. It starts from `chunk`; each of `fields` is (tags, chunk[, fields])."""
    if chunk is not None:
        message.chunk_index = chunk
    for tags, number, *below in fields:
        added = message.chunked_fields.add()
        for tag in tags:
            _put(added.field_tag.add(), tag)
        fill(added.message, number, *below)
    return message


def _put(index: Any, tag: Tag) -> None:
    if isinstance(tag, tuple):
        kind, value = tag
        if kind == "index":
            index.index = value
        elif kind == "nothing":
            index.SetInParent()
        else:
            setattr(index.map_key, kind, value)
    else:
        index.field = NUMBERS[tag] if isinstance(tag, str) else tag


def file_of(chunks: Sequence[Any], metadata: Any, options: str = "") -> bytes:
    """Return a chunked file of `chunks`; add their places in the file to `metadata`."""
    out = io.BytesIO()
    with RecordWriter(out, options=options) as writer:
        for chunk in chunks:
            data = chunk if isinstance(chunk, bytes) else chunk.SerializeToString()
            writer.write_record(data)
            metadata.chunks.add(size=len(data), offset=writer.last_pos.numeric, type=1)
        writer.write_message(metadata)
    return out.getvalue()


def chunked(chunks: Sequence[Any], chunk: int | None, *fields: Any, options: str = "") -> bytes:
    """Return a chunked file of a message that starts from chunk number `chunk` and has `fields` below it."""
    metadata = METADATA()
    fill(metadata.message, chunk, fields)
    return file_of(chunks, metadata, options)


def merged(chunks: Sequence[Any], chunk: int | None, *fields: Any, options: str = "") -> Any:
    """Return the message that opening such a file gives."""
    with open_proto(chunked(chunks, chunk, *fields, options=options), "t.M", types=TYPES) as proto:
        return M.FromString(proto.rope.read())


def at(index: int) -> tuple[str, int]:
    """Return the tag of an element."""
    return ("index", index)
