"""Verification of JWTs: checks signature, times and audience, and finds the caller that a JWT names."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, NamedTuple

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.util import urlsafe_b64decode

from protoslice.concurrency.chores import background
from protoslice.errors import StorageDenied
from protoslice.server.auth.oidc.issuers import Claims, Issuer, texts_at
from protoslice.server.auth.oidc.keys import IssuerKeys, parse_object
from protoslice.server.auth.oidc.sign_in import SealedIdentity, SignIn
from protoslice.server.auth.permissions import Grant, Principal

LONGEST: Final = 16 << 10
"""The length limit of a JWT, in characters. A longer JWT is invalid."""
SKEW_SECONDS: Final = 30
"""The seconds by which a JWT's start may lie in the future, because clocks differ. The end has no tolerance."""
_LONGEST_NAME: Final = 128


class NotValid(Exception):
    """Raised for an invalid JWT. The message explains the reason to its owner."""


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """A JWT that is valid until `expires`, in seconds since the epoch."""

    issuer: Issuer
    key_id: str | None
    claims: Claims
    principal: Principal
    expires: float

    def identity(self) -> SealedIdentity:
        """Return an identity that later requests can present instead of the JWT, while the JWT would be accepted."""
        rules = tuple(rule.id for rule in self.issuer.matching(self.claims))
        caller = self.principal
        return SealedIdentity(self.issuer.id, self.key_id, caller.id, caller.name, rules, self.expires)


class _Trusted(NamedTuple):
    """An issuer, its keys, and the grants of its rules, keyed by the rule's fingerprint."""

    issuer: Issuer
    keys: IssuerKeys
    grants: Mapping[str, Grant]


class Verifier:
    """A verifier of JWTs that trusted issuers signed."""

    def __init__(self, issuers: Sequence[Issuer]) -> None:
        trusted = [_Trusted(each, IssuerKeys(each), {rule.id: rule.grant for rule in each.rules}) for each in issuers]
        self._issuers = {each.issuer.url: each for each in trusted}
        self._by_id = {each.issuer.id: each for each in trusted}
        login = next((each for each in trusted if each.issuer.login_client), None)
        self.sign_in = None if login is None else SignIn(login.issuer, login.keys.client)
        """The sign-in of people; None if no issuer has a `login_client`."""
        self._at_end = AsyncExitStack()

    async def start(self) -> None:
        """Start to refresh the keys of all issuers in the background."""
        for each in self._issuers.values():
            await self._at_end.enter_async_context(
                background({"the refresh of OpenID Connect keys": each.keys.keep_fresh})
            )

    async def close(self) -> None:
        """Stop fetching keys, and close the connections."""
        await self._at_end.aclose()
        for each in self._issuers.values():
            await each.keys.close()

    async def find(self, text: str) -> VerifiedToken | None:
        """Return the verified JWT in a text. Return None for any other text, and for a JWT that is not valid now."""
        try:
            return await self.verify(text)
        except NotValid:
            return None

    async def verify(self, text: str) -> VerifiedToken:
        """Return the verified JWT in a text. Raise `NotValid` with the reason if the JWT is not valid now."""
        header, claims = parts_of(text)
        known = self._issuers.get(str(claims.get("iss")))
        if known is None:
            raise NotValid("this service does not trust its issuer")
        issuer, keys = known.issuer, known.keys
        if "crit" in header:  # an empty list is invalid too (RFC 7515, section 4.1.11)
            raise NotValid("the header has critical extensions (`crit`), which are not supported")
        algorithm, id = header.get("alg"), header.get("kid")
        if algorithm not in issuer.algorithms:
            raise NotValid(f"the algorithm is not one of {', '.join(issuer.algorithms)}")
        if id is not None and not isinstance(id, str):
            raise NotValid("the key id (`kid`) in the header is not a string")
        key = await keys.find(id)
        if key is None:
            raise NotValid("the issuer has no key with the key id of the JWT, or cannot be reached")
        try:
            verified = jwt.decode(text, key, algorithms=list(issuer.algorithms)).claims
        except (JoseError, ValueError, TypeError, RecursionError):
            raise NotValid("the signature is invalid") from None
        return VerifiedToken(issuer, id, verified, _principal(issuer, verified), _end_of(issuer, verified))

    async def restore(self, identity: SealedIdentity) -> Principal | None:
        """Return the caller of an identity, with the grants of those rules that still exist.

        Return None if the JWT would no longer be accepted, because it has ended, or because its issuer or key is no
        longer known.
        """
        known = self._by_id.get(identity.issuer)
        if known is None or identity.end <= time.time() or await known.keys.find(identity.key_id) is None:
            return None
        grants = tuple(grant for id, grant in known.grants.items() if id in identity.rules)
        return Principal(identity.caller, identity.name, grants)


def parts_of(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the unverified header and claims of a JWT. Raise `NotValid` for any other text."""
    parts = text.split(".", 3) if len(text) <= LONGEST else ()
    if len(parts) != 3:
        raise NotValid(f"a JWT has three parts and at most {LONGEST} characters")
    with suppress(StorageDenied, ValueError):
        header, claims = (dict(parse_object(urlsafe_b64decode(part.encode("ascii")))) for part in parts[:2])
        return header, claims
    raise NotValid("the header and the claims must be JSON objects in base64url")


def _end_of(issuer: Issuer, claims: Claims) -> float:
    """Return the end of a JWT. Raise `NotValid` if its claims are not valid now."""
    registry = jwt.JWTClaimsRegistry(
        leeway=SKEW_SECONDS,
        iss={"essential": True, "value": issuer.url},
        aud={"essential": True, "values": list(issuer.audience)},
        exp={"essential": True},
    )
    try:
        registry.validate(dict(claims))
    except (JoseError, ValueError, TypeError) as error:
        raise NotValid(
            f"the claims are invalid: {getattr(error, 'description', '') or 'a value has the wrong type'}"
        ) from None
    end = claims["exp"]
    if not isinstance(end, int | float) or end <= time.time():
        raise NotValid("the JWT has expired")
    return float(min(end, 1 << 53))


def _principal(issuer: Issuer, claims: Claims) -> Principal:
    subject = claims.get("sub")
    if not isinstance(subject, str) or not subject:
        raise NotValid("the JWT has no subject (`sub`)")
    names = texts_at(claims, issuer.name) or (subject,)
    name = "".join(mark for mark in names[0][:_LONGEST_NAME] if mark.isprintable())
    # A subject is unique only within its issuer, so the id also covers the issuer.
    id = sha256(f"{issuer.url}\n{subject}".encode(errors="surrogatepass")).hexdigest()[:24]
    return Principal(id, name, tuple(rule.grant for rule in issuer.matching(claims)))
