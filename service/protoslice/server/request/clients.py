"""Clients: recognised by their address, or by that which a trusted proxy names; each has a limited share."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from ipaddress import IPv4Address, IPv6Network, ip_network
from typing import Final

from protoslice.concurrency.shares import QueuedShares, Shares
from protoslice.server.http.headers import Headers
from protoslice.server.request.forwarded import Address, client_of, parse_address
from protoslice.server.settings import UNIX, Settings

SMALL: Final = 4
"""So many times as many small uploads may be under way at once."""
_V6_PREFIX: Final = 64
"""One machine has that many bits of IPv6 to choose from."""


class Clients:
    """Find the addresses of clients, and count what each has under way."""

    def __init__(self, settings: Settings) -> None:
        self.connections = Shares(0, settings.max_connections_per_client, "connections")
        self.requests = Shares(0, settings.max_requests_per_client, "concurrent requests")
        most, each = settings.max_uploads, settings.max_uploads_per_client
        self.uploads = _uploads(settings, most, each, "concurrent uploads")
        self.small_uploads = _uploads(settings, SMALL * most, SMALL * each, "concurrent small uploads")
        """Those whose whole body comes at once."""
        self.readers = Shares(settings.max_waiting_readers, settings.max_waiting_readers_per_client, "waiting readers")
        self.principals = Shares(0, settings.max_requests_per_principal, "requests under way")
        self._trusts_unix = UNIX in settings.trusted_proxies
        self._networks = [ip_network(name) for name in settings.trusted_proxies if name != UNIX]

    def address(self, peer: str | None, headers: Headers) -> str | None:
        """The address of the client; None where there is none, as behind a socket of this machine."""
        if (peer is not None and not self._networks) or not self.is_proxy(peer):
            return peer
        found = client_of(headers, self._is_trusted)
        return peer if found is None else str(found)

    def is_proxy(self, peer: str | None) -> bool:
        """True if the peer of a connection is a trusted proxy."""
        if peer is None:
            return self._trusts_unix
        address = _parse(peer) if self._networks else None
        return address is not None and self._is_trusted(address)

    def _is_trusted(self, address: Address) -> bool:
        return any(address in network for network in self._networks)


def _uploads(settings: Settings, most: int, each: int, what: str) -> QueuedShares:
    wait, slowest = settings.upload_wait_seconds, settings.body_min_bytes_per_second
    return QueuedShares(most, each, what, seconds=wait, slowest=slowest)


def network_of(address: str | None) -> str:
    """Return the key that a client at `address` counts under: for IPv6 its network; "" for None."""
    return "" if address is None else _network(address)


def pseudonym(key: str) -> str:
    """Pseudonym of a client in records that replicas share: a hash of its key; "" for ""."""
    return blake2b(key.encode(), digest_size=8).hexdigest() if key else ""


_parse = lru_cache(maxsize=4096)(parse_address)


@lru_cache(maxsize=4096)
def _network(address: str) -> str:
    found = parse_address(address.partition("%")[0])
    if found is None or isinstance(found, IPv4Address):
        return str(found or address)
    return str(IPv6Network((int(found), _V6_PREFIX), strict=False))
