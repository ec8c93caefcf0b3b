"""Content-Disposition: the name that a download gets (RFC 6266, 8187)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final
from urllib.parse import quote

_LONGEST: Final = 150
_UNSAFE: Final = re.compile(r'[^\x20-\x7e]|["\\%;]')
_FORBIDDEN: Final = re.compile(r"[\x00-\x1f\x7f-\x9f/\\\u202a-\u202e\u2066-\u2069]")
# Characters of RFC 8187's attr-char, besides those that quote() keeps anyway.
_ATTR_CHARS: Final = "!#$&+-.^_`|~"


@lru_cache(maxsize=4096)
def attachment(filename: str) -> bytes:
    """The header's value for a download: an ASCII name, and the true one beside it where they differ."""
    name = _FORBIDDEN.sub("_", filename.encode("utf-8", "replace").decode())[-_LONGEST:].strip() or "download"
    plain = _UNSAFE.sub("_", name)
    value = f'attachment; filename="{plain}"'
    if plain != name:
        value += f"; filename*=UTF-8''{quote(name, safe=_ATTR_CHARS)}"
    return value.encode("ascii")
