"""Address of a client as proxies forward it: `Forwarded` (RFC 7239), `X-Forwarded-For`, right to left.

Each proxy appends the address of its peer, so only entries of trusted proxies are believed. Entries further left were
written by the client itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import islice
from typing import Final, TypeAlias

from protoslice.server.http.headers import Headers

Address: TypeAlias = IPv4Address | IPv6Address
Trusts: TypeAlias = Callable[[Address], bool]

_HOPS: Final = 32
_FOR: Final = re.compile(r'(?:^|;)[ \t]*for=(?:"([^",;\\]*)"|([^",;\\ \t]*))[ \t]*(?:;|$)', re.IGNORECASE)
_PROTO: Final = re.compile(r'(?:^|;)[ \t]*proto="?(https?)"?[ \t]*(?:;|$)', re.IGNORECASE)
_NODE: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+))(?::[0-9]{1,5})?|([0-9A-Fa-f:.]+)")


def client_of(headers: Headers, trusts: Trusts) -> Address | None:
    """The nearest address that is no trusted proxy's, else the furthest; None if no header is credible.

    A proxy that writes one of the two headers passes on what a client wrote into the other: where they differ, neither
    is believed.
    """
    said = set()
    for name, nodes_in in ((b"forwarded", _in_forwarded), (b"x-forwarded-for", _from_the_right)):
        lines = [value.decode("latin-1") for given, value in headers if given == name]
        if lines:
            said.add(_nearest(nodes_in(",".join(lines)), trusts))
    return said.pop() if len(said) == 1 else None


def scheme_of(headers: Headers) -> str | None:
    """Scheme by which the nearest proxy was asked, `http` or `https`; None unless it says one."""
    said = set()
    for name, value in headers:
        if name == b"x-forwarded-proto":
            said.add(next(_from_the_right(value.decode("latin-1"))).strip().lower())
        elif name == b"forwarded":
            match = _PROTO.search(next(_from_the_right(value.decode("latin-1"))))
            said.update([match[1].lower()] if match else [])
    return said.pop() if len(said) == 1 and said <= {"http", "https"} else None


def parse_address(text: str) -> Address | None:
    """Address in `text`, with or without a port, IPv4 if mapped into IPv6; None for any other text."""
    match = _NODE.fullmatch(text.strip(" \t"))
    try:
        found = ip_address(match[1] or match[2] or match[3]) if match else None
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found


def _nearest(nodes: Iterable[str], trusts: Trusts) -> Address | None:
    """The first address that is not trusted; at what is no address, the trusted one before it."""
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
    """Values of `for`, right to left; quotes that a client left open do not reach into later elements."""
    for element in _from_the_right(text):
        match = _FOR.search(element)
        yield (match[1] or match[2] or "") if match else ""
