"""Plans a response: status, headers and ranges of a representation. The plan is complete before a byte is read.

Ranges are selected as in RFC 9110, section 14, which leaves some choices open. A Range header is ignored if it is
malformed or has more than 4096 characters or 64 ranges. It is also ignored if the representation is empty. Ranges that
overlap or are less than 80 bytes apart are merged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from secrets import token_hex
from typing import Final, NamedTuple, TypeAlias

from protoslice.server.http.conditions import (
    EntityTag,
    Preconditions,
    Verdict,
    evaluate,
    failure,
    range_applies,
)
from protoslice.server.http.digests import format_digest, wants_sha256
from protoslice.server.http.headers import HeaderMap, Headers, attachment, header_lines
from protoslice.server.http.security import secured
from protoslice.server.problems import PRECONDITION, RANGE, HttpProblem
from protoslice.serving.representation import Head, Representation
from protoslice.tensors.omitted import HEADER as OMITTED
from protoslice.tensors.omitted import Omitted

MAX_HEADER: Final = 4096
MAX_RANGES: Final = 64
NEAR: Final = 80
_OWS: Final = " \t"
_PLAIN: Final = re.compile(r"bytes=([0-9]{1,19})-([0-9]{1,19})")


class ByteRange(NamedTuple):
    """The bytes from `start` up to the byte before `end`. The range has at least one byte."""

    start: int
    end: int

    @property
    def length(self) -> int:
        """The number of bytes."""
        return self.end - self.start

    def content_range(self, length: int) -> bytes:
        """Return the value of Content-Range for this part of a representation of `length` bytes."""
        return b"bytes %d-%d/%d" % (self.start, self.end - 1, length)


Selection: TypeAlias = tuple[ByteRange, ...] | None
"""The disjoint ranges of a 206, in the order of the request. The selection is empty for a 416, and None for a 200."""

# A requested range: the first and last position, or a number of bytes from the end.
_Spec: TypeAlias = tuple[int, int | None] | int


def select(header: str | None, length: int) -> Selection:
    """Return the selection of a GET with this Range header from a representation of `length` bytes.

    Pass None as the header for other methods, and if If-Range does not match, because the header is then ignored.
    """
    plain = None if header is None else _PLAIN.fullmatch(header)
    if plain is not None:
        # A fast path for the most common form: one range that lies within the representation.
        first, last = int(plain[1]), int(plain[2])
        if first <= last < length:
            return (ByteRange(first, last + 1),)
    specs = None if header is None or length == 0 else _parse(header)
    if specs is None:
        return None
    found = [located for spec in specs if (located := _locate(spec, length)) is not None]
    return _join(found)


def _parse(header: str) -> list[_Spec] | None:
    """Return the requested ranges. Return None if the header has to be ignored."""
    unit, equals, rest = header.strip(_OWS).partition("=")
    if len(header) > MAX_HEADER or not equals or unit.lower() != "bytes" or rest[:1] in _OWS:
        return None
    # Empty elements of a list are allowed (section 5.6.1).
    parts = [part for text in rest.split(",") if (part := text.strip(_OWS))]
    specs = [spec for part in parts[: MAX_RANGES + 1] if (spec := _parse_one(part)) is not None]
    return specs if 0 < len(parts) <= MAX_RANGES and len(specs) == len(parts) else None


def _parse_one(text: str) -> _Spec | None:
    first, dash, last = text.partition("-")
    if not dash or not all(_is_number(part) for part in (first, last) if part) or not (first or last):
        return None
    if not first:
        return int(last)
    spec = (int(first), int(last) if last else None)
    return None if spec[1] is not None and spec[1] < spec[0] else spec


def _is_number(text: str) -> bool:
    # int() is not used, because it accepts signs, underscores and digits of every script. The header is too short to
    # exceed int()'s length limit.
    return text.isascii() and text.isdigit()


def _locate(spec: _Spec, length: int) -> ByteRange | None:
    """Return the part of a requested range that lies within the representation.

    Return None if no byte lies within it.
    """
    if isinstance(spec, int):
        return ByteRange(max(0, length - spec), length) if spec else None
    first, last = spec
    if first >= length:
        return None
    return ByteRange(first, length if last is None else min(last + 1, length))


def _join(ranges: list[ByteRange]) -> tuple[ByteRange, ...]:
    """Merge ranges into disjoint ranges that cover the same bytes.

    Each result takes the place of the first range that it covers.
    """
    joined: list[tuple[int, ByteRange]] = []
    for place, found in sorted(enumerate(ranges), key=lambda item: item[1]):
        if joined and found.start < joined[-1][1].end + NEAR:
            before, last = joined[-1]
            joined[-1] = (min(before, place), ByteRange(last.start, max(last.end, found.end)))
        else:
            joined.append((place, found))
    return tuple(found for _, found in sorted(joined))


_IMMUTABLE: Final = b"public, max-age=31536000, immutable, no-transform"
_VERSIONED: Final = b"public, max-age=3600, no-transform"
_REVALIDATED: Final = b"no-cache, no-transform"
_CONDITIONAL: Final = frozenset({b"if-match", b"if-none-match", b"if-range"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsePolicy:
    """The policy of a response: caching, negotiation, and the number of ranges."""

    location: str | None = None
    """The permanent URL; None if the request used it."""
    negotiated: bool = False
    """True if Accept selects among representations."""
    versioned: bool = False
    """True if a later release may change the bytes and the entity tag. Caches keep the answer for an hour."""
    # There is no default, so that no answer becomes public by mistake.
    private: bool
    """True if the answer depends on the caller, so that no cache may return it to other callers."""
    max_ranges: int = MAX_RANGES
    """The maximum number of ranges per request; 0 allows none.

    If a request has more ranges, the answer has the whole representation.
    """


class BodyPart(NamedTuple):
    """A range of the representation, and the bytes that precede it in the response."""

    head: bytes
    start: int
    end: int


class CommonHeaders:
    """The headers that all responses of one representation share if they have the same status."""

    __slots__ = ("_lines", "headers")

    def __init__(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self.headers = tuple(headers)
        self._lines: bytes | None = None

    @property
    def lines(self) -> bytes:
        """The headers as lines of the response. They are encoded once."""
        if self._lines is None:
            self._lines = header_lines(self.headers)
        return self._lines


class ResponsePlan(NamedTuple):
    """A planned response. `length` is the length of its whole body."""

    status: int
    common_headers: CommonHeaders
    headers: Headers
    """The headers that follow the common headers."""
    parts: tuple[BodyPart, ...] = ()
    epilogue: bytes = b""
    length: int = 0

    @property
    def all_headers(self) -> Headers:
        """All headers in their order."""
        return [*self.common_headers.headers, *self.headers]


class ResponsePlanner:
    """A planner of responses under one policy.

    The planner takes a representation, or the facts that are known before the representation is made.
    """

    __slots__ = ("_common", "_current", "_policy", "_representation", "_size")

    def __init__(self, representation: Head | Representation, policy: ResponsePolicy) -> None:
        self._representation = representation
        self._size = representation.size
        self._policy = policy
        self._current = EntityTag(representation.etag)
        self._common: CommonHeaders | None = None

    def plan(self, method: str, fields: HeaderMap) -> ResponsePlan:
        """Return the response to a GET or HEAD. Raise `HttpProblem` for 412 and 416."""
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

    def _whole(self, fields: HeaderMap) -> ResponsePlan:
        digest, size = self._representation.sha256, self._size
        own = [(b"content-length", b"%d" % size)]
        if digest is not None and wants_sha256(fields.get(b"want-content-digest")):
            own.append((b"content-digest", format_digest(digest)))
        return ResponsePlan(200, self._typed(fields), own, (BodyPart(b"", 0, size),), b"", size)

    def _typed(self, fields: HeaderMap) -> CommonHeaders:
        """Return the common headers with the representation's media type."""
        if b"want-repr-digest" in fields:
            return self._common_headers(fields, self._representation.media_type)
        if self._common is None:
            self._common = self._common_headers(fields, self._representation.media_type)
        return self._common

    def _common_headers(self, fields: HeaderMap, media_type: str | None) -> CommonHeaders:
        """Return the headers that 200 and 206 share."""
        shown, want = self._representation, fields.get(b"want-repr-digest")
        digest = shown.sha256 if want is None or wants_sha256(want) else None
        known = (shown.etag, shown.filename, shown.message_type, digest, shown.elements, shown.omitted, media_type)
        return _common_headers(*known, self._policy)


def _validators(etag: str, policy: ResponsePolicy) -> Headers:
    """Return the headers that a 304 response also has."""
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
    return HttpProblem(
        RANGE, f"The range lies outside of the content, which has {size} bytes", headers=headers, limit=size
    )
