"""Tokens of an OpenID Connect issuer, by a person's sign-in (device flow, RFC 8628), or by a refresh token."""

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
"""Seconds until a code expires, whatever its issuer says."""
_INTERVAL: Final = 5.0
"""Seconds between two requests for a token, and by which `slow_down` prolongs them."""
_LONGEST_CODE: Final = 64
_AHEAD: Final = timedelta(seconds=60)
"""Time before its end at which a token is renewed."""
_LARGEST: Final = 256 << 10
_SECONDS: Final = 20.0
_SILENCE: Final = 10.0
_LONGEST_URL: Final = 2048
_HEADERS: Final = {"accept": "application/json", "accept-encoding": "identity"}
_FAILURES: Final = (httpx.HTTPError, httpx.InvalidURL, OSError, TimeoutError)


@dataclass(frozen=True, slots=True)
class DevicePrompt:
    """URL that a person visits, and the code that it asks for."""

    place: str
    code: str
    whole: str | None
    """URL that contains the code; None if the issuer has none."""


class Clock:
    """A clock that tests replace."""

    def now(self) -> float:
        """Return the seconds of a monotonic clock."""
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """Sleep for `seconds`."""
        time.sleep(seconds)


def sign_in(
    terms: SignInTerms, show: Callable[[DevicePrompt], None], clock: Clock | None = None, *, resource: str | None = None
) -> SavedToken:
    """Wait until a person has signed in at the issuer; `show` is called with the place to do that.

    `resource` is the service that the token is for (RFC 8707); issuers may ignore it. Raise `StorageDenied` if the
    person refuses or takes too long.
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
    """Return the issuer's response once the person has signed in."""
    interval = max(1.0, interval)
    while clock.now() + interval < end:
        clock.wait(interval)
        try:
            status, said = _exchange(url, form)
        except StorageUnavailable:
            interval *= 2  # as the RFC wants it of clients whose requests time out
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
    """Return True for a token that can be renewed and that expires soon or has expired."""
    end = end_of(saved.token)
    return saved.grant is not None and end is not None and end - _AHEAD <= datetime.now(UTC)


def refresh(origin: str) -> str | None:
    """Renew the saved token of `origin`; return the new one, or the old one if the issuer returns none."""
    # Locked until the new one is saved: issuers take a refresh token once, and a second process would lose.
    with edit_tokens() as tokens:
        saved = tokens.get(origin)
        if saved is None or saved.grant is None or not ends_soon(saved):
            return None if saved is None else saved.token  # another process was first
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
    """Return the id token in a response of an issuer; raise `StorageDenied` without one."""
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
    """Return the error of an issuer as printable text."""
    found = " ".join(str(said[name]) for name in ("error", "error_description") if isinstance(said.get(name), str))
    plain = "".join(letter for letter in found if letter.isprintable())
    return plain[:200] if plain else f"status {status}"


class Issuer:
    """An issuer, and the URLs of its configuration."""

    def __init__(self, url: str) -> None:
        self.url = checked_url(url)
        status, said = _exchange(f"{self.url.rstrip('/')}/.well-known/openid-configuration")
        if status != 200 or said.get("issuer") != url:
            raise StorageDenied(f"{url} has no valid OpenID configuration: check the issuer's URL")
        self._said = said

    def endpoint(self, name: str) -> str | None:
        """Return a URL by its name, or None; raise `StorageDenied` if it is less safe than the issuer's."""
        place = self._said.get(name)
        if place is None:
            return None
        checked = checked_url(place)
        if checked.startswith("http:") and self.url.startswith("https:"):
            raise StorageDenied(f"The issuer {self.url} lists an address without TLS as its {name}")
        return checked


def _exchange(url: str, form: Mapping[str, str] | None = None) -> tuple[int, Mapping[str, Any]]:
    """Send a form, or a GET; return the status and the JSON object, empty if the response is none.

    Raise `StorageUnavailable` without a response.
    """
    try:
        return asyncio.run(_answer(checked_url(url), form))
    except _FAILURES as error:
        raise StorageUnavailable(f"{urlsplit(url).netloc} does not respond ({type(error).__name__})") from None


def checked_url(url: object) -> str:
    """Return `url` if it uses https or is on this machine; raise `StorageDenied` otherwise."""
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
    # A timeout of the whole exchange: an issuer may also send a byte now and then.
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
    """Return the certificates of this machine, read once."""
    return ssl.create_default_context()


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
