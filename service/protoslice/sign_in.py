"""Functions that get tokens from an OpenID Connect issuer.

A person signs in with a browser (the device flow of RFC 8628). Afterwards, a refresh token renews the token.
"""

from __future__ import annotations

import asyncio
import json
import math
import ssl
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from protoslice.credentials import (
    LONGEST,
    CredentialsWarning,
    RefreshGrant,
    SavedToken,
    edit_tokens,
    end_of,
    is_plain,
)
from protoslice.errors import ProtosliceError, StorageDenied, StorageUnavailable, Unsupported
from protoslice.facts import SignInTerms

_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
_LONGEST_WAIT: Final = 1800.0
"""Seconds after which a sign-in ends, even if the issuer's code is valid longer."""
_INTERVAL: Final = 5.0
"""Default number of seconds between two requests for a token. Each error `slow_down` adds 5 seconds."""
_LONGEST_CODE: Final = 64
_AHEAD: Final = timedelta(seconds=60)
"""Remaining lifetime of a token at which the token is renewed."""
_LARGEST: Final = 256 << 10
_SECONDS: Final = 20.0
_SILENCE: Final = 10.0
_LONGEST_URL: Final = 2048
_HEADERS: Final = {"accept": "application/json", "accept-encoding": "identity"}
_FAILURES: Final = (httpx.HTTPError, httpx.InvalidURL, OSError, TimeoutError)


@dataclass(frozen=True, slots=True)
class DevicePrompt:
    """The URL that a person has to visit, and the code to enter there."""

    place: str
    code: str
    whole: str | None
    """A URL that already contains the code, or None if the issuer provides no such URL."""


class Clock:
    """A clock, which tests can replace."""

    def now(self) -> float:
        """Return the time of a monotonic clock in seconds."""
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """Sleep for `seconds`."""
        time.sleep(seconds)


def sign_in(
    terms: SignInTerms, show: Callable[[DevicePrompt], None], clock: Clock | None = None, *, resource: str | None = None
) -> SavedToken:
    """Wait until a person has signed in at the issuer, and return the token.

    `show` is called with the URL and the code for the person. `resource` is the service for which the token is
    requested (RFC 8707); an issuer may ignore it. Raise `StorageDenied` if the person refuses or takes too long.
    """
    clock, issuer = clock or Clock(), Issuer(terms.issuer)
    asked, tokens = issuer.endpoint("device_authorization_endpoint"), issuer.endpoint("token_endpoint")
    if asked is None or tokens is None:
        raise Unsupported(f"{terms.issuer} does not support sign-in from the command line: pass a token with --token")
    form = {"client_id": terms.client_id, "scope": " ".join(terms.scopes)}
    target = {} if resource is None else {"resource": resource}
    status, said = _exchange(asked, form | target)
    if target and said.get("error") in {"invalid_target", "invalid_request"}:
        target = {}
        status, said = _exchange(asked, form)
    if status != 200:
        raise StorageDenied(f"{terms.issuer} did not start a sign-in: {_error(status, said)}")
    code = _text(said, "device_code")
    whole = said.get("verification_uri_complete")
    place = checked_url(said.get("verification_uri", said.get("verification_url")))
    show(DevicePrompt(place, _text(said, "user_code", _LONGEST_CODE), None if whole is None else checked_url(whole)))
    end = clock.now() + min(_LONGEST_WAIT, _seconds(said, "expires_in", _LONGEST_WAIT))
    form = {"grant_type": _GRANT, "device_code": code, "client_id": terms.client_id} | target
    given = _await(tokens, form, _seconds(said, "interval", _INTERVAL), end, clock)
    grant = None
    if given.get("refresh_token") is not None:
        grant = RefreshGrant(terms.issuer, terms.client_id, _text(given, "refresh_token"))
    return SavedToken(_id_token_in(given), grant)


def _await(url: str, form: Mapping[str, str], interval: float, end: float, clock: Clock) -> Mapping[str, Any]:
    """Poll the issuer until the person has signed in, and return the issuer's response."""
    interval = max(1.0, interval)
    while clock.now() + interval < end:
        clock.wait(interval)
        try:
            status, said = _exchange(url, form)
        except StorageUnavailable:
            interval *= 2  # RFC 8628 requires that clients slow down after timeouts
            continue
        if status == 200:
            return said
        match said.get("error"):
            case "authorization_pending":
                pass
            case "slow_down":
                interval += _INTERVAL
            case "access_denied":
                raise StorageDenied("Sign-in was refused by the identity provider")
            case "expired_token":
                break
            case _:
                raise StorageDenied(f"The identity provider did not issue a token: {_error(status, said)}")
    raise StorageDenied("The sign-in code expired: run protoslice login again")


def ends_soon(saved: SavedToken) -> bool:
    """Return True if a token can be renewed, and expires within a minute or has expired."""
    end = end_of(saved.token)
    return saved.grant is not None and end is not None and end - _AHEAD <= datetime.now(UTC)


def refresh(origin: str) -> str | None:
    """Renew the saved token of `origin`, and return the new token.

    Return the old token if it does not expire soon, or, with a warning, if the issuer returns no new token. Return None
    if no token is saved.
    """
    # The file is locked until the new token is saved: an issuer accepts a refresh token only once, so a second process
    # must not use it too.
    with edit_tokens() as tokens:
        saved = tokens.get(origin)
        if saved is None or saved.grant is None or not ends_soon(saved):
            return None if saved is None else saved.token  # another process may have renewed or deleted the token
        try:
            tokens[origin] = _refreshed(saved.grant)
        except ProtosliceError as error:
            warnings.warn(f"Could not renew the token for {origin}: {error.message}", CredentialsWarning, stacklevel=2)
        return tokens[origin].token


def _refreshed(grant: RefreshGrant) -> SavedToken:
    issuer = Issuer(grant.issuer)
    place = issuer.endpoint("token_endpoint")
    if place is None:
        raise StorageDenied("the issuer no longer has a token_endpoint")
    form = {"grant_type": "refresh_token", "refresh_token": grant.token, "client_id": grant.client_id}
    status, said = _exchange(place, form)
    if status != 200:
        raise StorageDenied("the issuer no longer accepts the refresh token")
    again = said.get("refresh_token", grant.token)
    return SavedToken(_id_token_in(said), grant.with_token(again))


def _id_token_in(said: Mapping[str, Any]) -> str:
    """Return the id token in a response of an issuer; raise `StorageDenied` if it has no valid id token."""
    token = _text(said, "id_token")
    if token.count(".") != 2:
        raise StorageDenied("The identity provider returned an id token that is not a JWT")
    return token


def _text(said: Mapping[str, Any], name: str, longest: int = LONGEST) -> str:
    value = said.get(name)
    if not is_plain(value, longest):
        raise StorageDenied(f"The identity provider returned no valid {name}")
    return value


def _seconds(said: Mapping[str, Any], name: str, default: float) -> float:
    value = said.get(name, default)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) and value >= 0 else default


def _error(status: int, said: Mapping[str, Any]) -> str:
    """Return the error in an issuer's response as printable text of at most 200 characters."""
    found = " ".join(str(said[name]) for name in ("error", "error_description") if isinstance(said.get(name), str))
    plain = "".join(letter for letter in found if letter.isprintable())
    return plain[:200] if plain else f"status {status}"


class Issuer:
    """An issuer and its OpenID configuration, which is requested when the object is created."""

    def __init__(self, url: str) -> None:
        self.url = checked_url(url)
        status, said = _exchange(f"{self.url.rstrip('/')}/.well-known/openid-configuration")
        if status != 200 or said.get("issuer") != url:
            raise StorageDenied(f"{url} has no valid OpenID configuration: check the issuer's URL")
        self._said = said

    def endpoint(self, name: str) -> str | None:
        """Return a URL of the configuration by name, or None if the configuration lacks the URL.

        Raise `StorageDenied` if the URL uses http although the issuer uses https.
        """
        place = self._said.get(name)
        if place is None:
            return None
        checked = checked_url(place)
        if checked.startswith("http:") and self.url.startswith("https:"):
            raise StorageDenied(f"The issuer {self.url} lists an address without TLS as its {name}")
        return checked


def _exchange(url: str, form: Mapping[str, str] | None = None) -> tuple[int, Mapping[str, Any]]:
    """Send `form` with POST, or send a GET request without a form, and return the response's status and JSON object.

    The object is empty if the response is not a JSON object. Raise `StorageUnavailable` if there is no response.
    """
    try:
        return asyncio.run(_answer(checked_url(url), form))
    except _FAILURES as error:
        raise StorageUnavailable(f"{urlsplit(url).netloc} does not respond ({type(error).__name__})") from None


def checked_url(url: object) -> str:
    """Return `url` if it uses https, or http on this machine; otherwise raise `StorageDenied`."""
    if isinstance(url, str) and len(url) <= _LONGEST_URL and url.isascii() and url.isprintable() and " " not in url:
        try:
            parts = urlsplit(url)
            host, secure = parts.hostname, parts.scheme == "https" or _is_loopback(parts.hostname or "")
            if parts.scheme in {"http", "https"} and host and secure and "@" not in parts.netloc and "\\" not in url:
                return url
        except ValueError:
            pass
    raise StorageDenied("The issuer must use https (http is only allowed on this machine)")


async def _answer(url: str, form: Mapping[str, str] | None) -> tuple[int, Mapping[str, Any]]:
    body = bytearray()
    # The timeout covers the whole exchange, because an issuer could send single bytes for a long time.
    async with (
        asyncio.timeout(_SECONDS),
        httpx.AsyncClient(verify=_tls(), timeout=_SILENCE, headers=_HEADERS) as http,
        http.stream("GET" if form is None else "POST", url, data=form) as answer,
    ):
        async for piece in answer.aiter_raw():
            body += piece
            if len(body) > _LARGEST:
                raise StorageDenied(f"The response of {urlsplit(url).netloc} is larger than {_LARGEST} bytes")
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        said = None
    return answer.status_code, said if isinstance(said, dict) else {}


@cache
def _tls() -> ssl.SSLContext:
    """Return a TLS context with the trusted certificates of this machine, which are read only once."""
    return ssl.create_default_context()


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
