"""Headers: those of a request, read once, and those that an answer gets besides its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from starlette.types import Message, Scope, Send

Headers: TypeAlias = list[tuple[bytes, bytes]]
"""Headers as they stand on the wire, names in lower case."""

Fields: TypeAlias = dict[bytes, str]
"""Header values by lower-case name, several lines of one joined by commas."""


def read_fields(scope: Scope) -> Fields:
    """The headers of the request."""
    return join_fields(scope["headers"])


def join_fields(headers: Headers) -> Fields:
    """`headers` by name."""
    found: Fields = {name: value.decode("latin-1") for name, value in headers}
    if len(found) < len(headers):
        found.clear()
        for name, value in headers:
            text = value.decode("latin-1")
            found[name] = f"{found[name]}, {text}" if name in found else text
    return found


def media_type_of(fields: Fields, default: str = "") -> str:
    """The media type of a body in lower case, without parameters; `default` when none is named."""
    return plain_media_type(fields.get(b"content-type", default))


def plain_media_type(text: str) -> str:
    """Return the media type of a Content-Type field in lower case, without parameters."""
    return text.partition(";")[0].strip().lower()


def header_lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """`headers` as they stand on the wire."""
    return b"".join([b"%b: %b\r\n" % header for header in headers])


def with_headers(send: Send, added: Headers) -> Send:
    """`send`, with `added` behind the headers of every answer."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *added]
        await send(message)

    return sending
