"""Safe headers: the defaults of every response, added in one place after its route has set its own.

`RequestMiddleware` adds them to all responses of the application, `SharedHeaders` to those of the fast path, and
`HttpProtocol` to its refusals. A route that serves stored bytes cannot turn them off: browsers neither guess a
media type nor run what they get. Only pages of the service's own set another Content-Security-Policy, and are shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from protoslice.server.http.headers import Headers

POLICY: Final = b"default-src 'none'; frame-ancestors 'none'; sandbox"
"""Content-Security-Policy of every response except the pages: no scripts, no origin, no frames."""
_CACHE: Final = b"cache-control"
_DISPOSITION: Final = b"content-disposition"
_POLICY: Final = b"content-security-policy"
_NOSNIFF: Final = (b"x-content-type-options", b"nosniff")
_SANDBOX: Final = (_POLICY, POLICY)
_ATTACHMENT: Final = (_DISPOSITION, b"attachment")
_REVALIDATED: Final = b"no-cache"
_INERT: Final = frozenset(
    {b"application/json", b"application/octet-stream", b"application/x-ndjson", b"application/jsonl", b"text/plain"}
)
"""Media types that browsers show as text or save, besides `application/...+json`."""


def secured(headers: Iterable[tuple[bytes, bytes]], *, private: bool) -> Headers:
    """Return `headers`, in lower case, with the safe ones that they lack.

    `private` marks a response that depends on the caller: shared caches must not keep it.
    """
    given: Headers = list(headers)
    names = {name for name, _ in given}
    if _CACHE not in names:
        given.append((_CACHE, b"private, no-cache" if private else _REVALIDATED))
    elif private:
        given = [(name, _private(value) if name == _CACHE else value) for name, value in given]
    if _NOSNIFF[0] not in names:
        given.append(_NOSNIFF)
    if _POLICY not in names:
        given.append(_SANDBOX)
    elif all(value != POLICY for name, value in given if name == _POLICY):
        return given
    if any(name == b"content-type" and not _is_inert(value) for name, value in given):
        if _DISPOSITION not in names:
            given.append(_ATTACHMENT)
        elif any(name == _DISPOSITION and not _is_attachment(value) for name, value in given):
            given = [*((name, value) for name, value in given if name != _DISPOSITION), _ATTACHMENT]
    return given


@lru_cache(maxsize=256)
def _private(value: bytes) -> bytes:
    """Return a Cache-Control that keeps the response out of shared caches."""
    directives = [each.strip() for each in value.split(b",")]
    names = {each.partition(b"=")[0].lower() for each in directives}
    if not names.isdisjoint({b"private", b"no-store"}):
        return value
    kept = [each for each in directives if each.partition(b"=")[0].lower() not in {b"public", b"s-maxage"}]
    return b", ".join([b"private", *kept])


@lru_cache(maxsize=256)
def _is_inert(content_type: bytes) -> bool:
    """Return True for a media type that no browser renders as a document, runs or loads into a plugin."""
    media = content_type.partition(b";")[0].strip().lower()
    return media in _INERT or (media.startswith(b"application/") and media.endswith(b"+json"))


def _is_attachment(value: bytes) -> bool:
    return value.partition(b";")[0].strip().lower() == b"attachment"
