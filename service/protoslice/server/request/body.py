"""Request bodies: limits of size (checked before reading if possible) and time, and digests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Final, Never

from starlette.types import Message, Receive

from protoslice.recipes import MEDIA_TYPE as RECIPE
from protoslice.server.http.digests import BodyDigest
from protoslice.server.http.disconnect import ClientGone, wait_for_ever
from protoslice.server.http.headers import HeaderMap, plain_media_type
from protoslice.server.http.query import values_of
from protoslice.server.problems import (
    BAD_REQUEST,
    BUSY,
    LIMIT,
    MEDIA,
    RETRY_AFTER_SECONDS,
    TIMEOUT,
    HttpProblem,
)  # fmt: skip
from protoslice.server.settings import Settings

MAX_JSON_BYTES: Final = 1 << 20
MAX_SCHEMA_BYTES: Final = 16 << 20
PAUSE_SECONDS: Final = 60
"""Longest pause within a body."""
_GRACE_SECONDS: Final = 60
_WINDOW_SECONDS: Final = 30
"""Seconds of waiting per window; each is judged separately, so that a quick start does not excuse slowness."""
SMALL_BODY_BYTES: Final = 64 << 10
"""The most of a body that comes at once; so much is read of one that waits for a place."""
TAR: Final = "application/x-tar"
_BYTES: Final = "application/octet-stream"
_FORMATS: Final = {"tar": TAR, "recipe": RECIPE}
_DIGITS: Final = 19


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Kind and size of the body that a route accepts."""

    limit: Callable[[Settings], int]
    framed: frozenset[str] = frozenset()
    """Media types that frame files, and so may have a little more than the files alone."""
    counts_for_quota: bool = False
    """True if the body takes room in the space, whose quota is asked before a byte is read."""
    digest_checked: bool = True
    """True if the guard compares the body with the digest in the headers, False if the route does."""

    def longest(self, fields: HeaderMap, query_string: bytes, settings: Settings) -> int:
        """Return the maximum size of the body of a request in bytes."""
        limit = self.limit(settings)
        if not self.framed:
            return limit
        # Reading the query costs as much as the names in it.
        form = next(iter(values_of(query_string, "format")), None) if b"format" in query_string else None
        media_type = upload_type(fields, form)
        return limit + max(1 << 20, limit // 8) if plain_media_type(media_type or "") in self.framed else limit


JSON_BODY: Final = BodyLimits(lambda settings: MAX_JSON_BYTES)
SCHEMA_BODY: Final = BodyLimits(lambda settings: MAX_SCHEMA_BYTES)
UPLOAD_BODY: Final = BodyLimits(
    lambda settings: settings.max_upload_bytes,
    framed=frozenset({"multipart/form-data", TAR}),
    counts_for_quota=True,
    digest_checked=False,  # an ingest makes the digest of one file off the loop
)
UPLOAD_PART: Final = BodyLimits(lambda settings: settings.max_upload_bytes, counts_for_quota=True, digest_checked=False)


def upload_type(fields: HeaderMap, form: str | None) -> str | None:
    """Return the Content-Type of an upload; for plain bytes, the one for the `format` in the query."""
    given = fields.get(b"content-type")
    wanted = _FORMATS.get(form or "")
    if wanted is None or plain_media_type(given or "") == wanted:
        return given
    if plain_media_type(given or _BYTES) != _BYTES:
        raise HttpProblem(MEDIA, f"With `format`, send the body as {_BYTES} or {wanted}", offers=[_BYTES, wanted])
    return wanted


def check_framing(fields: HeaderMap) -> None:
    """Refuse a request whose body has a content coding, or an unknown length."""
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


class LimitedBody:
    """`receive` within limits; only time spent waiting for the client counts."""

    __slots__ = (
        "_ahead", "_begun", "_complete", "_digest", "_end", "_idle", "_length", "_limit", "_preempted", "_receive",
        "_seen", "_settings", "_waited", "_window", "is_small",
    )  # fmt: skip

    def __init__(
        self,
        receive: Receive,
        limit: int,
        settings: Settings,
        digest: BodyDigest | None = None,
        *,
        size: int | None = None,
    ) -> None:
        """Take `size`, the length that the client declares; None for a chunked body."""
        self.is_small: Final = size is not None and size <= SMALL_BODY_BYTES
        self._ahead: deque[Message | HttpProblem] = deque()
        """What came while the request waited for a place."""
        self._begun: float | None = None
        """When the current wait for the client began."""
        self._end: asyncio.Timeout | None = None
        self._idle = 0.0
        """Seconds of waiting, all together."""
        self._preempted = False
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
        """Return the next message; raise `HttpProblem` if it is late or too long, or the digest is wrong."""
        if not self._ahead:
            return await self._next()
        message = self._ahead.popleft()
        if isinstance(message, HttpProblem):
            raise message
        return message

    def progress(self) -> tuple[int, float]:
        """Return the number of bytes that have arrived, and the seconds spent waiting for them."""
        return self._length, self._idle + (0.0 if self._begun is None else monotonic() - self._begun)

    def preempt(self) -> None:
        """Refuse the rest of the body, unless it has arrived, in favour of a client that waits for a place."""
        self._preempted = True
        if self._end is not None:
            with suppress(RuntimeError):  # it is not waiting, and will be refused when it does
                self._end.reschedule(asyncio.get_running_loop().time())

    async def left(self) -> Never:
        """Raise `ClientGone` when the client disconnects; keep the beginning of the body, which is read for that."""
        message: Message = {}
        while self._length < SMALL_BODY_BYTES or self._complete:
            try:
                message = await self._next()
            except HttpProblem as problem:
                self._ahead.append(problem)
                break
            self._ahead.append(message)
            if message["type"] == "http.disconnect":
                raise ClientGone
        await wait_for_ever()

    async def _next(self) -> Message:
        if self._complete:
            return await self._receive()  # the client owes nothing any more: only that it leaves can come
        message = await self._received()
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

    async def _received(self) -> Message:
        """Return the next message in time, unless the request is preempted."""
        if self._preempted:
            raise _preempted()
        seconds, self._begun = PAUSE_SECONDS, monotonic()
        try:
            async with asyncio.timeout(seconds) as self._end:
                return await self._receive()
        except TimeoutError:
            if self._preempted:
                raise _preempted() from None
            raise _too_slow(f"No byte of the body arrived for {seconds:g} seconds") from None
        finally:
            waited, self._begun = monotonic() - self._begun, None
            self._waited += waited
            self._idle += waited

    def _check_rate(self) -> None:
        if self._waited < self._window:
            return
        slowest = self._settings.body_min_bytes_per_second
        if self._length - self._seen < slowest * self._waited:
            raise _too_slow(f"The upload is too slow: send at least {slowest} bytes per second")
        self._seen, self._waited, self._window = self._length, 0.0, _WINDOW_SECONDS


def too_long(limit: int) -> HttpProblem:
    return HttpProblem(LIMIT, f"The body is too large: at most {limit} bytes", limit=limit)


def _preempted() -> HttpProblem:
    return HttpProblem(
        BUSY,
        "The upload was too slow while other uploads waited for its place: send it again, or resume it",
        headers={"connection": "close", "retry-after": str(RETRY_AFTER_SECONDS)},
    )


def _too_slow(detail: str) -> HttpProblem:
    return HttpProblem(TIMEOUT, detail, headers={"connection": "close"})
