"""Plans of responses: status, headers and ranges of a representation, decided before reading a byte."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from secrets import token_hex
from typing import Final, NamedTuple

from protoslice.server.http.conditions import (
    EntityTag,
    Preconditions,
    Verdict,
    evaluate,
    failure,
    range_applies,
)
from protoslice.server.http.digests import format_digest, wants_sha256
from protoslice.server.http.headers import Fields, Headers, attachment, header_lines
from protoslice.server.http.ranges import MAX_RANGES, ByteRange, select
from protoslice.server.http.security import secured
from protoslice.server.problems import PRECONDITION, RANGE, HttpProblem
from protoslice.serving.representation import Head, Representation
from protoslice.tensors.omitted import HEADER as OMITTED
from protoslice.tensors.omitted import Omitted

_IMMUTABLE: Final = b"public, max-age=31536000, immutable, no-transform"
_VERSIONED: Final = b"public, max-age=3600, no-transform"
_REVALIDATED: Final = b"no-cache, no-transform"
_CONDITIONAL: Final = frozenset({b"if-match", b"if-none-match", b"if-range"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsePolicy:
    """Policy of a response: caching, negotiation, and the number of ranges."""

    location: str | None = None
    """The lasting URL, when the one asked is not."""
    negotiated: bool = False
    """True if Accept chooses among representations."""
    versioned: bool = False
    """True if a later program may give other bytes, under another entity tag: caches keep it for an hour."""
    # Without a default, so that no answer is public by oversight.
    private: bool
    """True if the answer depends on who asks: no cache may give it to anybody else."""
    max_ranges: int = MAX_RANGES
    """The most ranges of one request; a request for more gets the whole. 0: ranges are not served at all."""


class BodyPart(NamedTuple):
    """A range of the representation, and the bytes that precede it on the wire."""

    head: bytes
    start: int
    end: int


class CommonHeaders:
    """Headers that all answers of one status from one representation share."""

    __slots__ = ("_lines", "headers")

    def __init__(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self.headers = tuple(headers)
        self._lines: bytes | None = None

    @property
    def lines(self) -> bytes:
        """The headers as they stand on the wire; encoded once."""
        if self._lines is None:
            self._lines = header_lines(self.headers)
        return self._lines


class ResponsePlan(NamedTuple):
    """A decided response: its `length` is that of all it will send."""

    status: int
    common_headers: CommonHeaders
    headers: Headers
    """The headers that follow the common ones."""
    parts: tuple[BodyPart, ...] = ()
    epilogue: bytes = b""
    length: int = 0

    @property
    def all_headers(self) -> Headers:
        """All headers, in their order."""
        return [*self.common_headers.headers, *self.headers]


class ResponsePlanner:
    """Plans responses with one representation, or with what is known before it is made, under one policy."""

    __slots__ = ("_common", "_current", "_policy", "_representation", "_size")

    def __init__(self, representation: Head | Representation, policy: ResponsePolicy) -> None:
        self._representation = representation
        self._size = representation.size
        self._policy = policy
        self._current = EntityTag(representation.etag)
        self._common: CommonHeaders | None = None

    def plan(self, method: str, fields: Fields) -> ResponsePlan:
        """Return the response to a GET or HEAD; raises `HttpProblem` for 412 and 416."""
        representation, policy, size = self._representation, self._policy, self._size
        wanted = fields.get(b"range") if method == "GET" else None
        if not _CONDITIONAL.isdisjoint(fields):
            asked = Preconditions.of(fields)
            verdict = evaluate(asked, self._current, reads=True)
            if verdict is Verdict.FAILED:
                raise HttpProblem(PRECONDITION, failure(asked), etag=str(self._current))
            if verdict is Verdict.NOT_MODIFIED:
                validators = secured(_validators(representation.etag, policy), private=policy.private)
                return ResponsePlan(304, CommonHeaders(validators), [])
            if not range_applies(fields.get(b"if-range"), self._current):
                wanted = None
        if wanted is None or wanted.count(",") >= policy.max_ranges:
            return self._whole(fields)
        selection = select(wanted, size)
        if selection is None:
            return self._whole(fields)
        if not selection:
            raise _unsatisfiable(size)
        if len(selection) > 1:
            return _multipart(self._common_headers(fields, None), representation.media_type, size, selection)
        (only,) = selection
        start, end = only
        own = [(b"content-range", only.content_range(size)), (b"content-length", b"%d" % (end - start))]
        return ResponsePlan(206, self._typed(fields), own, (BodyPart(b"", start, end),), b"", end - start)

    def _whole(self, fields: Fields) -> ResponsePlan:
        digest, size = self._representation.sha256, self._size
        own = [(b"content-length", b"%d" % size)]
        if digest is not None and wants_sha256(fields.get(b"want-content-digest")):
            own.append((b"content-digest", format_digest(digest)))
        return ResponsePlan(200, self._typed(fields), own, (BodyPart(b"", 0, size),), b"", size)

    def _typed(self, fields: Fields) -> CommonHeaders:
        """The common headers with the representation's media type."""
        if b"want-repr-digest" in fields:
            return self._common_headers(fields, self._representation.media_type)
        if self._common is None:
            self._common = self._common_headers(fields, self._representation.media_type)
        return self._common

    def _common_headers(self, fields: Fields, media_type: str | None) -> CommonHeaders:
        """The headers that 200 and 206 both carry."""
        shown, want = self._representation, fields.get(b"want-repr-digest")
        digest = shown.sha256 if want is None or wants_sha256(want) else None
        known = (shown.etag, shown.filename, shown.message_type, digest, shown.elements, shown.omitted, media_type)
        return _common_headers(*known, self._policy)


def _validators(etag: str, policy: ResponsePolicy) -> Headers:
    """Headers of 304 too."""
    lasting = _VERSIONED if policy.versioned else _IMMUTABLE
    caching = lasting if policy.location is None else _REVALIDATED
    headers = [
        (b"etag", str(EntityTag(etag)).encode("ascii")),
        (b"cache-control", caching),
        (b"vary", b"accept, accept-encoding" if policy.negotiated else b"accept-encoding"),
    ]
    if policy.location is not None:
        headers.append((b"content-location", policy.location.encode("ascii")))
    return headers


@lru_cache(maxsize=1024)
def _common_headers(
    etag: str,
    filename: str,
    message_type: str | None,
    digest: bytes | None,
    elements: tuple[str, tuple[int, ...]] | None,
    omitted: Omitted | None,
    media_type: str | None,
    policy: ResponsePolicy,
) -> CommonHeaders:
    ranges = (b"accept-ranges", b"bytes" if policy.max_ranges else b"none")
    headers = [*_validators(etag, policy), ranges, (b"content-disposition", attachment(filename))]
    if message_type is not None:
        headers.append((b"x-protobuf-message", message_type.encode("ascii")))
    if digest is not None:
        headers.append((b"repr-digest", format_digest(digest)))
    if elements is not None:
        dtype, shape = elements
        headers.append((b"x-tensor-dtype", dtype.encode()))
        headers.append((b"x-tensor-shape", ",".join(map(str, shape)).encode()))
    if omitted is not None:
        headers.append((OMITTED.encode(), omitted.header().encode("ascii")))
    if media_type is not None:
        headers.append((b"content-type", media_type.encode("latin-1")))
    return CommonHeaders(secured(headers, private=policy.private))


def _multipart(common: CommonHeaders, media_type: str, size: int, ranges: tuple[ByteRange, ...]) -> ResponsePlan:
    boundary = token_hex(16)
    parts = tuple(
        BodyPart(_part_head(boundary, media_type, each.content_range(size), n), each.start, each.end)
        for n, each in enumerate(ranges)
    )
    epilogue = f"\r\n--{boundary}--\r\n".encode()
    length = sum(len(part.head) + part.end - part.start for part in parts) + len(epilogue)
    own = [
        (b"content-type", f"multipart/byteranges; boundary={boundary}".encode()),
        (b"content-length", b"%d" % length),
    ]
    return ResponsePlan(206, common, own, parts, epilogue, length)


def _part_head(boundary: str, media_type: str, content_range: bytes, n: int) -> bytes:
    start = "\r\n" if n else ""
    head = f"{start}--{boundary}\r\nContent-Type: {media_type}\r\nContent-Range: "
    return b"%b%b\r\n\r\n" % (head.encode(), content_range)


def _unsatisfiable(size: int) -> HttpProblem:
    headers = {"content-range": f"bytes */{size}", "accept-ranges": "bytes"}
    return HttpProblem(RANGE, f"The representation has only {size} bytes", headers=headers, limit=size)
