"""Request bodies: limits on size and time, and digests. The size is checked before reading, if possible."""

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
"""The longest pause within a body, in seconds."""
_GRACE_SECONDS: Final = 60
_WINDOW_SECONDS: Final = 30
"""The seconds of waiting after which a body's speed is judged.

Each such window counts alone, so a quick start excuses nothing.
"""
SMALL_BODY_BYTES: Final = 64 << 10
"""The length limit of a small body, in bytes. A request that waits for its turn reads this much of its body."""
TAR: Final = "application/x-tar"
_BYTES: Final = "application/octet-stream"
_FORMATS: Final = {"tar": TAR, "recipe": RECIPE}
_DIGITS: Final = 19


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """The kind and the size of the body that a route accepts."""

    limit: Callable[[Settings], int]
    framed: frozenset[str] = frozenset()
    """The media types that frame files. Their bodies may be a little larger than the files alone."""
    counts_for_quota: bool = False
    """True if the body counts towards the space's quota, which is then checked before a byte is read."""
    digest_checked: bool = True
    """True if `LimitedBody` compares the body with the digest in the headers, and False if the route does."""

    def longest(self, fields: HeaderMap, query_string: bytes, settings: Settings) -> int:
        """Return the maximum size of a request's body in bytes."""
        limit = self.limit(settings)
        if not self.framed:
            return limit
        # Parsing the query takes time, so this is skipped if the query cannot contain `format`.
        form = next(iter(values_of(query_string, "format")), None) if b"format" in query_string else None
        media_type = upload_type(fields, form)
        return limit + max(1 << 20, limit // 8) if plain_media_type(media_type or "") in self.framed else limit


JSON_BODY: Final = BodyLimits(lambda settings: MAX_JSON_BYTES)
SCHEMA_BODY: Final = BodyLimits(lambda settings: MAX_SCHEMA_BYTES)
UPLOAD_BODY: Final = BodyLimits(
    lambda settings: settings.max_upload_bytes,
    framed=frozenset({"multipart/form-data", TAR}),
    counts_for_quota=True,
    digest_checked=False,  # an ingest computes the digest of a single file in a thread
)
UPLOAD_PART: Final = BodyLimits(lambda settings: settings.max_upload_bytes, counts_for_quota=True, digest_checked=False)


def upload_type(fields: HeaderMap, form: str | None) -> str | None:
    """Return the Content-Type of an upload. For plain bytes, the `format` in the query determines it."""
    given = fields.get(b"content-type")
    wanted = _FORMATS.get(form or "")
    if wanted is None or plain_media_type(given or "") == wanted:
        return given
    if plain_media_type(given or _BYTES) != _BYTES:
        raise HttpProblem(MEDIA, f"With `format`, send the body as {_BYTES} or {wanted}", offers=[_BYTES, wanted])
    return wanted


def check_framing(fields: HeaderMap) -> None:
    """Refuse a request whose body has a content coding or an invalid length."""
    if fields.get(b"transfer-encoding", "chunked").strip().lower() != "chunked":
        raise HttpProblem(BAD_REQUEST, "Only Transfer-Encoding: chunked is supported")
    if fields.get(b"content-encoding", "identity").strip().lower() != "identity":
        # A stored encoded body would be served under the wrong type, and a decoded body could have any size.
        raise HttpProblem(
            MEDIA, "Content-Encoding is not supported: send the body unencoded", headers={"accept-encoding": "identity"}
        )
    text = fields.get(b"content-length", "0")
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise HttpProblem(BAD_REQUEST, "Content-Length must be a number of bytes")


class LimitedBody:
    """A `receive` function with limits on size and time. Only time spent waiting for the client counts."""

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
        """Wrap `receive`. `size` is the length that the client declares; None for a chunked body."""
        self.is_small: Final = size is not None and size <= SMALL_BODY_BYTES
        self._ahead: deque[Message | HttpProblem] = deque()
        """Messages that arrived while the request waited for its turn."""
        self._begun: float | None = None
        """The time at which the current wait for the client began; None outside of a wait."""
        self._end: asyncio.Timeout | None = None
        self._idle = 0.0
        """The total number of seconds spent waiting for the client."""
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
        """Return the next message.

        Raise `HttpProblem` if the message is late, the body is too long, or the digest is wrong.
        """
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
        """Refuse the rest of the body, unless it has arrived, in favour of a client that waits for its turn."""
        self._preempted = True
        if self._end is not None:
            with suppress(RuntimeError):  # the body does not wait now, and is refused when it next waits
                self._end.reschedule(asyncio.get_running_loop().time())

    async def left(self) -> Never:
        """Wait until the client disconnects, and raise `ClientGone`.

        The beginning of the body is read meanwhile, and kept.
        """
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
            return await self._receive()  # the body is complete, so the next message can only be a disconnect
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
        """Return the next message. Raise `HttpProblem` if the message is late, or if the request has to give way."""
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
