"""Address policy of web sources, against server-side request forgery.

A client names a source, and the service opens the source from inside the operator's network. Therefore:

- A source must lie under a prefix on the operator's list, compared by parsed scheme, authority and whole path segments.
- A host name is resolved once for each connection, every resulting address is checked, and the connection goes to a
  checked address: a name that resolves to something else a moment later (DNS rebinding) gains nothing.
- Addresses that are not publicly routable are refused, in any notation and inside any IPv6 wrapping, unless they lie
  in a network on the operator's list.

- A redirect counts as a new source: its host is resolved and checked again. Networks on the list are reached by it only
  below a prefix on the list; the rest of the web only at public addresses, never from https to http, and five times.

Not covered: the content that an allowed public server answers with, and services that trust the operator's public
addresses.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias
from urllib.parse import urljoin, urlsplit

import httpcore

from protoslice.errors import InvalidInput, ProtosliceError, StorageDenied, StorageUnavailable
from protoslice.storage.sources import allowed
from protoslice.uris import Location, parse_location, web_authority

Address: TypeAlias = IPv4Address | IPv6Address

# IPv6 networks whose addresses embed an IPv4 address, their last 32 bits, to which a gateway may deliver.
_CARRIERS: Final = tuple(IPv6Network(text) for text in ("::ffff:0:0/96", "64:ff9b::/96"))
# All IPv6 addresses assigned for public use so far.
_PUBLIC: Final = IPv6Network("2000::/3")
MOST_HOPS: Final = 5
"""Redirects that one request follows."""
_STATUSES: Final = frozenset({301, 302, 303, 307, 308})
_LONGEST: Final = 8192
_PRINTABLE: Final = re.compile(r"[\x21-\x7e]+")
_CONNECTIONS = 16
_KEPT_SECONDS = 30


class Networks:
    """Non-public networks that may be visited: `10.1.0.0/16`, `fd00::/8`, or one address."""

    def __init__(self, *texts: str) -> None:
        try:
            self._networks = [ip_network(text) for text in texts]
        except ValueError:
            raise InvalidInput(
                f"Invalid networks {', '.join(texts)}: use networks such as 10.1.0.0/16 or fd00::/8, or single "
                "addresses"
            ) from None

    def permit(self, address: Address) -> bool:
        """Return True when `address` is public or in a listed network."""
        return not is_private(address) or any(address in network for network in self._networks)


def is_private(address: Address) -> bool:
    """Return True unless `address`, and each address embedded in it, is publicly routable unicast."""
    if isinstance(address, IPv4Address):
        return not address.is_global or address.is_multicast or address.is_reserved
    if any(address in network for network in _CARRIERS):
        return is_private(IPv4Address(int(address) & 0xFFFFFFFF))
    if address not in _PUBLIC or not address.is_global:
        return True
    carried = [*(address.teredo or ()), *([address.sixtofour] if address.sixtofour else [])]
    return any(is_private(inner) for inner in carried)


async def resolve(host: str, port: int, networks: Networks) -> Sequence[str]:
    """Return the addresses of a host; raise `StorageDenied` when one of them is not allowed.

    Raise `StorageUnavailable` when the name cannot be resolved.
    """
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise StorageUnavailable(f"cannot resolve host {host!r}") from None
    addresses = [ip_address(entry[4][0]) for entry in found]
    if not all(networks.permit(address) for address in addresses):
        raise StorageDenied(f"host {host!r} has a private address; the operator can allow its network")
    return [str(address) for address in addresses]


@dataclass(frozen=True, slots=True)
class WebUrl:
    """URL of a request: scheme, host with port, and path with query."""

    scheme: str
    authority: str
    target: str

    @property
    def place(self) -> Location:
        """Location of the host, without a path."""
        return Location(self.scheme, self.authority, ())

    @property
    def text(self) -> str:
        """The URL as one string."""
        return f"{self.scheme}://{self.authority}{self.target}"


def next_url(url: WebUrl, status: int, location: str | None) -> WebUrl | None:
    """Return the URL of the next request when `url` responded with `status` and `location`; None without a redirect.

    Raise `StorageDenied` for a location that is no web URL, holds credentials, or leads from https to http.
    """
    if status not in _STATUSES:
        return None
    try:
        parts = urlsplit(urljoin(url.text, location or ""))
        authority = web_authority(parts.scheme, parts.netloc)
    except (ValueError, ProtosliceError):
        raise StorageDenied("the server redirects to something other than a web URL") from None
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not location or len(location) > _LONGEST or not _PRINTABLE.fullmatch(target):
        raise StorageDenied("the server redirects to something other than a web URL")
    if (url.scheme, parts.scheme) == ("https", "http"):
        raise StorageDenied("the server redirects from https to http")
    return WebUrl(parts.scheme, authority, target)


def is_listed(url: WebUrl, prefixes: Sequence[str]) -> bool:
    """Return True when `url` is under one of `prefixes`, so that listed networks may be visited for it."""
    try:
        uri = f"{url.scheme}://{url.authority}{url.target.partition('?')[0]}"
        parse_location(uri)
        allowed(uri, prefixes)
    except ProtosliceError:
        return False
    return True


def guarded_pool(networks: Networks, tls: ssl.SSLContext | None) -> httpcore.AsyncConnectionPool:
    """Return a pool of HTTP/1.1 connections to addresses that the policy permits; no proxies."""
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
        """Return a connection to the first address that responds.

        Raise `StorageDenied` when an address is not allowed.
        """
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
