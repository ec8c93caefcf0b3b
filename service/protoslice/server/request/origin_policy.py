"""Policy against hostile web pages: refuses foreign hosts, and changes by pages of other sites.

A page may send a form to any address that its reader's machine can reach, or show it as an image, without asking first:
so what is no plain read, by its method or by the rule of its route, is refused when the browser says, or its Origin
shows, that the page is another site's. And a page may have its own name lead to
this machine after it has been loaded (DNS rebinding), upon which the service looks like its own site: so a service
that only this machine reaches answers to addresses, `localhost` and the names it was given.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from protoslice.server.http.headers import Fields
from protoslice.server.problems import BAD_REQUEST, CROSS_SITE, MISDIRECTED, HttpProblem
from protoslice.server.request.cors import ANY
from protoslice.server.settings import Settings, is_loopback

_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN: Final = frozenset({"same-origin", "none"})
_LOCAL: Final = "localhost"
_HOST: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+)(?::[0-9]*)?")
"""Host (RFC 3986, section 3.2.2), but for kinds of addresses yet to come; an empty one names nobody."""
_CLOSE: Final = {"connection": "close"}


class OriginPolicy:
    """The names the service goes by, and the sites whose pages may change something."""

    def __init__(self, settings: Settings) -> None:
        self._origins = frozenset(settings.cors_origins)
        names = settings.allowed_hosts or (() if is_loopback(settings.host) else (ANY,))
        if settings.public_url:  # a proxy may pass on the name that it was asked for
            names = (*names, urlsplit(settings.public_url).hostname or "")
        self._names = None if ANY in names else frozenset(name.lower() for name in names)
        self.is_ours = lru_cache(maxsize=256)(self._is_ours)

    def check(self, method: str, fields: Fields, http_version: str) -> None:
        """Raise `HttpProblem` for a request with a missing or foreign Host, or a change by a foreign page."""
        # Hosts of several lines are joined by ", ", and no sound one has a space.
        host = fields.get(b"host")
        if host is None:
            if http_version != "1.0":
                raise HttpProblem(BAD_REQUEST, "The Host header is missing (RFC 9112, section 3.2)", headers=_CLOSE)
        elif not self.is_ours(host):
            raise _fault_of(host)
        if method not in _SAFE:
            self.check_origin(fields)

    def check_origin(self, fields: Fields) -> None:
        """Raise `HttpProblem` unless no browser, our own site, or an origin of the operator sent the request."""
        site, origin = fields.get(b"sec-fetch-site"), fields.get(b"origin")
        if (
            ANY in self._origins
            or origin in self._origins
            or site in _OWN
            or (site is None and (origin is None or _is_same(origin, fields)))
        ):
            return
        raise HttpProblem(CROSS_SITE, CROSS_SITE.advice)

    def _is_ours(self, host: str) -> bool:
        """True if Host has a name of ours, or an address."""
        # DNS rebinding needs a name, so addresses are safe.
        if not _HOST.fullmatch(host):
            return False
        if self._names is None:
            return True
        name = _name_in(host)
        return name in self._names or name == _LOCAL or name.endswith(f".{_LOCAL}") or _is_address(name)


def is_own_page(method: str, fields: Fields) -> bool:
    """True for a request that a page of this very host made, or a person; a change needs proof of that."""
    site, origin = fields.get(b"sec-fetch-site"), fields.get(b"origin")
    if site is not None:
        return site in _OWN
    return method in _SAFE if origin is None else _is_same(origin, fields)


def _fault_of(host: str) -> HttpProblem:
    """The problem with a Host that is none of ours."""
    if _HOST.fullmatch(host):
        return HttpProblem(MISDIRECTED, MISDIRECTED.advice)
    return HttpProblem(
        BAD_REQUEST, "Invalid Host header: use one name or address, optionally with a port", headers=_CLOSE
    )


def _is_same(origin: str, fields: Fields) -> bool:
    """True if the page is of the host in the request, or of the host that a proxy was asked for.

    A page cannot set X-Forwarded-Host without leave. Schemes are not compared: a proxy may have taken the TLS off.
    """
    asked = {fields.get(b"host"), fields.get(b"x-forwarded-host", "").partition(",")[0].strip()}
    return origin.partition("://")[2] in asked - {None, ""}


def _name_in(host: str) -> str:
    """The name or address in `host`, without port and brackets."""
    name = host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host
    return name.removeprefix("[").removesuffix("]").removesuffix(".").lower()


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
