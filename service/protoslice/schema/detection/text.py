"""Recognition of protobuf text format and JSON."""

from __future__ import annotations

import re

_FIRST = re.compile(r"\s*(?:#[^\n]*\n\s*)*(?:[A-Za-z_]\w*|\[[\w./]+\])\s*(?::|\{|<)")
_JSON = re.compile(r"\s*(?:\{\s*(?:\"|\}\s*\Z)|\[\s*[\[{\"\d\]-])")
# Possessive, and with branches for unterminated strings and other words: the scan is linear for any text.
_TOKEN = re.compile(
    r"\"(?:\\.|[^\"\\\n])*+\"?|'(?:\\.|[^'\\\n])*+'?|#[^\n]*"
    r"|(?P<bracket>[{}<>])|(?P<name>[A-Za-z_]\w*+)(?=\s*+[:{<])|\w++"
)


def decoded(head: bytes) -> str | None:
    """`head` as text, without a character cut off at its end; None if it is not printable UTF-8."""
    try:
        return _printable(head.decode())
    except UnicodeDecodeError as error:
        return _printable(head[: error.start].decode()) if error.reason == "unexpected end of data" else None


def _printable(text: str) -> str | None:
    plain = all(char >= " " or char in "\t\r\n" for char in text) and "\x7f" not in text
    return text if plain and text.strip() else None


def is_json(text: str) -> bool:
    """True when `text` begins a JSON object or array."""
    return _JSON.match(text) is not None


def outer_fields(text: str) -> set[str] | None:
    """Names of the outermost fields of a message in text format; None if `text` is not in that format."""
    if _FIRST.match(text) is None:
        return None
    names, depth = set[str](), 0
    for token in _TOKEN.finditer(text):
        if bracket := token["bracket"]:
            depth += 1 if bracket in "{<" else -1
        elif depth == 0 and token["name"]:
            names.add(token["name"])
    return names
