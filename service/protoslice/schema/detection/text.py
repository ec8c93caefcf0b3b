"""Text that may be a protobuf: the text format, and JSON."""

from __future__ import annotations

import re

_FIRST = re.compile(r"\s*(?:#[^\n]*\n\s*)*(?:[A-Za-z_]\w*|\[[\w./]+\])\s*(?::|\{|<)")
_JSON = re.compile(r"\s*(?:\{\s*(?:\"|\}\s*\Z)|\[\s*[\[{\"\d\]-])")
# Whatever is looked at is taken, a string that does not end and a word that is no name too: nothing is looked at twice.
_TOKEN = re.compile(
    r"\"(?:\\.|[^\"\\\n])*+\"?|'(?:\\.|[^'\\\n])*+'?|#[^\n]*"
    r"|(?P<bracket>[{}<>])|(?P<name>[A-Za-z_]\w*+)(?=\s*+[:{<])|\w++"
)


def decoded(head: bytes) -> str | None:
    """`head` as text, a cut character at its end left out; none when it is no text."""
    try:
        return _printable(head.decode())
    except UnicodeDecodeError as error:
        return _printable(head[: error.start].decode()) if error.reason == "unexpected end of data" else None


def _printable(text: str) -> str | None:
    plain = all(char >= " " or char in "\t\r\n" for char in text) and "\x7f" not in text
    return text if plain and text.strip() else None


def is_json(text: str) -> bool:
    """Whether `text` begins a JSON object or array."""
    return _JSON.match(text) is not None


def outer_fields(text: str) -> set[str] | None:
    """The names of the outermost fields of a message in text format; none when `text` is no such thing."""
    if _FIRST.match(text) is None:
        return None
    names, depth = set[str](), 0
    for token in _TOKEN.finditer(text):
        if bracket := token["bracket"]:
            depth += 1 if bracket in "{<" else -1
        elif depth == 0 and token["name"]:
            names.add(token["name"])
    return names
