"""Validation of a web server's response to a range request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

import httpcore

from protoslice.errors import Conflict, NotFound, ProtosliceError, StorageDenied, StorageUnavailable, Unsupported
from protoslice.storage.interface import ObjectStat, Span
from protoslice.storage.keys import ObjectKey
from protoslice.storage.spans import check_inside
from protoslice.storage.web.redirects import WebUrl, next_url

_RANGE: Final = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19})")
_NO_RANGE: Final = re.compile(r"bytes \*/([0-9]{1,19})")
_SHORT: Final = 16 << 10
"""Bytes of a redirect's body that are read to keep its connection."""
_STRONG: Final = re.compile(r'"[\x21\x23-\x7e\x80-\xff]*"')

_REFUSALS: Final[dict[int, tuple[type[ProtosliceError], str]]] = {
    200: (Unsupported, "the server does not support ranges"),
    401: (StorageDenied, "the server needs a login"),
    403: (StorageDenied, "the server denies access"),
    404: (NotFound, "no such object"),
    410: (NotFound, "the object no longer exists"),
    412: (Conflict, "it has changed"),
    451: (StorageDenied, "the server denies it"),
}


@dataclass(frozen=True, slots=True)
class FetchedRange:
    """Bytes of a range, fewer where the object ends earlier, and the facts of the object."""

    stat: ObjectStat
    data: bytes


async def read_answer(key: ObjectKey, span: Span, response: httpcore.Response) -> FetchedRange:
    """Validated response to a request for `span`; every other response raises a `ProtosliceError`.

    A 206 with the range asked for and a 200 without a body are valid. `IntegrityError` when the span begins behind the
    end of the object.
    """
    headers = {name.lower().decode("latin-1"): value.decode("latin-1") for name, value in response.headers}
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise Unsupported(
            f"cannot read {str(key)!r}: the server sends it with a Content-Encoding (such as gzip), which is "
            "not supported"
        )
    if response.status == 200 and headers.get("content-length") == "0":
        return FetchedRange(_describe(key, headers, 0), b"")
    if response.status == 206:
        size, length = _check_range(key, span, headers)
        return FetchedRange(_describe(key, headers, size), await _body(key, response, length))
    if response.status == 416:
        match = _NO_RANGE.fullmatch(headers.get("content-range", ""))
        if match is not None:
            check_inside(key, span[1], int(match[1]))
    raise _refusal(key, response.status)


async def redirected(key: ObjectKey, url: WebUrl, response: httpcore.Response) -> WebUrl | None:
    """The URL that `response` to a request for `url` redirects to, None if it does not.

    `StorageDenied` for a place that is not followed.
    """
    headers = {name.lower(): value for name, value in response.headers}
    try:
        after = next_url(url, response.status, headers.get(b"location", b"").decode("latin-1"))
    except StorageDenied as error:
        raise denied(key, error.message) from None
    # A connection whose answer was read to its end serves the next range too.
    length = headers.get(b"content-length", b"")
    if after is not None and length.isdigit() and int(length) <= _SHORT:
        await response.aread()
    return after


def denied(key: ObjectKey, why: str) -> StorageDenied:
    """`StorageDenied` for an object that this service does not fetch."""
    return StorageDenied(f"cannot read {str(key)!r}: {why}")


def unavailable(key: ObjectKey, why: str) -> StorageUnavailable:
    """`StorageUnavailable` for a server that fails."""
    return StorageUnavailable(f"cannot read {str(key)!r}: {why}")


def _check_range(key: ObjectKey, span: Span, headers: Mapping[str, str]) -> Span:
    match = _RANGE.fullmatch(headers.get("content-range", ""))
    if match is None:
        raise unavailable(key, "the server does not say which range it sent")
    first, last, size = (int(number) for number in match.groups())
    if first != span[0] or last != min(span[1], size) - 1:
        raise unavailable(key, "the server sent another range than requested")
    return size, last + 1 - first


def _describe(key: ObjectKey, headers: Mapping[str, str], size: int) -> ObjectStat:
    etag = headers.get("etag", "")
    if not _STRONG.fullmatch(etag):
        raise Unsupported(f"cannot read {str(key)!r}: the server has no strong entity tag for it")
    try:
        modified = parsedate_to_datetime(headers["last-modified"])
    except (KeyError, ValueError):
        modified = datetime.fromtimestamp(0, UTC)
    return ObjectStat(key, size, etag, modified if modified.tzinfo else modified.replace(tzinfo=UTC))


async def _body(key: ObjectKey, response: httpcore.Response, length: int) -> bytes:
    data = bytearray()
    async for piece in response.aiter_stream():
        data += piece
        if len(data) > length:
            break
    if len(data) != length:
        raise unavailable(key, "the server sent more or fewer bytes than it announced")
    return bytes(data)


def _refusal(key: ObjectKey, status: int) -> ProtosliceError:
    kind, why = _REFUSALS.get(status, (StorageUnavailable, f"the server responded with {status}"))
    return kind(f"cannot read {str(key)!r}: {why}")
