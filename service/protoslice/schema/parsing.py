"""Parser of the protobuf text format."""

from __future__ import annotations

import re
from typing import Final, cast

from google.protobuf import text_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message

from protoslice.errors import CorruptModel, LimitExceeded
from protoslice.schema.types import TypeSchema

MAX_TEXT: Final = 64 << 20
"""Limit in bytes of a text: it is parsed in memory, at about a second per MiB."""


_PADDLE: Final = "paddle.framework.proto."
_RENAMED: Final = {
    "lod_tensor": "dense_tensor",
    "lod_level": "legacy_lod_level",
    "LOD_TENSOR": "DENSE_TENSOR",
    "LOD_TENSOR_ARRAY": "DENSE_TENSOR_ARRAY",
}
# Strings and comments are matched as wholes, so that no name within them is replaced.
_FORMER: Final = re.compile(r"\"(?:\\.|[^\"\\\n])*+\"?|'(?:\\.|[^'\\\n])*+'?|#[^\n]*|\w++")


def check_text_size(size: int) -> None:
    """Raise `LimitExceeded` if a text of `size` bytes is above `MAX_TEXT`."""
    if size > MAX_TEXT:
        raise LimitExceeded(f"The text has {size} bytes; at most {MAX_TEXT} are parsed: use the binary format instead")


def serialized(text: bytes, read_by: TypeSchema) -> bytes:
    """Return the message in `text`, of the type of `read_by`, serialized.

    Raise `CorruptModel` with the offset of a syntax error, `LimitExceeded` above `MAX_TEXT`. An `Any` may be expanded
    in the text only if its type is reachable from the root.
    """
    check_text_size(len(text))
    # A pool of the root's types alone: the bytes depend on the text and the schema, not on other types known here.
    return serialized_as(text, read_by.message_class()())


def serialized_as(text: bytes, message: Message) -> bytes:
    """Return `text` parsed into the empty `message`, serialized; raise `CorruptModel` if it does not parse."""
    try:
        _parse(_present(text.decode(), message), message)
        return message.SerializePartialToString(deterministic=True)
    except UnicodeDecodeError as error:
        raise CorruptModel("The text is not UTF-8", error.start) from error
    except RecursionError as error:
        raise CorruptModel("The text is nested too deeply") from error


def _present(text: str, message: Message) -> str:
    """Return `text` with present names instead of those that Paddle's messages had before version 3."""
    if not message.DESCRIPTOR.full_name.startswith(_PADDLE):
        return text
    return _FORMER.sub(lambda found: _RENAMED.get(found[0], found[0]), text)


def _parse(text: str, message: Message) -> None:
    try:
        # An expanded `Any` is looked up among the types that the message was declared with.
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
