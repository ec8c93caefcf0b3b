"""The addresses of services, stores and tags, in the forms that the command line and `open_model` accept."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from protoslice.credentials import saved_token
from protoslice.errors import InvalidInput, NotFound, ProtosliceError
from protoslice.uris import is_uri

_STORE = re.compile(
    r"(?P<service>https?://[^/?#]+(?:/[^?#]*?)?)/"
    r"(?:v1/stores/(?P<store>[^/?#]+)/?|m/(?P<page>[^/?#]+)(?:/[a-z]*)?(?:[?#].*)?)",
    re.IGNORECASE,
)
"""Pattern of the address of a store, or of a page for browsers that shows the store."""
_VIEW = re.compile(r"(https?://[^?#]+/v1/stores/[^/?#]+)/.", re.IGNORECASE)
"""Pattern of the address of a view, which begins with the address of its store."""
_REF = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._:@~+-]{0,127}"
    # owner/name@revision, name/of/artifact:tag
    r"|[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9._-]+)+[@:][A-Za-z0-9._:/+-]+",
    re.ASCII,
)
_BARE = re.compile(r"https?://[^/]*/?", re.IGNORECASE)
_SERVICE = re.compile(r"https?://[^?#]+", re.IGNORECASE)
_PORTS = {"http": 80, "https": 443}
_TRIED: Final = "was tried as"


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a store on a service."""

    service: str
    ref: str

    def __str__(self) -> str:
        return f"{self.service}/v1/stores/{quote(self.ref, safe=':@~+')}"

    @property
    def page(self) -> str:
        """The address of the store's page for browsers, which commands also accept as the store."""
        return f"{self.service}/m/{quote(self.ref, safe=':@~+')}"


def is_address(name: str) -> bool:
    """Return True if `name` means a store on a service; other URLs and paths mean files.

    A URL without a path counts as a store, too.
    """
    if name.startswith("@"):
        return True
    return (_STORE.fullmatch(name) or _BARE.fullmatch(name)) is not None


def address_of(name: str, service: str | None = None) -> Address:
    """Return the store that `name` means: its URL, or `@` with a tag or id.

    A name with `@` refers to the service at `service`, or at PROTOSLICE_URL if `service` is None.
    """
    if name.startswith("@"):
        if not name[1:]:
            raise InvalidInput("No store after '@': add a tag or a store id")
        return Address(service_url(service), name[1:])
    found = _STORE.fullmatch(_without_secrets(name))
    if found is None:
        raise InvalidInput(
            f"{name} does not name a store: use http://HOST/v1/stores/TAG, or @TAG with PROTOSLICE_URL set"
        )
    return Address(found["service"], unquote(found["store"] or found["page"]))


def store_of(name: str, service: str | None = None) -> Address:
    """Return the store that `name` means if it cannot mean a file; a tag or id then needs no `@`."""
    return address_of(f"@{name}" if _REF.fullmatch(name) else name, service)


def ref_on(service: str, name: str) -> str:
    """Return the tag or id of the store that `name` means; raise `InvalidInput` if it is not on `service`."""
    address = store_of(name, service)
    same = same_origin(address.service, service) and urlsplit(address.service).path == urlsplit(service).path
    if not same:
        raise InvalidInput(f"{name} is not on {service}: use a store of this service")
    return address.ref


@contextmanager
def saying_what_was_tried(name: str) -> Iterator[None]:
    """Add to an error about a file how `name` was interpreted, and how a store can be named instead."""
    try:
        yield
    except ProtosliceError as error:
        is_web, view = _SERVICE.fullmatch(name) is not None, _VIEW.match(name)
        is_missing = isinstance(error, NotFound) and not os.path.lexists(name)
        if (view or (is_missing and (is_web or not is_uri(name)))) and _TRIED not in error.message:
            kind = "the URL of a file" if is_web or view else "a local path"
            known = os.environ.get("PROTOSLICE_URL") and _REF.fullmatch(name)
            store = view[1] if view else f"@{name}" if known else "@TAG or http://HOST/v1/stores/TAG"
            error.message += f" ({name} {_TRIED} {kind}; for a store of a service, use {store})"
        raise


def service_url(given: str | None) -> str:
    """Return the URL of the service: `given`, or PROTOSLICE_URL if `given` is None."""
    url = given or os.environ.get("PROTOSLICE_URL")
    if not url:
        raise InvalidInput("No service given: set PROTOSLICE_URL to http://HOST:PORT, or pass --url")
    if _SERVICE.fullmatch(url) is None:
        raise InvalidInput(f"Invalid service address {url}: use http://HOST:PORT")
    return _without_secrets(url).rstrip("/")


def is_trusted(service: str) -> bool:
    """Return True if the environment's credentials may be sent to `service`.

    This is the case if PROTOSLICE_URL is not set, or if it has the same origin as `service`.
    """
    known = os.environ.get("PROTOSLICE_URL")
    return not known or same_origin(known, service)


def same_origin(one: str, other: str) -> bool:
    """Return True if two URLs have the same scheme, host and port; raise `InvalidInput` for an invalid port."""
    return _origin(one) == _origin(other)


def origin_of(service: str) -> str:
    """Return the scheme, host and port of a URL as one text, which always includes the port."""
    scheme, host, port = _origin(service)
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _origin(url: str) -> tuple[str, str, int]:
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        raise InvalidInput(f"Invalid service address {url[:200]}: use http://HOST:PORT") from None


def authorization(service: str) -> dict[str, str]:
    """Return the authorization header for requests to `service`, or nothing if no credentials are known.

    PROTOSLICE_AUTHORIZATION contains the whole value, PROTOSLICE_TOKEN a token, and PROTOSLICE_TOKEN_FILE the path of
    a file with a token. If PROTOSLICE_URL is set, these credentials are sent only to that service. Without such
    credentials, the token that `login` saved for the origin of `service` is used.
    """
    # The address may come from anyone, and must not make the client send the token to an untrusted service.
    value = _of_environment() if is_trusted(service) else ""
    if not value and (token := _saved(origin_of(service))):
        value = f"Bearer {token}"
    return header_of(value)


def _saved(origin: str) -> str | None:
    """Return the saved token of `origin`, which is renewed if it expires soon, or None if no token is saved."""
    saved = saved_token(origin)
    if saved is None or saved.grant is None:
        return None if saved is None else saved.token
    from protoslice.sign_in import ends_soon, refresh  # imports httpx, which only renewals need

    return refresh(origin) if ends_soon(saved) else saved.token


def _of_environment() -> str:
    # There is no command-line option for tokens: every user of the machine could read it in the list of processes.
    value = os.environ.get("PROTOSLICE_AUTHORIZATION", "")
    if not value and (token := _token()):
        value = f"Bearer {token}"
    return value


def header_of(value: str) -> dict[str, str]:
    """Return the header Authorization with this value, or no header for an empty value.

    Raise `InvalidInput` if the value is not a single line of printable ASCII characters.
    """
    if not value:
        return {}
    if not (value.isascii() and value.isprintable()):
        raise InvalidInput(
            "Invalid token or PROTOSLICE_AUTHORIZATION: use one line of printable characters, such as 'Bearer abc'"
        )
    return {"authorization": value}


def _token() -> str:
    """Return the token in PROTOSLICE_TOKEN, or in the file that PROTOSLICE_TOKEN_FILE names, or an empty text."""
    token, file = os.environ.get("PROTOSLICE_TOKEN", ""), os.environ.get("PROTOSLICE_TOKEN_FILE", "")
    if token or not file:
        return token.strip()
    try:
        return Path(file).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        raise InvalidInput("Cannot read a token from the file in PROTOSLICE_TOKEN_FILE") from None


def _without_secrets(url: str) -> str:
    """Return `url`; raise `InvalidInput` if it contains credentials."""
    if "@" in url.split("://", 1)[-1].split("/", 1)[0]:
        raise InvalidInput(
            "Don't put credentials in a URL, where others can see them: set PROTOSLICE_AUTHORIZATION instead"
        )
    return url
