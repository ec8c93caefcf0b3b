"""XML documents of S3, and the headers of every answer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias
from xml.sax.saxutils import escape

from starlette.responses import Response
from starlette.types import Scope

from protoslice.server.context import context_of
from protoslice.server.http.headers import Headers
from protoslice.server.settings import Settings

_NAMESPACE: Final = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
_UNSAFE: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""The characters that XML cannot hold."""

Content: TypeAlias = "str | Mapping[str, Content | Sequence[Content] | None]"
"""The content of an element: text, or children by name. A sequence makes several children, and None makes none."""


def document(name: str, members: Content, more: str = "") -> str:
    """Return a document with its root element."""
    return element(f"{name} {_NAMESPACE}", members, more)


def element(tag: str, content: Content, more: str = "") -> str:
    """Return an element.

    `tag` is the element's name, which attributes may follow. `more` is XML to append to the content.
    """
    if isinstance(content, str):
        inner = escape(content)
    else:
        parts = list[str]()
        for name, member in content.items():
            several = [] if member is None else [member] if isinstance(member, (str, Mapping)) else member
            parts += [element(name, each) for each in several]
        inner = "".join(parts)
    return f"<{tag}>{inner}{more}</{tag.partition(' ')[0]}>"


def xml_response(scope: Scope, root: str, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a document as a response. Characters that XML does not allow are replaced."""
    body = root if root.isprintable() else _UNSAFE.sub("\N{REPLACEMENT CHARACTER}", root)
    every = {name.decode(): value.decode() for name, value in headers_of(scope)}
    declared = '<?xml version="1.0" encoding="UTF-8"?>\n' + body
    return Response(declared.encode(), status, {**every, **(headers or {})}, media_type="application/xml")


def headers_of(scope: Scope) -> Headers:
    """Return the headers of every answer."""
    return amz_headers(context_of(scope).id, scope["app"].services.settings)


def amz_headers(id: bytes, settings: Settings) -> Headers:
    """Return the headers of every answer to the request with this id."""
    return [(b"x-amz-request-id", id), (b"x-amz-bucket-region", (settings.s3_region or "us-east-1").encode())]
