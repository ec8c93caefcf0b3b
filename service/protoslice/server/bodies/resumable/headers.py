"""The headers of resumable uploads, read strictly: a number misread here would be bytes lost."""

from __future__ import annotations

import re
from typing import Final

from protoslice.errors import InvalidInput
from protoslice.server.http.headers import Fields

_NUMBER: Final = re.compile(r"[0-9]{1,18}")


def number(fields: Fields, name: str) -> int | None:
    """The number of bytes that a header gives; none when it is not there."""
    text = fields.get(name.encode())
    if text is None:
        return None
    if not _NUMBER.fullmatch(text):
        raise InvalidInput(f"Invalid {name} {text[:40]!r}: use a number of bytes")
    return int(text)
