"""A process that renders messages for people: `python -m protoslice.server.rendering.worker`.

The protobuf runtime holds the interpreter's lock for whole parses, and JSON takes many times the memory of the message:
both belong into a process of their own, which can be limited, stopped and replaced.

Frames on standard input and output: a length of 4 bytes (big-endian), a JSON head of that length, then the payloads
whose lengths the head gives.
"""

from __future__ import annotations

import json
import resource
import struct
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, BinaryIO

from google.protobuf import json_format, text_format
from google.protobuf.message import DecodeError

from protoslice import schema
from protoslice.errors import ProtosliceError

__all__ = ["main", "render"]

LENGTH = struct.Struct(">I")
_NO_MEMORY = "alloc failed"
"""How the runtime says it; it is no fault of the message."""


@lru_cache(maxsize=8)
def _types(descriptor_set: bytes) -> schema.MessageTypes:
    return schema.from_descriptor_set(descriptor_set, one_pool=True)


def render(type_name: str, form: str, descriptor_set: bytes, data: bytes) -> bytes:
    """The message in JSON or in text format; `ValueError` says why it cannot be shown."""
    extra = [_types(descriptor_set)] if descriptor_set else []
    types = schema.find(type_name, extra)
    try:
        message = types.message_class(type_name).FromString(data)
    except DecodeError as error:
        if _NO_MEMORY in str(error):
            raise MemoryError from None
        raise ValueError(f"these bytes are no {type_name}: {str(error).rpartition(': ')[2]}") from None
    pool = types.descriptor(type_name).file.pool
    if form == "text":
        return text_format.MessageToString(message, as_utf8=True, descriptor_pool=pool).encode("utf-8", "replace")
    try:
        # Sorted: the runtime keeps maps in an order that is another in every process.
        shown = json_format.MessageToJson(
            message, preserving_proto_field_name=True, ensure_ascii=False, descriptor_pool=pool, sort_keys=True
        )
    except (json_format.Error, TypeError) as error:
        raise ValueError(f"this {type_name} has no JSON form: {str(error)[:200]}") from None
    return shown.encode("utf-8", "replace")


def main(memory_bytes: int) -> None:
    """Render what comes on standard input until it ends."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    while (size := source.read(LENGTH.size)) and len(size) == LENGTH.size:
        head = json.loads(source.read(LENGTH.unpack(size)[0]))
        _answer(sink, head, source.read(head["schema"]), source.read(head["data"]))


def _answer(sink: BinaryIO, head: Mapping[str, Any], descriptor_set: bytes, data: bytes) -> None:
    body, said = b"", {"error": ""}
    try:
        body = render(head["type"], head["form"], descriptor_set, data)
    except MemoryError:
        said = {"error": "limit"}
    except (ValueError, ProtosliceError) as error:
        said = {"error": "unsupported", "detail": str(error)}
    text = json.dumps({**said, "data": len(body)}).encode()
    sink.write(LENGTH.pack(len(text)) + text)
    sink.write(body)
    sink.flush()


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]))
    except MemoryError:
        sys.exit(1)
