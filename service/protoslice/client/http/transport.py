"""Transport below httpx that reads responses in steps of a mebibyte, where httpx's own takes 64 KiB.

In small steps, Python would cost more time than the copy of a model's bytes out of the kernel.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import Final
from urllib.parse import unquote
from urllib.request import getproxies, proxy_bypass

import httpx
import urllib3
from urllib3 import exceptions as failures
from urllib3.util import Timeout, make_headers, parse_url

from protoslice.client.http.sockets import POOLS

_STEP: Final = 1 << 20
_QUICK: Final = 100 << 20
"""Bytes per second at which a whole step arrives too fast to notice the wait."""
_KNOWN_TO_COME_AND_GO: Final = 16 << 20
_KEPT: Final = 16
"""Idle connections kept for later requests; more are opened on demand."""

_MEANING: Final[Mapping[type[Exception], type[httpx.TransportError]]] = {
    failures.ReadTimeoutError: httpx.ReadTimeout,
    failures.NewConnectionError: httpx.ConnectError,
    failures.ConnectTimeoutError: httpx.ConnectTimeout,
    failures.ProxyError: httpx.ProxyError,
    failures.LocationValueError: httpx.UnsupportedProtocol,
    failures.ProtocolError: httpx.RemoteProtocolError,
    failures.HTTPError: httpx.NetworkError,
}
"""httpx exception for each urllib3 failure; the first match counts."""


class ServiceTransport(httpx.BaseTransport):
    """Connections to a service, or to the proxy that the environment names for the service's host."""

    def __init__(self, service: httpx.URL) -> None:
        _let_memory_stay()
        self._begin = partial(_pool, service.scheme, service.host)
        self._pool, self._process = self._begin(), os.getpid()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Response with its body still to be read."""
        seconds = request.extensions.get("timeout", {})
        if self._process != os.getpid():  # after a fork, these connections are the parent's
            self._pool, self._process = self._begin(), os.getpid()
        # urllib3 adds Host and Accept for a proxy, unless they are here under these very names.
        headers = [(name.title(), value) for name, value in request.headers.multi_items()]
        framed = "content-length" in request.headers or "transfer-encoding" in request.headers
        with _as_httpx(httpx.ConnectError):
            answer = self._pool.urlopen(
                request.method,
                str(request.url),
                body=request.stream if framed else None,
                headers=urllib3.HTTPHeaderDict(headers),
                timeout=Timeout(connect=seconds.get("connect"), read=seconds.get("read")),
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
        return httpx.Response(answer.status, headers=list(answer.headers.items()), stream=_Body(answer))

    def close(self) -> None:
        """Close the connections."""
        # Clearing leaves a pool to the garbage collector, and so to answers that refer to themselves.
        for key in self._pool.pools.keys():  # noqa: SIM118 - it is no dict
            self._pool.pools[key].close()
        self._pool.clear()


class _Body(httpx.SyncByteStream):
    def __init__(self, answer: urllib3.BaseHTTPResponse) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        quick, before = False, perf_counter()
        with _as_httpx(httpx.ReadError):
            while piece := self._answer.read(_STEP) if quick else self._answer.read1(_STEP):
                yield piece
                now = perf_counter()
                quick, before = len(piece) > _QUICK * (now - before), now

    def close(self) -> None:
        """Return the connection to the pool after a complete body; close the connection otherwise."""
        self._answer.close()


def _let_memory_stay() -> None:
    """Keep freed memory in the process, for the next piece.

    glibc returns memory freed at the end of its heap, and the kernel then clears every page again for every piece,
    unless blocks of this size have been allocated and freed before. That took a fifth of a download's processor time.
    """
    bytes(_KNOWN_TO_COME_AND_GO)


@contextmanager
def _as_httpx(tls: type[httpx.TransportError]) -> Iterator[None]:
    """Turn urllib3 failures into httpx exceptions."""
    # urllib3 does not tell at which stage TLS failed: the caller names the class.
    try:
        yield
    except failures.SSLError as error:
        raise tls(str(error)) from error
    except failures.HTTPError as error:
        kind = next(meant for kind, meant in _MEANING.items() if isinstance(error, kind))
        raise kind(str(error)) from error


def _pool(scheme: str, host: str) -> urllib3.PoolManager:
    named = getproxies()
    proxy = named.get(scheme) or named.get("all")
    if proxy is None or proxy_bypass(host):
        pool = urllib3.PoolManager(maxsize=_KEPT)
    else:
        auth = parse_url(proxy).auth
        headers = make_headers(proxy_basic_auth=unquote(auth)) if auth else None
        pool = urllib3.ProxyManager(proxy, maxsize=_KEPT, proxy_headers=headers)
    pool.pool_classes_by_scheme = POOLS
    return pool
