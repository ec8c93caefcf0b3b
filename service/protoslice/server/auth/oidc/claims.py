"""Claims of JWTs, as rules read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

Claims: TypeAlias = Mapping[str, Any]


def texts_at(claims: Claims, name: str) -> tuple[str, ...]:
    """Values of a claim as texts, one for each member of a list; empty for an absent claim or an object.

    `name` is that of a claim, or with a leading `/` a JSON pointer (RFC 6901) into one.
    """
    if not name.startswith("/"):
        return _texts(claims.get(name))
    value: object = claims
    for word in name[1:].split("/"):
        if not isinstance(value, Mapping):
            return ()
        value = value.get(word.replace("~1", "/").replace("~0", "~"))
    return _texts(value)


def _texts(value: object) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [value]
    return tuple(text for each in values if (text := _text(each)) is not None)


def _text(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return value if isinstance(value, str) else None
