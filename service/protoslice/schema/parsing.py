"""A parser of the protobuf text format."""

from __future__ import annotations

import re
from typing import Final, cast

from google.protobuf import text_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message

from protoslice.errors import CorruptModel, LimitExceeded
from protoslice.schema.types import TypeSchema

MAX_TEXT: Final = 64 << 20
"""The byte limit of a text. Parsing happens in memory and takes about a second per MiB."""


_PADDLE: Final = "paddle.framework.proto."
_RENAMED: Final = {
    "lod_tensor": "dense_tensor",
    "lod_level": "legacy_lod_level",
    "LOD_TENSOR": "DENSE_TENSOR",
    "LOD_TENSOR_ARRAY": "DENSE_TENSOR_ARRAY",
}
# The pattern matches whole strings and comments, so that no name within them is replaced.
_FORMER: Final = re.compile(r"\"(?:\\.|[^\"\\\n])*+\"?|'(?:\\.|[^'\\\n])*+'?|#[^\n]*|\w++")


def check_text_size(size: int) -> None:
    """Raise `LimitExceeded` if `size`, the bytes of a text, is above `MAX_TEXT`."""
    if size > MAX_TEXT:
        raise LimitExceeded(f"The text has {size} bytes; at most {MAX_TEXT} are parsed: use the binary format instead")


def serialized(text: bytes, read_by: TypeSchema) -> bytes:
    """Parse `text` as a message of the type in `read_by`, and return the serialized message.

    Raise `CorruptModel` with the offset of a syntax error, and `LimitExceeded` above `MAX_TEXT`. An `Any` may be
    expanded in the text only if its type is reachable from the root.
    """
    check_text_size(len(text))
    # The pool contains only the root's types, so that the bytes depend on nothing but the text and the schema.
    return serialized_as(text, read_by.message_class()())


def serialized_as(text: bytes, message: Message) -> bytes:
    """Parse `text` into the empty `message`, and serialize it; raise `CorruptModel` if `text` does not parse."""
    try:
        _parse(_present(text.decode(), message), message)
        return message.SerializePartialToString(deterministic=True)
    except UnicodeDecodeError as error:
        raise CorruptModel("The text is not UTF-8", error.start) from error
    except RecursionError as error:
        raise CorruptModel("The text is nested too deeply") from error


def _present(text: str, message: Message) -> str:
    """Update `text`: replace the names that Paddle's fields and enum values had before version 3."""
    if not message.DESCRIPTOR.full_name.startswith(_PADDLE):
        return text
    return _FORMER.sub(lambda found: _RENAMED.get(found[0], found[0]), text)


def _parse(text: str, message: Message) -> None:
    try:
        # The pool makes the parser find the type of an expanded `Any` among the types declared with the message.
        text_format.Parse(text, message, descriptor_pool=cast(DescriptorPool, message.DESCRIPTOR.file.pool))
    except text_format.ParseError as error:
        what = str(error).removeprefix(f"{error.GetLine()}:{error.GetColumn()} : ")[:300]
        name = message.DESCRIPTOR.full_name
        where = "" if error.GetLine() is None else f" in line {error.GetLine()}, column {error.GetColumn()}"
        raise CorruptModel(f"The text is not a {name}{where}: {what}", _offset(text, error)) from error


def _offset(text: str, error: text_format.ParseError) -> int | None:
    line, column = error.GetLine(), error.GetColumn()
    if line is None or column is None:
        return None
    lines = text.split("\n")[:line]
    before = "\n".join([*lines[:-1], lines[-1][: column - 1]]) if lines else ""
    return len(before.encode())
