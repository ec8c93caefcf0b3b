"""Redirects of web sources: the URL that a server names, and the requests that may go there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urljoin, urlsplit

from protoslice.errors import ProtosliceError, StorageDenied
from protoslice.storage.prefixes import allowed
from protoslice.uris import Location, parse_location, web_authority

MOST_HOPS: Final = 5
"""Redirects that one request follows."""
_STATUSES: Final = frozenset({301, 302, 303, 307, 308})
_LONGEST: Final = 8192
_PRINTABLE: Final = re.compile(r"[\x21-\x7e]+")


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
    """The URL to ask next when `url` answered with `status` and `location`; None when that is no redirect.

    `StorageDenied` for a location that is no web URL, holds credentials, or leads from https to http.
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
    """True when `url` lies under one of `prefixes`, so that listed networks may be visited for it."""
    try:
        uri = f"{url.scheme}://{url.authority}{url.target.partition('?')[0]}"
        parse_location(uri)
        allowed(uri, prefixes)
    except ProtosliceError:
        return False
    return True
