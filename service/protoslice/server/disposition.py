"""Content-Disposition: names of files to and from headers (RFC 6266, 8187)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote_to_bytes

__all__ = ["attachment", "filename_of"]

_LONGEST: Final = 150
_UNSAFE: Final = re.compile(r'[^\x20-\x7e]|["\\%;]')
_FORBIDDEN: Final = re.compile(r"[\x00-\x1f\x7f-\x9f/\\\u202a-\u202e\u2066-\u2069]")
# What RFC 8187 calls attr-char, beyond what quote() keeps anyway.
_ATTR_CHARS: Final = "!#$&+-.^_`|~"
_PARAMETER: Final = re.compile(r';\s*([A-Za-z*]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;\s]+))')


@lru_cache(maxsize=4096)
def attachment(filename: str) -> bytes:
    """The header's value for a download: an ASCII name, and the true one beside it where they differ."""
    name = _FORBIDDEN.sub("_", filename.encode("utf-8", "replace").decode())[-_LONGEST:].strip() or "download"
    plain = _UNSAFE.sub("_", name)
    value = f'attachment; filename="{plain}"'
    if plain != name:
        value += f"; filename*=UTF-8''{quote(name, safe=_ATTR_CHARS)}"
    return value.encode("ascii")


def filename_of(header: str | None) -> str | None:
    """The filename that a Content-Disposition gives; the extended form wins."""
    found = {match[1].lower(): _value(match) for match in _PARAMETER.finditer(header or "")}
    extended = found.get("filename*")
    if extended is not None and extended.count("'") >= 2:
        charset, _, text = extended.split("'", 2)
        if charset.lower() in {"utf-8", "iso-8859-1"}:
            return unquote_to_bytes(text).decode(charset, "replace")
    return found.get("filename")


def _value(match: re.Match[str]) -> str:
    return match[3] if match[2] is None else re.sub(r"\\(.)", r"\1", match[2])
