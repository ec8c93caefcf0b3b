"""Connections of web sources, to checked addresses only."""

from __future__ import annotations

import ssl
from collections.abc import Iterable

import httpcore

from protoslice.storage.web.address_policy import Networks, resolve

_CONNECTIONS = 16
_KEPT_SECONDS = 30


def guarded_pool(networks: Networks, tls: ssl.SSLContext | None) -> httpcore.AsyncConnectionPool:
    """Pool of HTTP/1.1 connections to addresses that the policy permits; no proxies."""
    return httpcore.AsyncConnectionPool(
        ssl_context=tls or ssl.create_default_context(),
        max_connections=_CONNECTIONS,
        keepalive_expiry=_KEPT_SECONDS,
        network_backend=_GuardedNetwork(networks),
    )


class _GuardedNetwork(httpcore.AsyncNetworkBackend):
    """Network backend that resolves a host, checks its addresses and connects in one step.

    TLS starts later and verifies the name of the host, not the address.
    """

    def __init__(self, networks: Networks) -> None:
        self._networks = networks
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connection to the first address that answers; `StorageDenied` when one may not be visited."""
        failure: Exception = httpcore.ConnectError("the host has no address")
        for address in await resolve(host, port, self._networks):
            try:
                return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None
    ) -> httpcore.AsyncNetworkStream:
        """Raise `ConnectError`: web sources use no Unix sockets."""
        raise httpcore.ConnectError("Web sources on this machine are not allowed")

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds`, between the pool's own retries."""
        await self._inner.sleep(seconds)
