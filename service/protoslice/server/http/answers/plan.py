"""Answers to requests for a representation: status, headers and ranges, decided before reading a byte."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from secrets import token_hex
from typing import Final, NamedTuple, Protocol

from protoslice.server.http.answers.disposition import attachment
from protoslice.server.http.conditions import (
    EntityTag,
    Preconditions,
    Verdict,
    evaluate,
    failure,
    range_applies,
)
from protoslice.server.http.digests import format_digest, wants_sha256
from protoslice.server.http.headers import Fields, Headers, header_lines
from protoslice.server.http.ranges import MAX_RANGES, ByteRange, select
from protoslice.server.http.security import secured
from protoslice.server.problems import PRECONDITION, RANGE, HttpProblem
from protoslice.tensors.omitted import HEADER as OMITTED
from protoslice.tensors.omitted import Omitted

_IMMUTABLE: Final = b"public, max-age=31536000, immutable, no-transform"
_VERSIONED: Final = b"public, max-age=3600, no-transform"
_REVALIDATED: Final = b"no-cache, no-transform"
_CONDITIONAL: Final = frozenset({b"if-match", b"if-none-match", b"if-range"})


class Facts(Protocol):
    """Facts about a representation, known without reading it."""

    @property
    def size(self) -> int: ...
    @property
    def etag(self) -> str: ...
    @property
    def sha256(self) -> bytes | None: ...
    @property
    def message_type(self) -> str | None: ...
    @property
    def filename(self) -> str: ...
    @property
    def media_type(self) -> str: ...
    @property
    def elements(self) -> tuple[str, tuple[int, ...]] | None: ...
    @property
    def omitted(self) -> Omitted | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Terms of an answer: caching, negotiation, and the number of ranges."""

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


class Part(NamedTuple):
    """A range of the representation, and the bytes that precede it on the wire."""

    head: bytes
    start: int
    end: int


class SharedHeaders:
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


class Answer(NamedTuple):
    """A decided answer: its `length` is that of all it will send."""

    status: int
    shared: SharedHeaders
    own: Headers
    """The headers that follow the shared ones."""
    parts: tuple[Part, ...] = ()
    tail: bytes = b""
    length: int = 0

    @property
    def headers(self) -> Headers:
        """All headers, in their order."""
        return [*self.shared.headers, *self.own]


class AnswerPlanner:
    """Answers requests for one representation, under the same terms."""

    __slots__ = ("_current", "_described", "_facts", "_size", "_terms")

    def __init__(self, facts: Facts, terms: Terms) -> None:
        self._facts = facts
        self._size = facts.size
        self._terms = terms
        self._current = EntityTag(facts.etag)
        self._described: SharedHeaders | None = None

    def answer(self, method: str, fields: Fields) -> Answer:
        """The answer to a GET or HEAD; raises `HttpProblem` for 412 and 416."""
        facts, terms, size = self._facts, self._terms, self._size
        wanted = fields.get(b"range") if method == "GET" else None
        if not _CONDITIONAL.isdisjoint(fields):
            asked = Preconditions.of(fields)
            verdict = evaluate(asked, self._current, reads=True)
            if verdict is Verdict.FAILED:
                raise HttpProblem(PRECONDITION, failure(asked), etag=str(self._current))
            if verdict is Verdict.NOT_MODIFIED:
                return Answer(304, SharedHeaders(secured(_validators(facts.etag, terms), private=terms.private)), [])
            if not range_applies(fields.get(b"if-range"), self._current):
                wanted = None
        if wanted is None or wanted.count(",") >= terms.max_ranges:
            return self._whole(fields)
        selection = select(wanted, size)
        if selection is None:
            return self._whole(fields)
        if not selection:
            raise _unsatisfiable(size)
        if len(selection) > 1:
            return _multipart(self._shared(fields, None), facts, selection)
        (only,) = selection
        start, end = only
        own = [(b"content-range", only.content_range(size)), (b"content-length", b"%d" % (end - start))]
        return Answer(206, self._typed(fields), own, (Part(b"", start, end),), b"", end - start)

    def _whole(self, fields: Fields) -> Answer:
        facts = self._facts
        own = [(b"content-length", b"%d" % facts.size)]
        if facts.sha256 is not None and wants_sha256(fields.get(b"want-content-digest")):
            own.append((b"content-digest", format_digest(facts.sha256)))
        return Answer(200, self._typed(fields), own, (Part(b"", 0, facts.size),), b"", facts.size)

    def _typed(self, fields: Fields) -> SharedHeaders:
        """The shared headers with the representation's media type."""
        if b"want-repr-digest" in fields:
            return self._shared(fields, self._facts.media_type)
        if self._described is None:
            self._described = self._shared(fields, self._facts.media_type)
        return self._described

    def _shared(self, fields: Fields, media_type: str | None) -> SharedHeaders:
        """The headers that 200 and 206 both carry."""
        facts, want = self._facts, fields.get(b"want-repr-digest")
        digest = facts.sha256 if want is None or wants_sha256(want) else None
        known = (facts.etag, facts.filename, facts.message_type, digest, facts.elements, facts.omitted, media_type)
        return _shared_headers(*known, self._terms)


def _validators(etag: str, terms: Terms) -> Headers:
    """Headers of 304 too."""
    lasting = _VERSIONED if terms.versioned else _IMMUTABLE
    caching = lasting if terms.location is None else _REVALIDATED
    headers = [
        (b"etag", str(EntityTag(etag)).encode("ascii")),
        (b"cache-control", caching),
        (b"vary", b"accept, accept-encoding" if terms.negotiated else b"accept-encoding"),
    ]
    if terms.location is not None:
        headers.append((b"content-location", terms.location.encode("ascii")))
    return headers


@lru_cache(maxsize=1024)
def _shared_headers(
    etag: str,
    filename: str,
    message_type: str | None,
    digest: bytes | None,
    elements: tuple[str, tuple[int, ...]] | None,
    omitted: Omitted | None,
    media_type: str | None,
    terms: Terms,
) -> SharedHeaders:
    ranges = (b"accept-ranges", b"bytes" if terms.max_ranges else b"none")
    headers = [*_validators(etag, terms), ranges, (b"content-disposition", attachment(filename))]
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
    return SharedHeaders(secured(headers, private=terms.private))


def _multipart(shared: SharedHeaders, facts: Facts, ranges: tuple[ByteRange, ...]) -> Answer:
    boundary = token_hex(16)
    parts = tuple(
        Part(_part_head(boundary, facts.media_type, each.content_range(facts.size), n), each.start, each.end)
        for n, each in enumerate(ranges)
    )
    tail = f"\r\n--{boundary}--\r\n".encode()
    length = sum(len(part.head) + part.end - part.start for part in parts) + len(tail)
    own = [
        (b"content-type", f"multipart/byteranges; boundary={boundary}".encode()),
        (b"content-length", b"%d" % length),
    ]
    return Answer(206, shared, own, parts, tail, length)


def _part_head(boundary: str, media_type: str, content_range: bytes, n: int) -> bytes:
    start = "\r\n" if n else ""
    head = f"{start}--{boundary}\r\nContent-Type: {media_type}\r\nContent-Range: "
    return b"%b%b\r\n\r\n" % (head.encode(), content_range)


def _unsatisfiable(size: int) -> HttpProblem:
    headers = {"content-range": f"bytes */{size}", "accept-ranges": "bytes"}
    return HttpProblem(RANGE, f"The representation has only {size} bytes", headers=headers, limit=size)
