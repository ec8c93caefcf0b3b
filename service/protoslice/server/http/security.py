"""Security headers of every response, CORS, and protection against hostile web pages.

`RequestMiddleware` adds these headers to all responses of the application, after the route has set its own headers.
`CommonHeaders` adds the headers on the fast path, and `HttpProtocol` adds them to its refusals. A route that serves
stored bytes cannot turn the headers off. The headers stop browsers from guessing a media type and from executing the
content. Only pages of the service have another Content-Security-Policy, with which browsers display them.

A page of another site may send a form to any address that its reader's machine can reach, or embed the address as an
image. Browsers send no preflight for these. The service therefore refuses such requests from other sites, except plain
reads. The method and the route's rule decide whether a request is a plain read. The browser's headers name the site.

A page may also make its own host name resolve to this machine after the page was loaded (DNS rebinding). The service
then looks like the page's site. A service that only this machine can reach therefore answers only for addresses,
`localhost` and configured names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from starlette.types import Scope, Send

from protoslice.server.context import context_of
from protoslice.server.http.headers import HeaderMap, Headers
from protoslice.server.problems import BAD_REQUEST, CROSS_SITE, MISDIRECTED, HttpProblem
from protoslice.server.settings import Settings, is_loopback

POLICY: Final = b"default-src 'none'; frame-ancestors 'none'; sandbox"
"""The Content-Security-Policy of every response except the pages.

It forbids scripts and frames, and gives the content no origin.
"""
_CACHE: Final = b"cache-control"
_DISPOSITION: Final = b"content-disposition"
_POLICY: Final = b"content-security-policy"
_NOSNIFF: Final = (b"x-content-type-options", b"nosniff")
_SANDBOX: Final = (_POLICY, POLICY)
_ATTACHMENT: Final = (_DISPOSITION, b"attachment")
_REVALIDATED: Final = b"no-cache"
_REFERRER: Final = b"referrer-policy"
_NO_REFERRER: Final = (_REFERRER, b"no-referrer")
"""The header that keeps URLs secret. Links in the content would otherwise reveal a signed URL to other sites."""
_SAME_ORIGIN: Final = (_REFERRER, b"same-origin")
"""The header for pages of the service. Without a referrer, browsers send `Origin: null` with forms over HTTP."""
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN: Final = frozenset({"same-origin", "none"})
_LOCAL: Final = "localhost"
_HOST: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+)(?::[0-9]*)?")
"""The pattern of Host (RFC 3986, section 3.2.2), without future kinds of addresses. An empty Host is invalid."""
_CLOSE: Final = {"connection": "close"}
_ANY: Final = "*"
_PREFLIGHT: Final = b"access-control-request-method"
_EXPOSE: Final = (b"access-control-expose-headers", b"*")
_GRANTS: Final = [
    # The wildcard does not cover Authorization, which a proxy in front of the service may require.
    (b"access-control-allow-headers", b"*, authorization"),
    (b"access-control-allow-methods", b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),
    (b"access-control-max-age", b"7200"),
]
_INERT: Final = frozenset(
    {b"application/json", b"application/octet-stream", b"application/x-ndjson", b"application/jsonl", b"text/plain"}
)
"""Media types that browsers show as text or save. Browsers treat types of the form `application/...+json` likewise."""


def secured(headers: Iterable[tuple[bytes, bytes]], *, private: bool) -> Headers:
    """Return `headers`, whose names are in lower case, with the security headers that they lack.

    `private` marks a response that depends on the caller. Shared caches must not store such a response.
    """
    given: Headers = list(headers)
    names = {name for name, _ in given}
    if _CACHE not in names:
        given.append((_CACHE, b"private, no-cache" if private else _REVALIDATED))
    elif private:
        given = [(name, _private(value) if name == _CACHE else value) for name, value in given]
    if _NOSNIFF[0] not in names:
        given.append(_NOSNIFF)
    is_page = _POLICY in names and all(value != POLICY for name, value in given if name == _POLICY)
    if _POLICY not in names:
        given.append(_SANDBOX)
    if _REFERRER not in names:
        given.append(_SAME_ORIGIN if is_page else _NO_REFERRER)
    return given if is_page else _inert(given)


def _inert(headers: Headers) -> Headers:
    """Return `headers` with which a browser saves a document instead of displaying it."""
    if all(name != b"content-type" or _is_inert(value) for name, value in headers):
        return headers
    dispositions = [value for name, value in headers if name == _DISPOSITION]
    if dispositions and all(map(_is_attachment, dispositions)):
        return headers
    return [*((name, value) for name, value in headers if name != _DISPOSITION), _ATTACHMENT]


@lru_cache(maxsize=256)
def _private(value: bytes) -> bytes:
    """Return a Cache-Control value that keeps the response out of shared caches."""
    directives = [each.strip() for each in value.split(b",")]
    names = {each.partition(b"=")[0].lower() for each in directives}
    if not names.isdisjoint({b"private", b"no-store"}):
        return value
    kept = [each for each in directives if each.partition(b"=")[0].lower() not in {b"public", b"s-maxage"}]
    return b", ".join([b"private", *kept])


@lru_cache(maxsize=256)
def _is_inert(content_type: bytes) -> bool:
    """Return True for a media type that no browser renders as a document, runs, or loads into a plugin."""
    media = content_type.partition(b";")[0].strip().lower()
    return media in _INERT or (media.startswith(b"application/") and media.endswith(b"+json"))


def _is_attachment(value: bytes) -> bool:
    return value.partition(b";")[0].strip().lower() == b"attachment"


def standing_headers(origins: Sequence[str]) -> list[tuple[str, str]]:
    """Return the CORS headers of every answer.

    All clients get the same headers, because caches store one answer for all. An answer that was cached for a request
    without Origin must be valid for a request with Origin, or say that it is not. CORS requests never use cookies, so
    wildcards are enough for methods and headers.
    """
    if _ANY in origins:
        return [("access-control-allow-origin", "*"), ("access-control-expose-headers", "*")]
    return [("vary", "origin")] if origins else []


async def answer_preflight(scope: Scope, send: Send) -> None:
    """Answer a preflight, with which a browser checks whether a page may send a request."""
    context_of(scope).route = "preflight"
    await send({"type": "http.response.start", "status": 204, "headers": _GRANTS})
    await send({"type": "http.response.body", "body": b""})


class OriginPolicy:
    """The host names of the service, and the sites whose pages may change something."""

    def __init__(self, settings: Settings) -> None:
        self._origins = frozenset(settings.cors_origins)
        names = settings.allowed_hosts or (() if is_loopback(settings.host) else (_ANY,))
        if settings.public_url:  # a proxy may pass on the host name that clients use
            names = (*names, urlsplit(settings.public_url).hostname or "")
        self._names = None if _ANY in names else frozenset(name.lower() for name in names)
        self.is_ours = lru_cache(maxsize=256)(self._is_ours)

    def grants(self, headers: Headers) -> Headers:
        """Return the headers that let a page of an allowed origin read an answer.

        If all origins are allowed, `standing_headers` returns these headers instead.
        """
        if not self._origins:
            return []
        origin = next((value for name, value in headers if name == b"origin"), b"")
        allowed = origin.decode("latin-1") in self._origins
        return [(b"access-control-allow-origin", origin), _EXPOSE] if allowed else []

    def is_preflight(self, method: str, fields: HeaderMap) -> bool:
        """Return True for a CORS preflight, if any other origin is allowed."""
        return bool(self._origins) and method == "OPTIONS" and _PREFLIGHT in fields

    def check(self, method: str, fields: HeaderMap, http_version: str) -> None:
        """Raise `HttpProblem` if Host is missing or foreign, or if a page of another site requests a change."""
        # The values of several Host lines are joined by ", ". The result is invalid, because no valid host has a space.
        host = fields.get(b"host")
        if host is None:
            if http_version != "1.0":
                raise HttpProblem(BAD_REQUEST, "The Host header is missing (RFC 9112, section 3.2)", headers=_CLOSE)
        elif not self.is_ours(host):
            raise _fault_of(host)
        if method not in _SAFE:
            self.check_origin(fields)

    def check_origin(self, fields: HeaderMap) -> None:
        """Raise `HttpProblem` for a request by a page that is neither the service's own nor of an allowed origin."""
        site, origin = fields.get(b"sec-fetch-site"), fields.get(b"origin")
        if (
            _ANY in self._origins
            or origin in self._origins
            or site in _OWN
            or (site is None and (origin is None or _is_same(origin, fields)))
        ):
            return
        raise HttpProblem(CROSS_SITE, CROSS_SITE.advice)

    def _is_ours(self, host: str) -> bool:
        """Return True if Host is one of the service's names or an address."""
        # DNS rebinding needs a host name, so addresses are safe.
        if not _HOST.fullmatch(host):
            return False
        if self._names is None:
            return True
        name = _name_in(host)
        return name in self._names or name == _LOCAL or name.endswith(f".{_LOCAL}") or _is_address(name)


def is_own_page(method: str, fields: HeaderMap) -> bool:
    """Return True for a request by a person or by a page of exactly this host.

    For a method that may change something, the request's headers have to prove this.
    """
    site, origin = fields.get(b"sec-fetch-site"), fields.get(b"origin")
    if site is not None:
        return site in _OWN
    return method in _SAFE if origin is None else _is_same(origin, fields)


def _fault_of(host: str) -> HttpProblem:
    """Return the problem for a Host that is not one of the service's names."""
    if _HOST.fullmatch(host):
        return HttpProblem(MISDIRECTED, MISDIRECTED.advice)
    return HttpProblem(
        BAD_REQUEST, "Invalid Host header: use one name or address, optionally with a port", headers=_CLOSE
    )


def _is_same(origin: str, fields: HeaderMap) -> bool:
    """Return True if the page belongs to the host in the request, or to the host in X-Forwarded-Host.

    A page cannot set X-Forwarded-Host without permission. Schemes are not compared, because a proxy may terminate TLS.
    """
    asked = {fields.get(b"host"), fields.get(b"x-forwarded-host", "").partition(",")[0].strip()}
    return origin.partition("://")[2] in asked - {None, ""}


def _name_in(host: str) -> str:
    """Return the name or address in `host`, without port and brackets."""
    name = host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host
    return name.removeprefix("[").removesuffix("]").removesuffix(".").lower()


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
