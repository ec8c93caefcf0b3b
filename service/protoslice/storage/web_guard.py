"""The address policy of web sources, against server-side request forgery.

A client names a source, and the service opens it from inside the operator's network. Therefore these rules apply:

- A source must be below a prefix on the operator's list. Scheme, authority and whole path segments are compared after
  parsing.
- Each connection resolves the host name once, checks every address, and connects to a checked address. A name that
  resolves to another address a moment later (DNS rebinding) therefore achieves nothing.
- Addresses that are not publicly routable are refused, unless they are in a network on the operator's list. This holds
  for every notation and for IPv4 addresses embedded in IPv6 addresses.
- A redirect counts as a new source, whose host is resolved and checked again. Only a redirect below a listed prefix may
  reach a listed network; other redirects may only reach public addresses. At most five redirects are followed, and none
  from https to http.

The policy does not cover the content that an allowed public server returns. Nor does it cover services that trust the
operator's public addresses.
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

# IPv6 networks whose addresses contain an IPv4 address in the last 32 bits. A gateway may forward to that address.
_CARRIERS: Final = tuple(IPv6Network(text) for text in ("::ffff:0:0/96", "64:ff9b::/96"))
# The only range from which public IPv6 unicast addresses have been assigned so far.
_PUBLIC: Final = IPv6Network("2000::/3")
MOST_HOPS: Final = 5
"""Largest number of redirects that one request follows."""
_STATUSES: Final = frozenset({301, 302, 303, 307, 308})
_LONGEST: Final = 8192
_PRINTABLE: Final = re.compile(r"[\x21-\x7e]+")
_CONNECTIONS = 16
_KEPT_SECONDS = 30


class Networks:
    """The non-public networks that may be reached; each is written as `10.1.0.0/16`, `fd00::/8` or a single address."""

    def __init__(self, *texts: str) -> None:
        try:
            self._networks = [ip_network(text) for text in texts]
        except ValueError:
            raise InvalidInput(
                f"Invalid networks {', '.join(texts)}: use networks such as 10.1.0.0/16 or fd00::/8, or single "
                "addresses"
            ) from None

    def permit(self, address: Address) -> bool:
        """Return True when `address` is public or is in a listed network."""
        return not is_private(address) or any(address in network for network in self._networks)


def is_private(address: Address) -> bool:
    """Return True unless `address` and every address embedded in it are publicly routable unicast addresses."""
    if isinstance(address, IPv4Address):
        return not address.is_global or address.is_multicast or address.is_reserved
    if any(address in network for network in _CARRIERS):
        return is_private(IPv4Address(int(address) & 0xFFFFFFFF))
    if address not in _PUBLIC or not address.is_global:
        return True
    carried = [*(address.teredo or ()), *([address.sixtofour] if address.sixtofour else [])]
    return any(is_private(inner) for inner in carried)


async def resolve(host: str, port: int, networks: Networks) -> Sequence[str]:
    """Return the addresses of a host; raise `StorageDenied` if the policy forbids any of them.

    Raise `StorageUnavailable` when the host name cannot be resolved.
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
    """The URL of a request: scheme, host with port, and path with query."""

    scheme: str
    authority: str
    target: str

    @property
    def place(self) -> Location:
        """The location of the host, without a path."""
        return Location(self.scheme, self.authority, ())

    @property
    def text(self) -> str:
        """The URL as one string."""
        return f"{self.scheme}://{self.authority}{self.target}"


def next_url(url: WebUrl, status: int, location: str | None) -> WebUrl | None:
    """Return the URL that a response redirects to, or None if `status` is not a redirect.

    Raise `StorageDenied` when `location` is not a web URL, contains credentials, or leads from https to http.
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
    """Return True when `url` is below a prefix of the list, so that it may reach the listed networks."""
    try:
        uri = f"{url.scheme}://{url.authority}{url.target.partition('?')[0]}"
        parse_location(uri)
        allowed(uri, prefixes)
    except ProtosliceError:
        return False
    return True


def guarded_pool(networks: Networks, tls: ssl.SSLContext | None) -> httpcore.AsyncConnectionPool:
    """Return a pool of direct HTTP/1.1 connections, which only go to addresses that the policy permits."""
    return httpcore.AsyncConnectionPool(
        ssl_context=tls or ssl.create_default_context(),
        max_connections=_CONNECTIONS,
        keepalive_expiry=_KEPT_SECONDS,
        network_backend=_GuardedNetwork(networks),
    )


class _GuardedNetwork(httpcore.AsyncNetworkBackend):
    """A network backend that resolves a host, checks its addresses and connects, in one step.

    TLS starts afterwards and verifies the host name, not the address.
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
        """Connect to the first address of the host that responds.

        Raise `StorageDenied` when any address is forbidden.
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
        """Raise `ConnectError`, because web sources never use Unix sockets."""
        raise httpcore.ConnectError("Web sources on this machine are not allowed")

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds`; the pool calls this between retries."""
        await self._inner.sleep(seconds)
