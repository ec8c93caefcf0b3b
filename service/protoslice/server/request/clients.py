"""Clients, identified by their address or by the address that a trusted proxy names.

Each client may use only a share of the service.

Proxies name the address in `Forwarded` (RFC 7239) or `X-Forwarded-For`. Both headers are read from right to left,
because each proxy appends the address of its peer. Only entries that trusted proxies appended are believed, because the
client may have written the entries further left.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from hashlib import blake2b
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from itertools import islice
from typing import Final, Literal, TypeAlias

from protoslice.concurrency.shares import QueuedShares, Shares
from protoslice.server.http.headers import Headers
from protoslice.server.settings import UNIX, Settings

SMALL: Final = 4
"""The factor by which the limits on small uploads exceed the limits on other uploads."""
_V6_PREFIX: Final = 64
"""The length of the IPv6 prefix that identifies a client. One machine may use all addresses below such a prefix."""
Address: TypeAlias = IPv4Address | IPv6Address
Trusts: TypeAlias = Callable[[Address], bool]
Proxy: TypeAlias = Literal["trusted", "silent", "untrusted"]
"""The treatment of the nearest proxy. A `silent` proxy is trusted, but does not name the client."""

_HOPS: Final = 32
_NAMING: Final = {b"forwarded", b"x-forwarded-for"}
_FOR: Final = re.compile(r'(?:^|;)[ \t]*for=(?:"([^",;\\]*)"|([^",;\\ \t]*))[ \t]*(?:;|$)', re.IGNORECASE)
_PROTO: Final = re.compile(r'(?:^|;)[ \t]*proto="?(https?)"?[ \t]*(?:;|$)', re.IGNORECASE)
_NODE: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+))(?::[0-9]{1,5})?|([0-9A-Fa-f:.]+)")


class Clients:
    """The finder of clients' addresses. It also counts the running requests of each client."""

    def __init__(self, settings: Settings) -> None:
        self.connections = Shares(0, settings.max_connections_per_client, "connections")
        self.requests = Shares(0, settings.max_requests_per_client, "concurrent requests")
        most, each = settings.max_uploads, settings.max_uploads_per_client
        self.uploads = _uploads(settings, most, each, "concurrent uploads")
        self.small_uploads = _uploads(settings, SMALL * most, SMALL * each, "concurrent small uploads")
        """The limits on uploads whose whole body arrives at once."""
        self.readers = Shares(settings.max_waiting_readers, settings.max_waiting_readers_per_client, "waiting readers")
        self.principals = Shares(0, settings.max_requests_per_principal, "concurrent requests with one token")
        self._trusts_unix = UNIX in settings.trusted_proxies
        self._networks = [ip_network(name) for name in settings.trusted_proxies if name != UNIX]

    def address(self, peer: str | None, headers: Headers) -> str | None:
        """Return the address of the client. Return None if the client has no address, as on a Unix socket."""
        if (peer is not None and not self._networks) or not self.is_proxy(peer):
            return peer
        found = client_of(headers, self._is_trusted)
        return peer if found is None else str(found)

    def is_proxy(self, peer: str | None) -> bool:
        """Return True if the peer of a connection is a trusted proxy."""
        if peer is None:
            return self._trusts_unix
        address = _parse(peer) if self._networks else None
        return address is not None and self._is_trusted(address)

    def proxy(self, peer: str | None, headers: Headers) -> Proxy | None:
        """Return how the nearest proxy is treated.

        Return None if no header names a proxy and the peer is not trusted.
        """
        if self.is_proxy(peer):
            return "silent" if client_of(headers, self._is_trusted) is None else "trusted"
        return "untrusted" if any(name in _NAMING for name, _ in headers) else None

    def _is_trusted(self, address: Address) -> bool:
        return any(address in network for network in self._networks)


def _uploads(settings: Settings, most: int, each: int, what: str) -> QueuedShares:
    wait, slowest = settings.upload_wait_seconds, settings.body_min_bytes_per_second
    return QueuedShares(most, each, what, seconds=wait, slowest=slowest)


def network_of(address: str | None) -> str:
    """Return the key under which a client is counted.

    For IPv6, the key is the client's network. For no address, it is "".
    """
    return "" if address is None else _network(address)


def pseudonym(key: str) -> str:
    """Return a client's pseudonym for records that replicas share.

    It is a hash of the client's key, or "" without a key.
    """
    return blake2b(key.encode(), digest_size=8).hexdigest() if key else ""


def client_of(headers: Headers, trusts: Trusts) -> Address | None:
    """Return the nearest address that is not a trusted proxy's. If all are trusted, return the furthest address.

    Return None if the headers have no credible address. A proxy that writes one of the two headers forwards the other
    header unchanged from the client. Neither header is therefore believed if the headers differ.
    """
    said = set()
    for name, nodes_in in ((b"forwarded", _in_forwarded), (b"x-forwarded-for", _from_the_right)):
        lines = [value.decode("latin-1") for given, value in headers if given == name]
        if lines:
            said.add(_nearest(nodes_in(",".join(lines)), trusts))
    return said.pop() if len(said) == 1 else None


def scheme_of(headers: Headers) -> str | None:
    """Return the scheme of the request to the nearest proxy, `http` or `https`. Return None if it is unknown."""
    said = set()
    for name, value in headers:
        if name == b"x-forwarded-proto":
            said.add(next(_from_the_right(value.decode("latin-1"))).strip().lower())
        elif name == b"forwarded":
            match = _PROTO.search(next(_from_the_right(value.decode("latin-1"))))
            said.update([match[1].lower()] if match else [])
    return said.pop() if len(said) == 1 and said <= {"http", "https"} else None


def parse_address(text: str) -> Address | None:
    """Return the address in `text`, with or without a port. Return None for any other text.

    An IPv4 address that is mapped into IPv6 is returned as IPv4.
    """
    match = _NODE.fullmatch(text.strip(" \t"))
    try:
        found = ip_address(match[1] or match[2] or match[3]) if match else None
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found


def _nearest(nodes: Iterable[str], trusts: Trusts) -> Address | None:
    """Return the first address that is not trusted.

    At an invalid entry or at the end, return the last trusted address.
    """
    found = None
    for node in islice(nodes, _HOPS):
        address = parse_address(node)
        if address is None:
            break
        found = address
        if not trusts(address):
            break
    return found


def _from_the_right(text: str) -> Iterator[str]:
    comma = ","
    while comma:
        text, comma, last = text.rpartition(",")
        yield last


def _in_forwarded(text: str) -> Iterator[str]:
    """Yield the values of `for` from right to left. An unclosed quote does not affect elements further left."""
    for element in _from_the_right(text):
        match = _FOR.search(element)
        yield (match[1] or match[2] or "") if match else ""


_parse = lru_cache(maxsize=4096)(parse_address)


@lru_cache(maxsize=4096)
def _network(address: str) -> str:
    found = parse_address(address.partition("%")[0])
    if found is None or isinstance(found, IPv4Address):
        return str(found or address)
    return str(IPv6Network((int(found), _V6_PREFIX), strict=False))
