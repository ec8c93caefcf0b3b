"""CORS (Fetch standard): permission for pages of other origins, granted by the operator.

Cookies and the like are never asked for, so wildcards say all there is to say of methods and headers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from protoslice.server.context import context_of
from protoslice.server.http.headers import with_headers

ANY: Final = "*"
_ASKED_METHOD: Final = b"access-control-request-method"
_EXPOSE: Final = (b"access-control-expose-headers", b"*")
_GRANTS: Final = [
    # The wildcard does not cover Authorization, which a proxy in front may want.
    (b"access-control-allow-headers", b"*, authorization"),
    (b"access-control-allow-methods", b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),
    (b"access-control-max-age", b"7200"),
]


def standing_headers(origins: Sequence[str]) -> list[tuple[str, str]]:
    """Headers of every answer, the same for all clients, since caches keep one answer for all.

    An answer kept from a request without an Origin must serve one that has it, or must say that it does not.
    """
    if ANY in origins:
        return [("access-control-allow-origin", "*"), ("access-control-expose-headers", "*")]
    return [("vary", "origin")] if origins else []


class AllowOrigins:
    """ASGI layer that lets pages of the named origins see answers; for `*` see `standing_headers`."""

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        self._app = app
        self._origins = frozenset(origin.encode("ascii") for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Add the headers, when the origin is one of ours."""
        origin = _field(scope, b"origin") if scope["type"] == "http" else None
        if origin is None or origin not in self._origins:
            await self._app(scope, receive, send)
            return
        granted = [(b"access-control-allow-origin", origin), _EXPOSE]
        await self._app(scope, receive, with_headers(send, granted))


class Preflight:
    """An ASGI layer that answers a browser's question whether it may ask; everything else goes on."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the question, if it is one."""
        if scope["type"] != "http" or scope["method"] != "OPTIONS" or _field(scope, _ASKED_METHOD) is None:
            await self._app(scope, receive, send)
            return
        context_of(scope).route = "preflight"
        await send({"type": "http.response.start", "status": 204, "headers": _GRANTS})
        await send({"type": "http.response.body", "body": b""})


def _field(scope: Scope, wanted: bytes) -> bytes | None:
    for name, value in scope["headers"]:
        if name == wanted:
            found: bytes = value
            return found
    return None
