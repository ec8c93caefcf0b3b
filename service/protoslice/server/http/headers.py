"""Headers of requests and responses: lines, values by name, Content-Disposition, and Upload-Metadata of tus."""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as BadBase64
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, TypeAlias
from urllib.parse import quote

from starlette.types import Message, Scope, Send

from protoslice.errors import InvalidInput

Headers: TypeAlias = list[tuple[bytes, bytes]]
"""Headers in the order of the message, with names in lower case."""

HeaderMap: TypeAlias = dict[bytes, str]
"""Header values by lower-case name. The values of repeated headers are joined by commas."""

_LONGEST_NAME: Final = 150
_UNSAFE: Final = re.compile(r'[^\x20-\x7e]|["\\%;]')
_FORBIDDEN: Final = re.compile(r"[\x00-\x1f\x7f-\x9f/\\\u202a-\u202e\u2066-\u2069]")
# Characters of RFC 8187's attr-char, except the characters that quote() keeps anyway.
_ATTR_CHARS: Final = "!#$&+-.^_`|~"
_KEY: Final = re.compile(r"[!-+\--~]{1,100}")
_LONGEST_METADATA: Final = 16 << 10


def read_fields(scope: Scope) -> HeaderMap:
    """Return the headers of the request by name."""
    return join_fields(scope["headers"])


def join_fields(headers: Headers) -> HeaderMap:
    """Return `headers` by name."""
    found: HeaderMap = {name: value.decode("latin-1") for name, value in headers}
    if len(found) < len(headers):
        found.clear()
        for name, value in headers:
            text = value.decode("latin-1")
            found[name] = f"{found[name]}, {text}" if name in found else text
    return found


def media_type_of(fields: HeaderMap, default: str = "") -> str:
    """Return a body's media type in lower case, without parameters. Return `default` without Content-Type."""
    return plain_media_type(fields.get(b"content-type", default))


def plain_media_type(text: str) -> str:
    """Return the media type of a Content-Type field in lower case, without parameters."""
    return text.partition(";")[0].strip().lower()


def header_lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return `headers` as lines of the response."""
    return b"".join([b"%b: %b\r\n" % header for header in headers])


def with_headers(send: Send, added: Headers) -> Send:
    """Return a `send` that adds `added` to the headers of every response."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *added]
        await send(message)

    return sending


@lru_cache(maxsize=4096)
def attachment(filename: str) -> bytes:
    """Return the Content-Disposition of a download: an ASCII name, and the exact name if it differs."""
    name = _FORBIDDEN.sub("_", filename.encode("utf-8", "replace").decode())[-_LONGEST_NAME:].strip() or "download"
    plain = _UNSAFE.sub("_", name)
    value = f'attachment; filename="{plain}"'
    if plain != name:
        value += f"; filename*=UTF-8''{quote(name, safe=_ATTR_CHARS)}"
    return value.encode("ascii")


def upload_metadata(header: str) -> dict[str, str]:
    """Return the values in Upload-Metadata by key. The header's form is `key base64,key base64`."""
    found: dict[str, str] = {}
    if len(header) > _LONGEST_METADATA:
        raise InvalidInput(f"Upload-Metadata is too long: at most {_LONGEST_METADATA} characters")
    for pair in filter(None, (each.strip() for each in header.split(","))):
        key, _, value = pair.partition(" ")
        if not _KEY.fullmatch(key) or key in found:
            raise InvalidInput(f"Upload-Metadata has the key {key[:100]!r} twice, or this key is invalid")
        found[key] = _text_of(value, key)
    return found


def _text_of(value: str, key: str) -> str:
    """Return the text in a base64 value."""
    try:
        return b64decode(value.strip(), validate=True).decode("utf-8")
    except (BadBase64, ValueError):
        raise InvalidInput(f"The value of {key!r} in Upload-Metadata is not base64 of UTF-8 text") from None
