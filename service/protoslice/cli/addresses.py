"""Which things on a service the command line means, and where services are."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from protoslice.errors import InvalidInput

__all__ = ["Address", "address_of", "is_address", "service_url"]

_STORE = re.compile(r"(?P<service>https?://[^/?#]+(?:/[^?#]*?)?)/v1/stores/(?P<ref>[^/?#]+)/?", re.IGNORECASE)
_SERVICE = re.compile(r"https?://[^?#]+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Address:
    """A store on a service."""

    service: str
    ref: str

    def __str__(self) -> str:
        return f"{self.service}/v1/stores/{quote(self.ref, safe=':@~+')}"


def is_address(name: str) -> bool:
    """Whether `name` means a store on a service, and no file."""
    return name.startswith("@") or _SERVICE.fullmatch(name) is not None


def address_of(name: str) -> Address:
    """The store that `name` means: a URL of one, or `@` and a tag or id on the service of PROTOSLICE_URL."""
    if name.startswith("@"):
        if not name[1:]:
            raise InvalidInput("@ is followed by the tag or the id of a store")
        return Address(service_url(None), name[1:])
    found = _STORE.fullmatch(name)
    if found is None:
        raise InvalidInput(f"{name} names no store: http://HOST/v1/stores/TAG does, or @TAG with PROTOSLICE_URL set")
    return Address(found["service"], unquote(found["ref"]))


def service_url(given: str | None) -> str:
    """Where the service is: as given, else as PROTOSLICE_URL says."""
    url = given or os.environ.get("PROTOSLICE_URL")
    if not url:
        raise InvalidInput("which service? Name it with --url, or set PROTOSLICE_URL to http://HOST:PORT")
    if _SERVICE.fullmatch(url) is None:
        raise InvalidInput(f"{url} is no address of a service, such as http://127.0.0.1:8000")
    return url.rstrip("/")
