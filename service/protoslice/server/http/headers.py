"""Request headers, read once."""

from __future__ import annotations

from typing import TypeAlias

from starlette.types import Scope

__all__ = ["Fields", "Headers", "read_fields"]

Headers: TypeAlias = list[tuple[bytes, bytes]]
"""Headers as they stand on the wire, names in lower case."""

Fields: TypeAlias = dict[bytes, str]
"""Header values by lower-case name, several lines of one joined by commas."""


def read_fields(scope: Scope) -> Fields:
    """The headers of the request."""
    found: Fields = {}
    for name, value in scope["headers"]:
        text = value.decode("latin-1")
        found[name] = f"{found[name]}, {text}" if name in found else text
    return found
