"""Which requests of web pages are refused: changes that another site asks for, and names that are not ours.

A page may send a form to any address that its reader's machine can reach, without asking first: so what changes
anything is refused when the browser says, or its Origin shows, that the page is another site's. And a page may have its
own name lead to this machine after it has been loaded (DNS rebinding), upon which everything here is of its own site:
so a service that only this machine reaches goes by addresses, `localhost` and the names it was given.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address
from typing import Final

from starlette.types import Scope

from protoslice.server.cors import ANY
from protoslice.server.fields import Fields, Headers, read_fields
from protoslice.server.problems import CROSS_SITE, MISDIRECTED, HttpProblem
from protoslice.server.settings import Settings

__all__ = ["Sites"]

_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN: Final = frozenset({"same-origin", "none"})
_LOCAL: Final = "localhost"


class Sites:
    """The names the service goes by, and the sites whose pages may change something."""

    def __init__(self, settings: Settings) -> None:
        self._origins = frozenset(settings.cors_origins)
        names = settings.allowed_hosts or (() if _is_loopback(settings.host) else (ANY,))
        self._names = None if ANY in names else frozenset(name.lower() for name in names)
        self.is_ours = lru_cache(maxsize=256)(self._is_ours)

    def check(self, scope: Scope) -> None:
        """Raise the problem with a request that a page should not have been able to make."""
        headers: Headers = scope["headers"]
        for name, value in headers:
            if name == b"host" and not self.is_ours(value):
                raise HttpProblem(MISDIRECTED, MISDIRECTED.advice)
        if scope["method"] not in _SAFE and ANY not in self._origins:
            self._check_origin(read_fields(scope))

    def _check_origin(self, fields: Fields) -> None:
        """Let pass what no browser sent, what the browser says is of our own site, and whom the operator trusts."""
        site, origin = fields.get(b"sec-fetch-site"), fields.get(b"origin")
        if origin in self._origins or site in _OWN or (site is None and (origin is None or _is_same(origin, fields))):
            return
        raise HttpProblem(CROSS_SITE, CROSS_SITE.advice)

    def _is_ours(self, host: bytes) -> bool:
        """Whether a Host header has a name of ours. An address is: no name was made to lead to it."""
        if self._names is None:
            return True
        name = _name_in(host.decode("latin-1"))
        return name in self._names or name == _LOCAL or name.endswith(f".{_LOCAL}") or _is_address(name)


def _is_same(origin: str, fields: Fields) -> bool:
    """Whether the page is of the host that was asked; of the one that a proxy was asked, where it says so.

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


def _is_loopback(host: str) -> bool:
    return host == _LOCAL or (_is_address(host) and ip_address(host).is_loopback)
