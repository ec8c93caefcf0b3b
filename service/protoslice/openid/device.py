"""Device flow (RFC 8628): a person signs in with any browser, while the command line waits."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from protoslice.credentials import LONGEST, Renewal, is_plain
from protoslice.errors import StorageDenied, StorageUnavailable, Unsupported
from protoslice.facts import SignInTerms
from protoslice.openid.issuers import IssuerEndpoints, checked_url, exchange

_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
_LONGEST_WAIT: Final = 1800.0
"""Seconds until a code ends, whatever its issuer says."""
_SECONDS: Final = 5.0
_LONGEST_CODE: Final = 64


@dataclass(frozen=True, slots=True)
class Prompt:
    """Place that a person visits, and the code that it asks for."""

    place: str
    code: str
    whole: str | None
    """Place with the code in it; None where the issuer tells none."""


@dataclass(frozen=True, slots=True)
class Given:
    """The id token of an issuer, and the way to another one; None where the issuer gives no refresh token."""

    token: str
    renewal: Renewal | None


class Clock:
    """Time, and waiting for it."""

    def now(self) -> float:
        """Seconds of a clock that never goes back."""
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """Sleep for `seconds`, or have them passed."""
        time.sleep(seconds)


def sign_in(
    terms: SignInTerms, show: Callable[[Prompt], None], clock: Clock | None = None, *, resource: str | None = None
) -> Given:
    """Have a person sign in at the issuer; `show` tells where. `StorageDenied` for a refusal, or too late.

    `resource` is the service that the token is for (RFC 8707), which issuers that do not know it may ignore or refuse.
    """
    clock, issuer = clock or Clock(), IssuerEndpoints(terms.issuer)
    asked, tokens = issuer.endpoint("device_authorization_endpoint"), issuer.endpoint("token_endpoint")
    if asked is None or tokens is None:
        raise Unsupported(f"{terms.issuer} does not support sign-in from the command line: pass a token with --token")
    form = {"client_id": terms.client_id, "scope": " ".join(terms.scopes)}
    target = {} if resource is None else {"resource": resource}
    status, said = exchange(asked, form | target)
    if target and said.get("error") in {"invalid_target", "invalid_request"}:
        target = {}
        status, said = exchange(asked, form)
    if status != 200:
        raise StorageDenied(f"{terms.issuer} did not start a sign-in: {_error(status, said)}")
    code = _text(said, "device_code")
    whole = said.get("verification_uri_complete")
    place = checked_url(said.get("verification_uri", said.get("verification_url")))
    show(Prompt(place, _text(said, "user_code", _LONGEST_CODE), None if whole is None else checked_url(whole)))
    end = clock.now() + min(_LONGEST_WAIT, _seconds(said, "expires_in", _LONGEST_WAIT))
    form = {"grant_type": _GRANT, "device_code": code, "client_id": terms.client_id} | target
    return _given(terms, _await(tokens, form, _seconds(said, "interval", _SECONDS), end, clock))


def _await(url: str, form: Mapping[str, str], interval: float, end: float, clock: Clock) -> Mapping[str, Any]:
    """The answer of the issuer once the person has signed in."""
    interval = max(1.0, interval)
    while clock.now() + interval < end:
        clock.wait(interval)
        try:
            status, said = exchange(url, form)
        except StorageUnavailable:
            interval *= 2  # as the RFC wants it of clients whose requests time out
            continue
        if status == 200:
            return said
        match said.get("error"):
            case "authorization_pending":
                pass
            case "slow_down":
                interval += _SECONDS
            case "access_denied":
                raise StorageDenied("Sign-in was refused by the identity provider")
            case "expired_token":
                break
            case _:
                raise StorageDenied(f"The identity provider did not issue a token: {_error(status, said)}")
    raise StorageDenied("The sign-in code expired: run protoslice login again")


def _given(terms: SignInTerms, said: Mapping[str, Any]) -> Given:
    refresh = said.get("refresh_token")
    renewal = None if refresh is None else Renewal(terms.issuer, terms.client_id, _text(said, "refresh_token"))
    return Given(id_token_in(said), renewal)


def id_token_in(said: Mapping[str, Any]) -> str:
    """The id token in the answer of an issuer; `StorageDenied` without one."""
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
    """Error of an issuer for people, without anything that a terminal obeys."""
    told = " ".join(str(said[name]) for name in ("error", "error_description") if isinstance(said.get(name), str))
    plain = "".join(letter for letter in told if letter.isprintable())
    return plain[:200] if plain else f"status {status}"
