"""`https://` and `http://`: read-only objects of a web server, pinned to a strong entity tag.

Proxies of the environment are not used, and each connection goes to an address that the address policy has checked; TLS
still verifies the certificate against the host's name. Redirects are followed anew for each range, as presigned links
expire: to public addresses, and to others only below the operator's prefixes. The last answer's entity tag is the pin.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from typing import Final
from urllib.parse import quote

import httpcore

from protoslice.errors import IntegrityError, StorageDenied, StorageUnavailable, Unsupported
from protoslice.storage.interface import PAGE, Abilities, ObjectStat, Page, Span
from protoslice.storage.keys import ObjectKey
from protoslice.storage.remote import ReadOnlyRemoteStorage
from protoslice.storage.spans import check_inside, check_span
from protoslice.storage.web.address_policy import Networks
from protoslice.storage.web.answers import FetchedRange, denied, read_answer, redirected, unavailable
from protoslice.storage.web.connections import guarded_pool
from protoslice.storage.web.redirects import MOST_HOPS, WebUrl, is_listed
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


class WebStorage(ReadOnlyRemoteStorage):
    """Storage of the objects below one URL.

    `networks` lists non-public networks that may be visited below `root` and `prefixes`; other redirects lead to public
    addresses alone.
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
        """No abilities beyond reading."""
        return ABILITIES

    async def stat(self, key: ObjectKey) -> ObjectStat:
        """See `Storage.stat`; requests the first byte, which proves that the server serves ranges."""
        try:
            return (await self._get(key, 0, 1, None)).stat
        except IntegrityError:  # an empty object
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
        """Raise `Unsupported`: web servers list no objects."""
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
        """The answer of `url`, or the URL it redirects to; only the headers of a range request go anywhere."""
        always = [("Host", url.authority), ("Accept-Encoding", "identity")]
        async with AsyncExitStack() as held:
            try:
                stream = pool.stream(method, _asked(url), headers=always + headers, extensions=_TIMEOUTS)
                response = await held.enter_async_context(stream)
            except StorageDenied:
                if pool is self._pool:
                    raise
                # The policy's own words would tell a client which private names there are.
                raise denied(key, "the server redirects to a private address") from None
            return await redirected(key, url, response) or await read_answer(key, span, response)

    def _url(self, key: ObjectKey) -> WebUrl:
        path = "".join(f"/{quote(segment, safe=_SAFE)}" for segment in self._place.segments + key.segments)
        return WebUrl(self._place.scheme, self._place.authority, path)


def _asked(url: WebUrl) -> httpcore.URL:
    # Built from parts: httpcore's parser would cut the path at a semicolon.
    return httpcore.URL(scheme=url.scheme, host=url.place.host, port=url.place.port, target=url.target.encode("ascii"))
