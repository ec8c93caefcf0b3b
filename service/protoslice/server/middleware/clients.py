"""Whose a request is, as far as that can be known, and how much of the service each client has at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from hashlib import blake2b
from ipaddress import IPv4Address, IPv6Network, ip_network
from typing import Final, TypeAlias

from starlette.types import Scope

from protoslice.server.api.problems import RETRY_AFTER_SECONDS, SHARE, HttpProblem
from protoslice.server.http.headers import Headers
from protoslice.server.middleware.forwarded import Address, client_of, parse_address
from protoslice.server.settings import UNIX, Settings

__all__ = ["ClientQuota", "Clients", "Principal", "network_of", "pseudonym"]

Principal: TypeAlias = Callable[[Scope], str | None]
"""Who asks, by what the request proves; None when it proves nothing, and the address counts."""

_V6_PREFIX: Final = 64
"""One machine has that many bits of IPv6 to choose from."""


class ClientQuota:
    """How much of something each client has, of which it may have so much; 0 is no limit, and "" is nobody."""

    def __init__(self, limit: int, what: str) -> None:
        self.limit = limit
        self._what = what
        self._taken: dict[str, int] = {}

    def take(self, key: str) -> bool:
        """Count one more, unless that is too many."""
        count = self._taken.get(key, 0)
        if self.limit and key and count >= self.limit:
            return False
        self._taken[key] = count + 1
        return True

    def give(self, key: str) -> None:
        """Count one less."""
        left = self._taken[key] - 1
        if left:
            self._taken[key] = left
        else:
            del self._taken[key]

    @contextmanager
    def one(self, key: str) -> Iterator[None]:
        """Have one while the context lasts; the problem when that is too many."""
        if not self.take(key):
            raise self.refusal()
        try:
            yield
        finally:
            self.give(key)

    def refusal(self) -> HttpProblem:
        """What is said to a client that has enough."""
        headers = {"retry-after": str(RETRY_AFTER_SECONDS)}
        return HttpProblem(SHARE, self.detail, headers=headers, limit=self.limit)

    @property
    def detail(self) -> str:
        """The limit in words."""
        return f"the limit for one client is {self.limit} {self._what}"


class Clients:
    """Tells clients apart: by what a request proves, by what trusted proxies say, else by the address of the peer."""

    def __init__(self, settings: Settings, principal: Principal | None = None) -> None:
        self.connections = ClientQuota(settings.connections_per_client(), "connections")
        self.requests = ClientQuota(settings.requests_per_client(), "requests under way")
        self.uploads = ClientQuota(settings.uploads_per_client(), "uploads under way")
        self._principal = principal
        self._trusts_unix = UNIX in settings.trusted_proxies
        self._networks = [ip_network(name) for name in settings.trusted_proxies if name != UNIX]

    def address(self, peer: str | None, headers: Headers) -> str | None:
        """The address of the client; None where there is none, as behind a socket of this machine."""
        if not self.is_proxy(peer):
            return peer
        found = client_of(headers, self._is_trusted)
        return peer if found is None else str(found)

    def key(self, scope: Scope, address: str | None) -> str:
        """What counts as one client. Addresses of IPv6 count by their network, since a machine has all of it."""
        proven = self._principal(scope) if self._principal is not None else None
        return network_of(address) if proven is None else f"principal {proven}"

    def is_proxy(self, peer: str | None) -> bool:
        """Whether the peer of a connection is a proxy that is trusted."""
        if peer is None:
            return self._trusts_unix
        address = _parse(peer) if self._networks else None
        return address is not None and self._is_trusted(address)

    def _is_trusted(self, address: Address) -> bool:
        return any(address in network for network in self._networks)


def network_of(address: str | None) -> str:
    """What an address counts as; "" for none."""
    return "" if address is None else _network(address)


def pseudonym(key: str) -> str:
    """What a record that all replicas share calls a client; "" for nobody."""
    return blake2b(key.encode(), digest_size=8).hexdigest() if key else ""


_parse = lru_cache(maxsize=4096)(parse_address)


@lru_cache(maxsize=4096)
def _network(address: str) -> str:
    found = parse_address(address.partition("%")[0])
    if found is None or isinstance(found, IPv4Address):
        return str(found or address)
    return str(IPv6Network((int(found), _V6_PREFIX), strict=False))
