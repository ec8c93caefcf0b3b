"""Request bodies within limits: of size, checked before a byte is read, and of time; and as their digest says."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Final

from starlette.types import Message, Receive, Scope

from protoslice.server.api.problems import BAD_REQUEST, LIMIT, MEDIA, TIMEOUT, HttpProblem
from protoslice.server.http.headers import read_fields
from protoslice.server.intake.digest_checks import BodyDigest
from protoslice.server.settings import Settings

__all__ = ["GuardedBody", "body_digest", "body_limit", "check_length"]

_GRACE_SECONDS: Final = 60
_WINDOW_SECONDS: Final = 30
"""The rate is judged over so much time waited for the client, each time anew: a quick start pays for nothing later."""
_UPLOADS: Final = "/v1/stores"
_RESUMABLE: Final = "/v1/uploads"
_SCHEMAS: Final = "/v1/schemas/"
_DIGITS: Final = 19


def body_limit(path: str, settings: Settings) -> int:
    """The longest body that is taken at `path`. What frames the files of an upload gets a little room."""
    if path == _UPLOADS:
        return settings.max_upload_bytes + max(1 << 20, settings.max_upload_bytes // 8)
    if path.startswith(_RESUMABLE):
        return settings.max_upload_bytes
    return settings.max_schema_bytes if path.startswith(_SCHEMAS) else settings.max_json_bytes


def check_length(scope: Scope, settings: Settings) -> None:
    """Refuse a body that says it is too long, or coded, before any of it is asked for."""
    fields = read_fields(scope)
    if fields.get(b"transfer-encoding", "chunked").strip().lower() != "chunked":
        raise HttpProblem(BAD_REQUEST, "Transfer-Encoding: chunked is the only coding taken")
    if fields.get(b"content-encoding", "identity").strip().lower() != "identity":
        # Kept as it came it would be given out as what it is not, and unpacking has no bound that a client can rely on.
        raise HttpProblem(MEDIA, "bodies are taken without Content-Encoding", headers={"accept-encoding": "identity"})
    text = fields.get(b"content-length")
    if text is None:
        return
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise HttpProblem(BAD_REQUEST, "Content-Length is a number of bytes")
    path = scope["path"]
    framed = fields.get(b"content-type", "").partition(";")[0].strip().lower()
    exact = path == _UPLOADS and framed not in {"multipart/form-data", "application/x-tar"}
    limit = settings.max_upload_bytes if exact else body_limit(path, settings)
    if int(text) > limit:
        raise _too_long(limit)


def body_digest(scope: Scope) -> BodyDigest | None:
    """What the body is compared with wherever it is read; uploads see to theirs themselves, off the loop."""
    path: str = scope["path"]
    return None if path == _UPLOADS or path.startswith(_RESUMABLE) else BodyDigest(read_fields(scope))


class GuardedBody:
    """`receive` with the limits kept. The time that is waited for the client counts, and not what is done meanwhile."""

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
        """The next message; `HttpProblem` when it comes too late, brings too much, or ends what fails its digest."""
        if self._complete:
            return await self._receive()  # the client owes nothing any more: only that it leaves can come
        seconds, begun = self._settings.body_timeout_seconds, monotonic()
        try:
            async with asyncio.timeout(seconds):
                message = await self._receive()
        except TimeoutError:
            raise _too_slow(f"no byte of the body came for {seconds:g} seconds") from None
        self._waited += monotonic() - begun
        self._length += len(message.get("body", b""))
        if self._length > self._limit:
            raise _too_long(self._limit)
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
            raise _too_slow(f"at least {slowest} bytes in a second are due")
        self._seen, self._waited, self._window = self._length, 0.0, _WINDOW_SECONDS


def _too_long(limit: int) -> HttpProblem:
    return HttpProblem(LIMIT, f"the body may have {limit} bytes", limit=limit)


def _too_slow(detail: str) -> HttpProblem:
    return HttpProblem(TIMEOUT, detail, headers={"connection": "close"})
