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
from typing import Any, BinaryIO

from protoslice.errors import ProtosliceError
from protoslice.schema.rendering import render

LENGTH = struct.Struct(">I")


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
