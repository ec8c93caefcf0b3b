"""Upload-Metadata (tus 1.0), read strictly."""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as BadBase64
from typing import Final

from protoslice.errors import InvalidInput

_KEY: Final = re.compile(r"[!-+\--~]{1,100}")
_LONGEST: Final = 16 << 10


def pairs(header: str) -> dict[str, str]:
    """The words and values of Upload-Metadata: `key base64,key base64`."""
    found: dict[str, str] = {}
    if len(header) > _LONGEST:
        raise InvalidInput(f"Upload-Metadata is too long: at most {_LONGEST} characters")
    for pair in filter(None, (each.strip() for each in header.split(","))):
        key, _, value = pair.partition(" ")
        if not _KEY.fullmatch(key) or key in found:
            raise InvalidInput(f"Upload-Metadata has the key {key[:100]!r} twice, or this key is invalid")
        found[key] = _text_of(value, key)
    return found


def _text_of(value: str, key: str) -> str:
    """The text behind a base64 value."""
    try:
        return b64decode(value.strip(), validate=True).decode("utf-8")
    except (BadBase64, ValueError):
        raise InvalidInput(f"The value of {key!r} in Upload-Metadata is not base64 of UTF-8 text") from None
