"""The answer to a request for a representation: status, headers, byte ranges, decided before any byte is read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from secrets import token_hex
from typing import Final, Protocol

from protoslice.conditions import EntityTag, Preconditions, Validators, Verdict, evaluate, range_applies
from protoslice.ranges import ByteRange, Slices, Unsatisfiable, select
from protoslice.server.api.problems import PRECONDITION, RANGE, HttpProblem
from protoslice.server.http.digests import format_digest, wants_sha256
from protoslice.server.http.disposition import attachment
from protoslice.server.http.headers import Fields

__all__ = ["Answer", "Facts", "Part", "Terms", "plan_answer"]

Headers = list[tuple[bytes, bytes]]

_BINARY: Final[Headers] = [(b"x-content-type-options", b"nosniff"), (b"content-security-policy", b"sandbox")]
_IMMUTABLE: Final = b"public, max-age=31536000, immutable, no-transform"
_VERSIONED: Final = b"public, max-age=3600, no-transform"
_REVALIDATED: Final = b"no-cache, no-transform"
_CONDITIONAL: Final = frozenset({b"if-match", b"if-none-match", b"if-modified-since", b"if-unmodified-since"})


class Facts(Protocol):
    """What is known of a representation without reading it."""

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
    def headers(self) -> tuple[tuple[bytes, bytes], ...]: ...


@dataclass(frozen=True, slots=True)
class Terms:
    """How an answer may be kept: under a URL that names its content for good, or one that may come to mean another."""

    location: str | None = None
    """The lasting URL, when the one asked is not."""
    negotiated: bool = False
    """Whether Accept chooses among representations."""
    versioned: bool = False
    """Whether a later program may give other bytes, under another entity tag: then nobody keeps the answer for ever."""
    max_ranges: int = 64
    """The most ranges of one request; a request for more gets the whole. 0: ranges are not served at all."""


@dataclass(frozen=True, slots=True)
class Part:
    """What precedes a range on the wire, and the range."""

    head: bytes
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Answer:
    """A decided answer: its `length` is that of all it will send."""

    status: int
    headers: Headers
    parts: tuple[Part, ...]
    tail: bytes
    length: int


def plan_answer(method: str, fields: Fields, facts: Facts, terms: Terms) -> Answer:
    """The answer to a GET or HEAD; raises `HttpProblem` for 412 and 416."""
    current = Validators(EntityTag(facts.etag))
    if not _CONDITIONAL.isdisjoint(fields):
        verdict = evaluate(_preconditions(fields), current, reads=True)
        if verdict is Verdict.FAILED:
            raise HttpProblem(PRECONDITION, "the representation is another than the one named", etag=facts.etag)
        if verdict is Verdict.NOT_MODIFIED:
            return Answer(304, _validators(facts.etag, terms), (), b"", 0)
    headers = _headers(fields, facts, terms)
    wanted = fields.get(b"range") if method == "GET" and terms.max_ranges else None
    if wanted is None or not _counts(wanted, fields, current, terms):
        return _whole(headers, fields, facts)
    selection = select(wanted, facts.size)
    if isinstance(selection, Unsatisfiable):
        raise _unsatisfiable(selection)
    if not isinstance(selection, Slices):
        return _whole(headers, fields, facts)
    return _sliced(headers, facts, selection.ranges)


def _validators(etag: str, terms: Terms) -> Headers:
    """What 304 carries too."""
    lasting = _VERSIONED if terms.versioned else _IMMUTABLE
    headers = [
        (b"etag", str(EntityTag(etag)).encode("ascii")),
        (b"cache-control", lasting if terms.location is None else _REVALIDATED),
        (b"vary", b"accept, accept-encoding" if terms.negotiated else b"accept-encoding"),
    ]
    if terms.location is not None:
        headers.append((b"content-location", terms.location.encode("ascii")))
    return headers


def _headers(fields: Fields, facts: Facts, terms: Terms) -> Headers:
    """What 200 and 206 carry both, as a list of their own."""
    want = fields.get(b"want-repr-digest")
    digest = facts.sha256 if want is None or wants_sha256(want) else None
    known = _common(facts.etag, facts.filename, facts.message_type, digest, terms)
    return [*known, *facts.headers]


@lru_cache(maxsize=1024)
def _common(
    etag: str, filename: str, message_type: str | None, digest: bytes | None, terms: Terms
) -> tuple[tuple[bytes, bytes], ...]:
    ranges = (b"accept-ranges", b"bytes" if terms.max_ranges else b"none")
    headers = [*_validators(etag, terms), ranges, *_BINARY, (b"content-disposition", attachment(filename))]
    if message_type is not None:
        headers.append((b"x-protobuf-message", message_type.encode("ascii")))
    if digest is not None:
        headers.append((b"repr-digest", format_digest(digest)))
    return tuple(headers)


def _preconditions(fields: Fields) -> Preconditions:
    return Preconditions(
        if_match=fields.get(b"if-match"),
        if_unmodified_since=fields.get(b"if-unmodified-since"),
        if_none_match=fields.get(b"if-none-match"),
        if_modified_since=fields.get(b"if-modified-since"),
    )


def _counts(wanted: str, fields: Fields, current: Validators, terms: Terms) -> bool:
    return wanted.count(",") < terms.max_ranges and range_applies(fields.get(b"if-range"), current)


def _whole(headers: Headers, fields: Fields, facts: Facts) -> Answer:
    headers.append((b"content-type", facts.media_type.encode("latin-1")))
    headers.append((b"content-length", b"%d" % facts.size))
    if facts.sha256 is not None and wants_sha256(fields.get(b"want-content-digest")):
        headers.append((b"content-digest", format_digest(facts.sha256)))
    return Answer(200, headers, (Part(b"", 0, facts.size),), b"", facts.size)


def _sliced(headers: Headers, facts: Facts, ranges: tuple[ByteRange, ...]) -> Answer:
    if len(ranges) > 1:
        return _multipart(headers, facts, ranges)
    (only,) = ranges
    headers.append((b"content-type", facts.media_type.encode("latin-1")))
    headers.append((b"content-range", only.content_range(facts.size).encode()))
    headers.append((b"content-length", b"%d" % only.length))
    return Answer(206, headers, (Part(b"", only.start, only.end),), b"", only.length)


def _multipart(headers: Headers, facts: Facts, ranges: tuple[ByteRange, ...]) -> Answer:
    boundary = token_hex(16)
    parts = tuple(
        Part(_part_head(boundary, facts.media_type, each.content_range(facts.size), n), each.start, each.end)
        for n, each in enumerate(ranges)
    )
    tail = f"\r\n--{boundary}--\r\n".encode()
    length = sum(len(part.head) + part.end - part.start for part in parts) + len(tail)
    headers.append((b"content-type", f"multipart/byteranges; boundary={boundary}".encode()))
    headers.append((b"content-length", b"%d" % length))
    return Answer(206, headers, parts, tail, length)


def _part_head(boundary: str, media_type: str, content_range: str, n: int) -> bytes:
    start = "\r\n" if n else ""
    return f"{start}--{boundary}\r\nContent-Type: {media_type}\r\nContent-Range: {content_range}\r\n\r\n".encode()


def _unsatisfiable(selection: Unsatisfiable) -> HttpProblem:
    headers = {"content-range": selection.content_range, "accept-ranges": "bytes"}
    return HttpProblem(
        RANGE, f"the representation has {selection.length} bytes", headers=headers, limit=selection.length
    )
