"""Guard of request bodies: limits of size (checked before reading if possible) and time, digests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, TypeVar

from starlette.types import Message, Receive

from protoslice.server.api.problems import BAD_REQUEST, LIMIT, MEDIA, TIMEOUT, HttpProblem
from protoslice.server.http.digests import BodyDigest
from protoslice.server.http.headers import Fields
from protoslice.server.settings import Settings

_GRACE_SECONDS: Final = 60
_WINDOW_SECONDS: Final = 30
"""Seconds of waiting per window; each is judged by itself, so that a quick start pays for no slowness."""
_DIGITS: Final = 19
_TERMS: Final = "__protoslice_body__"

Handler = TypeVar("Handler", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class BodyTerms:
    """The body that a route takes."""

    limit: Callable[[Settings], int]
    framed: frozenset[str] = frozenset()
    """Media types that frame files, and so may have a little more than the files alone."""
    kept: bool = False
    """True if the body takes room in the space, whose quota is asked before a byte is read."""
    digest_checked: bool = True
    """True if the guard compares the body with the digest in the headers, False if the route does."""

    def longest(self, media_type: str, settings: Settings) -> int:
        """The most bytes of a body of `media_type`."""
        limit = self.limit(settings)
        return limit + max(1 << 20, limit // 8) if media_type in self.framed else limit


JSON_BODY: Final = BodyTerms(lambda settings: settings.max_json_bytes)
SCHEMA_BODY: Final = BodyTerms(lambda settings: settings.max_schema_bytes)
UPLOAD_BODY: Final = BodyTerms(
    lambda settings: settings.max_upload_bytes,
    framed=frozenset({"multipart/form-data", "application/x-tar"}),
    kept=True,
    digest_checked=False,  # an ingest makes the digest of one file off the loop
)
PART_BODY: Final = BodyTerms(lambda settings: settings.max_upload_bytes, kept=True, digest_checked=False)


def takes_body(terms: BodyTerms) -> Callable[[Handler], Handler]:
    """Let the route of a handler take a body by `terms`; a route that says nothing takes `JSON_BODY`."""

    def stated(handler: Handler) -> Handler:
        setattr(handler, _TERMS, terms)
        return handler

    return stated


def check_framing(fields: Fields) -> None:
    """Refuse a request whose body is coded, or has no length that can be known."""
    if fields.get(b"transfer-encoding", "chunked").strip().lower() != "chunked":
        raise HttpProblem(BAD_REQUEST, "Only Transfer-Encoding: chunked is supported")
    if fields.get(b"content-encoding", "identity").strip().lower() != "identity":
        # Kept as it came it would be given out as what it is not, and unpacking has no bound that a client can rely on.
        raise HttpProblem(
            MEDIA, "Content-Encoding is not supported: send the body unencoded", headers={"accept-encoding": "identity"}
        )
    text = fields.get(b"content-length", "0")
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise HttpProblem(BAD_REQUEST, "Content-Length must be a number of bytes")


def terms_of(handler: Callable[..., Any]) -> BodyTerms:
    """The terms that a handler states."""
    terms: BodyTerms = getattr(handler, _TERMS, JSON_BODY)
    return terms


class GuardedBody:
    """`receive` within limits; only time spent waiting for the client counts."""

    __slots__ = ("_complete", "_digest", "_length", "_limit", "_receive", "_seen", "_settings", "_waited", "_window")

    def __init__(self, receive: Receive, limit: int, settings: Settings, digest: BodyDigest | None = None) -> None:
        self._receive = receive
        self._limit = limit
        self._settings = settings
        self._digest = digest
        self._length = 0
        self._complete = False
        self._waited = 0.0
        self._seen = 0
        self._window: float = _GRACE_SECONDS

    async def __call__(self) -> Message:
        """The next message; `HttpProblem` when it is late, too long, or completes a body of another digest."""
        if self._complete:
            return await self._receive()  # the client owes nothing any more: only that it leaves can come
        seconds, begun = self._settings.body_timeout_seconds, monotonic()
        try:
            async with asyncio.timeout(seconds):
                message = await self._receive()
        except TimeoutError:
            raise _too_slow(f"No byte of the body arrived for {seconds:g} seconds") from None
        self._waited += monotonic() - begun
        self._length += len(message.get("body", b""))
        if self._length > self._limit:
            raise too_long(self._limit)
        self._complete = not message.get("more_body")
        if not self._complete:
            self._check_rate()
        if self._digest is not None and message["type"] == "http.request":
            self._digest.update(message.get("body", b""))
            if not message.get("more_body"):
                self._digest.check()
        return message

    def _check_rate(self) -> None:
        if self._waited < self._window:
            return
        slowest = self._settings.body_min_bytes_per_second
        if self._length - self._seen < slowest * self._waited:
            raise _too_slow(f"The upload is too slow: send at least {slowest} bytes per second")
        self._seen, self._waited, self._window = self._length, 0.0, _WINDOW_SECONDS


def too_long(limit: int) -> HttpProblem:
    return HttpProblem(LIMIT, f"The body is too large: at most {limit} bytes", limit=limit)


def _too_slow(detail: str) -> HttpProblem:
    return HttpProblem(TIMEOUT, detail, headers={"connection": "close"})
