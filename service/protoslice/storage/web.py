"""The backend of `https://` and `http://`, which reads objects of a web server that have a strong entity tag.

Proxies from the environment are ignored. Each connection goes to an address that the address policy has checked, while
TLS still verifies the certificate against the host name. Presigned links expire, so every range read follows the
redirects again. A redirect may lead to a public address. If its target is below the operator's prefixes, it may also
lead into the networks that the operator lists. The entity tag comes from the last response, and later reads must match
it.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import quote

import httpcore

from protoslice.errors import (
    Conflict,
    IntegrityError,
    NotFound,
    ProtosliceError,
    StorageDenied,
    StorageUnavailable,
    Unsupported,
)
from protoslice.storage.interface import PAGE, Abilities, ObjectStat, Page, Span, refuse_options
from protoslice.storage.keys import ObjectKey
from protoslice.storage.ranges import ReadOnlyRemoteStorage, check_inside, check_span
from protoslice.storage.web_guard import MOST_HOPS, Networks, WebUrl, guarded_pool, is_listed, next_url
from protoslice.uris import parse_root

ABILITIES: Final = Abilities(write=False, listing=False)
_TRIES: Final = 3
_PAUSE: Final = 0.1
_SECONDS: Final = 60.0
_TIMEOUTS: Final = {"timeout": {"connect": 5.0, "read": 20.0, "write": 20.0, "pool": 60.0}}
_SAFE: Final = "!$&'()*+,;=:@-._~"
_Headers = list[tuple[str, str]]
_FAILURES: Final = (
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpcore.TimeoutException,
    httpcore.UnsupportedProtocol,
)
_RANGE: Final = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19})")
_NO_RANGE: Final = re.compile(r"bytes \*/([0-9]{1,19})")
_SHORT: Final = 16 << 10
"""Largest size in bytes of a redirect's body that is read to its end, so that the connection can be reused."""
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


def open(uri: str, options: Mapping[str, str]) -> WebStorage:
    """Open a storage for the objects below a URL."""
    refuse_options("https", options)
    return WebStorage(uri)


class WebStorage(ReadOnlyRemoteStorage):
    """A read-only storage of the objects below one URL.

    `networks` are non-public networks that may be reached for URLs below `root` and `prefixes`. Redirects to other URLs
    may only reach public addresses.
    """

    refusal = "web sources are read-only"

    def __init__(
        self,
        root: str,
        *,
        networks: Sequence[str] = (),
        prefixes: Sequence[str] = (),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._place = parse_root(root)
        self._prefixes = (root, *prefixes)
        self._pool = guarded_pool(Networks(*networks), tls)
        self._public = guarded_pool(Networks(), tls)

    @property
    def abilities(self) -> Abilities:
        """No ability beyond reading."""
        return ABILITIES

    async def stat(self, key: ObjectKey) -> ObjectStat:
        """See `Storage.stat`; the request for the first byte also shows whether the server supports ranges."""
        try:
            return (await self._get(key, 0, 1, None)).stat
        except IntegrityError:  # the object is empty
            return (await self._try("HEAD", key, (0, 0), [])).stat

    async def get_range(self, key: ObjectKey, start: int, end: int, *, if_etag: str | None = None) -> bytes:
        check_span(start, end)
        if start == end:
            check_inside(key, end, (await self.pin(key, if_etag)).size)
            return b""
        answer = await self._get(key, start, end, if_etag)
        answer.stat.check_etag(if_etag)
        check_inside(key, end, answer.stat.size)
        return answer.data

    async def list(self, prefix: ObjectKey | None = None, *, after: ObjectKey | None = None, limit: int = PAGE) -> Page:
        """Raise `Unsupported`, because a web server cannot list its objects."""
        raise Unsupported("a web server cannot list its objects")

    async def close(self) -> None:
        await self._pool.aclose()
        await self._public.aclose()

    async def _get(self, key: ObjectKey, start: int, end: int, etag: str | None) -> FetchedRange:
        headers = [("Range", f"bytes={start}-{end - 1}")]
        if etag is not None:
            headers.append(("If-Match", etag))
        return await self._try("GET", key, (start, end), headers)

    async def _try(self, method: str, key: ObjectKey, span: Span, headers: _Headers) -> FetchedRange:
        for turn in range(1, _TRIES):
            with suppress(StorageUnavailable):
                return await self._ask(method, key, span, headers)
            await asyncio.sleep(_PAUSE * turn)
        return await self._ask(method, key, span, headers)

    async def _ask(self, method: str, key: ObjectKey, span: Span, headers: _Headers) -> FetchedRange:
        url, pool = self._url(key), self._pool
        try:
            async with asyncio.timeout(_SECONDS):
                for _ in range(1 + MOST_HOPS):
                    answer = await self._hop(pool, method, url, key, span, headers)
                    if not isinstance(answer, WebUrl):
                        return answer
                    url, pool = answer, self._pool if is_listed(answer, self._prefixes) else self._public
        except (*_FAILURES, OSError) as error:
            raise unavailable(key, f"the server sent no complete response ({type(error).__name__})") from None
        raise denied(key, f"the server redirects more than {MOST_HOPS} times")

    async def _hop(
        self,
        pool: httpcore.AsyncConnectionPool,
        method: str,
        url: WebUrl,
        key: ObjectKey,
        span: Span,
        headers: _Headers,
    ) -> FetchedRange | WebUrl:
        """Send one request to `url` and return the range, or the URL that a redirect leads to."""
        always = [("Host", url.authority), ("Accept-Encoding", "identity")]
        async with AsyncExitStack() as held:
            try:
                stream = pool.stream(method, _asked(url), headers=always + headers, extensions=_TIMEOUTS)
                response = await held.enter_async_context(stream)
            except StorageDenied:
                if pool is self._pool:
                    raise
                # The policy's own message would reveal to a client which private names exist.
                raise denied(key, "the server redirects to a private address") from None
            return await redirected(key, url, response) or await read_answer(key, span, response)

    def _url(self, key: ObjectKey) -> WebUrl:
        path = "".join(f"/{quote(segment, safe=_SAFE)}" for segment in self._place.segments + key.segments)
        return WebUrl(self._place.scheme, self._place.authority, path)


def _asked(url: WebUrl) -> httpcore.URL:
    # The URL is built from its parts, because httpcore's parser would cut the path at a semicolon.
    return httpcore.URL(scheme=url.scheme, host=url.place.host, port=url.place.port, target=url.target.encode("ascii"))


@dataclass(frozen=True, slots=True)
class FetchedRange:
    """The bytes of a range (fewer if the object ends earlier), and the object's facts."""

    stat: ObjectStat
    data: bytes


async def read_answer(key: ObjectKey, span: Span, response: httpcore.Response) -> FetchedRange:
    """Return the bytes and facts in the response to a request for `span`; raise a `ProtosliceError` if it is invalid.

    Two responses are valid: a 206 with exactly the requested range, and a 200 for an empty object. Raise
    `IntegrityError` when the span begins beyond the object's end.
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
    """Return the URL that `response` redirects to, or None if it is not a redirect.

    Raise `StorageDenied` for a forbidden redirect.
    """
    headers = {name.lower(): value for name, value in response.headers}
    try:
        after = next_url(url, response.status, headers.get(b"location", b"").decode("latin-1"))
    except StorageDenied as error:
        raise denied(key, error.message) from None
    # A connection can serve the next range only if its response was read to the end.
    length = headers.get(b"content-length", b"")
    if after is not None and length.isdigit() and int(length) <= _SHORT:
        await response.aread()
    return after


def denied(key: ObjectKey, why: str) -> StorageDenied:
    """Return a `StorageDenied` error for an object that this service refuses to read."""
    return StorageDenied(f"cannot read {str(key)!r}: {why}")


def unavailable(key: ObjectKey, why: str) -> StorageUnavailable:
    """Return a `StorageUnavailable` error for a server that fails."""
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
