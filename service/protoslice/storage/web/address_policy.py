"""Which addresses this service may be talked into visiting.

A client that names a source makes the service open it, from inside the operator's network. So:

- A source must lie under a prefix on the operator's list, compared by parsed scheme, authority and whole path segments.
- A host name is resolved once for each connection, every address it gives is judged, and the connection goes to an
  address that was judged: a name that resolves to something else a moment later (rebinding) gains nothing.
- Addresses that are not publicly routable are refused, in whatever notation and inside whatever IPv6 wrapping they
  come, unless they lie in a network on the operator's list.

Not covered: what a public server that is allowed chooses to answer, and services that trust the operator's public
addresses.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

from protoslice.errors import InvalidInput, StorageDenied, StorageUnavailable

Address: TypeAlias = IPv4Address | IPv6Address

# IPv6 networks whose addresses carry an IPv4 address to which a gateway may deliver: its last 32 bits.
_CARRIERS: Final = tuple(IPv6Network(text) for text in ("::ffff:0:0/96", "64:ff9b::/96"))
# All IPv6 addresses that are given out for public use so far.
_PUBLIC: Final = IPv6Network("2000::/3")


class Networks:
    """The networks that may be visited although they are not public: `10.1.0.0/16`, `fd00::/8`, or one address."""

    def __init__(self, *texts: str) -> None:
        try:
            self._networks = [ip_network(text) for text in texts]
        except ValueError:
            raise InvalidInput(f"not all of these are networks: {', '.join(texts)}") from None

    def permit(self, address: Address) -> bool:
        """Whether this address may be visited: it is public, or listed as it stands."""
        return not is_private(address) or any(address in network for network in self._networks)


def is_private(address: Address) -> bool:
    """Whether an address, or one it carries inside, is anything but publicly routable unicast."""
    if isinstance(address, IPv4Address):
        return not address.is_global or address.is_multicast or address.is_reserved
    if any(address in network for network in _CARRIERS):
        return is_private(IPv4Address(int(address) & 0xFFFFFFFF))
    if address not in _PUBLIC or not address.is_global:
        return True
    carried = [*(address.teredo or ()), *([address.sixtofour] if address.sixtofour else [])]
    return any(is_private(inner) for inner in carried)


async def resolve(host: str, port: int, networks: Networks) -> Sequence[str]:
    """The addresses of a host, all of which may be visited; `StorageDenied` when one may not."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise StorageUnavailable(f"host {host!r} is not known") from None
    addresses = [ip_address(entry[4][0]) for entry in found]
    if not all(networks.permit(address) for address in addresses):
        raise StorageDenied(f"host {host!r} has an address that is not public; the operator may list its network")
    return [str(address) for address in addresses]
