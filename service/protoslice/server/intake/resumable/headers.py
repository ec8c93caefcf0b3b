"""The headers of resumable uploads, read strictly: a number misread here would be bytes lost."""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as BadBase64
from typing import Final

from protoslice.errors import InvalidInput
from protoslice.server.http.headers import Fields

__all__ = ["flag", "number", "pairs", "text_of"]

_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_KEY: Final = re.compile(r"[!-+\--~]{1,100}")
_LONGEST: Final = 16 << 10


def number(fields: Fields, name: str) -> int | None:
    """The number of bytes that a header gives; none when it is not there."""
    text = fields.get(name.encode())
    if text is None:
        return None
    if not _NUMBER.fullmatch(text):
        raise InvalidInput(f"{name} must be a number of bytes, not {text[:40]!r}")
    return int(text)


def flag(fields: Fields, name: str) -> bool | None:
    """The boolean that a structured field gives; none when it is not there."""
    text = fields.get(name.encode())
    if text is None:
        return None
    if text not in {"?0", "?1"}:
        raise InvalidInput(f"{name} must be ?0 or ?1, not {text[:40]!r}")
    return text == "?1"


def pairs(header: str) -> dict[str, str]:
    """The words and values of Upload-Metadata: `key base64,key base64`."""
    found: dict[str, str] = {}
    if len(header) > _LONGEST:
        raise InvalidInput(f"Upload-Metadata is longer than {_LONGEST} characters")
    for pair in filter(None, (each.strip() for each in header.split(","))):
        key, _, value = pair.partition(" ")
        if not _KEY.fullmatch(key) or key in found:
            raise InvalidInput(f"Upload-Metadata has {key[:100]!r} twice, or it is no word")
        found[key] = text_of(value, key)
    return found


def text_of(value: str, key: str) -> str:
    """The text behind a base64 value."""
    try:
        return b64decode(value.strip(), validate=True).decode("utf-8")
    except (BadBase64, ValueError):
        raise InvalidInput(f"the value of {key!r} in Upload-Metadata is not UTF-8 in base64") from None
