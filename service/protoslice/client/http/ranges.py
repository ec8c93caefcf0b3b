"""Pure functions that validate the headers of responses to range requests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from protoslice.client.http.digests import digest_in
from protoslice.errors import Conflict, IntegrityError

_RANGE: Final = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19})", re.ASCII)
_LENGTH: Final = re.compile(r"\d{1,19}", re.ASCII)
_STRONG: Final = re.compile(r'"[\x21\x23-\x7e]*"', re.ASCII)


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """The size, entity tag, digest and headers of a representation (the whole content behind a URL)."""

    size: int
    etag: str
    sha256: bytes | None
    headers: Mapping[str, str]
    """Headers of the first response, such as the content type, data type and shape."""

    def is_same(self, other: ObjectInfo) -> bool:
        """Return True if this object and `other` describe the same content, so that parts of it may be combined."""
        return (self.size, self.etag, self.sha256) == (other.size, other.etag, other.sha256)


@dataclass(frozen=True, slots=True)
class RangeResponse:
    """The range of a representation that a response contains: bytes from `start` up to `end`."""

    facts: ObjectInfo
    start: int
    end: int
    digest: bytes | None
    """SHA-256 of the bytes in the range, or None if the response does not state it."""


def check_range(
    status: int, headers: Mapping[str, str], start: int, end: int, known: ObjectInfo | None
) -> RangeResponse:
    """Validate the headers of a response to a request for the bytes from `start` up to `end`; return the range.

    A response with status 200 contains the whole content, even though a range was requested. Raise `IntegrityError`
    for a response that contradicts the request or itself. Raise `Conflict` if the response belongs to another version
    of the content than `known`.
    """
    if headers.get("content-encoding", "identity") != "identity":
        raise IntegrityError(
            "A proxy compresses the responses, so ranges are unreliable: turn off compression for this service"
        )
    if status == 206:
        first, last, size = _content_range(headers)
        if first != start or last + 1 != min(end, size):
            raise IntegrityError(f"Requested bytes {start} to {end}, but received {first} to {last + 1} of {size}")
    elif status == 200:
        first, size = 0, _content_length(headers)
        last = size - 1
    else:
        raise IntegrityError(f"The service responded with status {status} to a range request")
    if "content-length" in headers and _content_length(headers) != last + 1 - first:
        raise IntegrityError("Content-Length and Content-Range contradict each other: check the proxy")
    etag = headers.get("etag", "")
    if not _STRONG.fullmatch(etag):
        raise IntegrityError(
            "The response has no strong ETag, so parts of the file cannot be combined safely: check the proxy"
        )
    facts = ObjectInfo(size, etag, digest_in(headers.get("repr-digest")), headers)
    if known is not None and not facts.is_same(known):
        raise Conflict("The file changed on the service during the download: start again")
    return RangeResponse(facts, first, last + 1, digest_in(headers.get("content-digest")))


def _content_range(headers: Mapping[str, str]) -> tuple[int, int, int]:
    found = _RANGE.fullmatch(headers.get("content-range", ""))
    if found is None:
        raise IntegrityError("A 206 response has no valid Content-Range: check the proxy")
    first, last, size = map(int, found.groups())
    if not first <= last < size < 1 << 63:
        raise IntegrityError(f"Content-Range {found[0]!r} is inconsistent")
    return first, last, size


def _content_length(headers: Mapping[str, str]) -> int:
    text = headers.get("content-length", "")
    if not _LENGTH.fullmatch(text):
        raise IntegrityError(
            "The response has no Content-Length, so a truncated download would go unnoticed: check the proxy"
        )
    return int(text)
