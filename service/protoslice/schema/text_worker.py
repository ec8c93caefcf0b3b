"""The worker process that parses text format: `python -m protoslice.schema.text_worker`.

The protobuf runtime parses a text in a single call, which holds the GIL for seconds. In the process of the service,
this call would stall all requests. A separate process can also have limits of time and memory.

Standard input consists of a length (4 bytes, big-endian), a JSON header of this length, the descriptor set and the
text. The header contains the type and the length of the set. Standard output consists of a header in the same form,
which contains an error and its class, and of the serialized message.
"""

from __future__ import annotations

import json
import resource
import struct
import subprocess
import sys
from typing import Final

from protoslice.errors import CorruptModel, InvalidInput, LimitExceeded
from protoslice.schema.parsing import check_text_size, serialized_as
from protoslice.schema.types import TypeSchema, message_class_of

_LENGTH: Final = struct.Struct(">I")
_CPU_SECONDS: Final = 60
_WALL_SECONDS: Final = 300
_MEMORY: Final = 4 << 30
_TOLD: Final = {each.__name__: each for each in (CorruptModel, InvalidInput)}
"""The errors that the process reports. Any other error ends the process."""


def serialized_apart(text: bytes, read_by: TypeSchema) -> bytes:
    """Parse `text` in another process as a message of the type in `read_by`, and return the serialized message.

    This call blocks. Raise `CorruptModel` with the offset of a syntax error, and `InvalidInput` for a type that the
    protobuf runtime refuses. Raise `LimitExceeded` if the text is above `MAX_TEXT` or the process fails. The usual
    reason of a failure is the limit of time or memory.
    """
    check_text_size(len(text))
    head = json.dumps({"type": read_by.name, "schema": len(read_by.canonical)}).encode()
    request = b"".join((_LENGTH.pack(len(head)), head, read_by.canonical, text))
    command = [sys.executable, "-m", "protoslice.schema.text_worker"]
    try:
        done = subprocess.run(command, input=request, capture_output=True, timeout=_WALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise _too_much() from None
    if done.returncode != 0:
        raise _too_much()
    (size,) = _LENGTH.unpack_from(done.stdout)
    said = json.loads(done.stdout[_LENGTH.size : _LENGTH.size + size])
    if said["error"] is not None:
        raise _TOLD[said["class"]](said["error"], said["offset"])
    return done.stdout[_LENGTH.size + size :]


def _too_much() -> LimitExceeded:
    return LimitExceeded("Parsing the text takes too much time or memory: use the binary format instead")


def main() -> None:
    """Parse the text in the request on standard input, and write the response to standard output."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    head = json.loads(source.read(_LENGTH.unpack(source.read(_LENGTH.size))[0]))
    said: dict[str, object] = {"error": None}
    data = b""
    try:
        message = message_class_of(source.read(head["schema"]), head["type"])()
        data = serialized_as(source.read(), message)
    except (CorruptModel, InvalidInput) as error:
        said = {"error": error.message, "offset": error.offset, "class": type(error).__name__}
    answer = json.dumps(said).encode()
    sink.write(_LENGTH.pack(len(answer)) + answer + data)


if __name__ == "__main__":
    main()
