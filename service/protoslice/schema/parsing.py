"""Parser of the protobuf text format."""

from __future__ import annotations

from typing import Final

from google.protobuf import text_format
from google.protobuf.message import Message

from protoslice.errors import CorruptModel, LimitExceeded
from protoslice.schema.registry import TypeSchema

__all__ = ["MAX_TEXT", "check_text_size", "serialized"]

MAX_TEXT: Final = 64 << 20
"""Limit in bytes of a text: it is parsed in memory, at about a second per MiB."""


def check_text_size(size: int) -> None:
    """Raise `LimitExceeded` if a text of `size` bytes is above `MAX_TEXT`."""
    if size > MAX_TEXT:
        raise LimitExceeded(f"the text has {size} bytes; at most {MAX_TEXT} are parsed: give it in its binary form")


def serialized(text: bytes, read_by: TypeSchema) -> bytes:
    """The message in `text`, of the type of `read_by`, serialized.

    `CorruptModel` with the offset of a syntax error; `LimitExceeded` above `MAX_TEXT`. An `Any` may be expanded in the
    text only if its type is reachable from the root.
    """
    check_text_size(len(text))
    # A pool of the root's types alone: the bytes depend on the text and the schema, not on other types known here.
    return serialized_as(text, read_by.message_class()())


def serialized_as(text: bytes, message: Message) -> bytes:
    """`text` parsed into the empty `message`, serialized; `CorruptModel` if it does not parse."""
    try:
        _parse(text.decode(), message)
        return message.SerializePartialToString(deterministic=True)
    except UnicodeDecodeError as error:
        raise CorruptModel("the text is not UTF-8", error.start) from error
    except RecursionError as error:
        raise CorruptModel("the text is nested too deep") from error


def _parse(text: str, message: Message) -> None:
    try:
        text_format.Parse(text, message)
    except text_format.ParseError as error:
        what = str(error).removeprefix(f"{error.GetLine()}:{error.GetColumn()} : ")[:300]
        name = message.DESCRIPTOR.full_name
        where = "" if error.GetLine() is None else f" in line {error.GetLine()}, column {error.GetColumn()}"
        raise CorruptModel(f"the text is no {name}{where}: {what}", _offset(text, error)) from error


def _offset(text: str, error: text_format.ParseError) -> int | None:
    line, column = error.GetLine(), error.GetColumn()
    if line is None or column is None:
        return None
    lines = text.split("\n")[:line]
    before = "\n".join([*lines[:-1], lines[-1][: column - 1]]) if lines else ""
    return len(before.encode())
