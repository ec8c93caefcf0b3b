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
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

from protoslice.errors import InvalidInput, StorageDenied, StorageUnavailable

Address: TypeAlias = IPv4Address | IPv6Address

# IPv6 networks whose addresses embed an IPv4 address, their last 32 bits, to which a gateway may deliver.
_CARRIERS: Final = tuple(IPv6Network(text) for text in ("::ffff:0:0/96", "64:ff9b::/96"))
# All IPv6 addresses assigned for public use so far.
_PUBLIC: Final = IPv6Network("2000::/3")


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
        """True when `address` is public or lies in a listed network."""
        return not is_private(address) or any(address in network for network in self._networks)


def is_private(address: Address) -> bool:
    """True unless `address`, and each address embedded in it, is publicly routable unicast."""
    if isinstance(address, IPv4Address):
        return not address.is_global or address.is_multicast or address.is_reserved
    if any(address in network for network in _CARRIERS):
        return is_private(IPv4Address(int(address) & 0xFFFFFFFF))
    if address not in _PUBLIC or not address.is_global:
        return True
    carried = [*(address.teredo or ()), *([address.sixtofour] if address.sixtofour else [])]
    return any(is_private(inner) for inner in carried)


async def resolve(host: str, port: int, networks: Networks) -> Sequence[str]:
    """Addresses of a host; `StorageDenied` when one of them may not be visited.

    `StorageUnavailable` when the name cannot be resolved.
    """
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise StorageUnavailable(f"cannot resolve host {host!r}") from None
    addresses = [ip_address(entry[4][0]) for entry in found]
    if not all(networks.permit(address) for address in addresses):
        raise StorageDenied(f"host {host!r} has a private address; the operator can allow its network")
    return [str(address) for address in addresses]
