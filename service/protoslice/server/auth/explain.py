"""Explains access decisions: the caller that a token or JWT names, the caller's grants, and the route's rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from protoslice.catalog.marker import open_both
from protoslice.server.auth.oidc.issuers import Issuer, read_issuers
from protoslice.server.auth.permissions import EVERY_SPACE, Decision, Principal, Rule, decide, from_body, lacking
from protoslice.server.auth.tokens import Tokens, parse_token
from protoslice.server.settings import Settings

_STATUS: Final = {
    Decision.ALLOWED: "allowed",
    Decision.UNAUTHENTICATED: "401",
    Decision.INVISIBLE: "404",
    Decision.FORBIDDEN: "403",
}


class Asked(NamedTuple):
    """A request in the form that rules read: its route's method and path, its rule, its space, and its tags."""

    row: str
    rule: Rule
    space: str
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """A caller and the decision about its request. `reasons` explain the caller and the decision."""

    caller: str | None
    decision: str
    """The text `allowed`, or the status code of the refusal."""
    reasons: tuple[str, ...]


async def explain(settings: Settings, token: str, asked: Asked) -> Explanation:
    """Explain the decision on a request under a service's settings.

    The explanation fetches issuers' keys and looks up tokens.
    """
    principal, reasons = await _caller(settings, token)
    caller = None if principal is None else principal.name
    row, rule, space, tags = asked
    if rule.scope is None:
        return Explanation(caller, "allowed", (*reasons, f"{row} needs no token"))
    where = EVERY_SPACE if rule.everywhere else space
    needs = list(rule.needs(tags))
    scopes, place = (
        " and ".join(scope for scope, _ in needs),
        "every space" if rule.everywhere else f"the space {space}",
    )
    asks = f"{row} needs {scopes} in {place}" + (f" for the tags {', '.join(tags)}" if tags else "")
    later = ("(the service also checks the tags that its body names)",) if rule.tags is from_body else ()
    decisions = [(need, decide(principal, where, *need)) for need in needs]
    need, decision = next((each for each in decisions if each[1] is not Decision.ALLOWED), decisions[0])
    missing = (lacking(principal, where, *need),) if principal and decision is Decision.FORBIDDEN else ()
    return Explanation(caller, _STATUS[decision], (*reasons, asks, *missing, *later))


async def _caller(settings: Settings, text: str) -> tuple[Principal | None, list[str]]:
    token = parse_token(text)
    if token is not None:
        options = settings.plain_storage_options()
        async with open_both(settings.storage, options, settings.database) as (_, database):
            record = await Tokens(database).find(token)
        if record is None:
            return None, [f"Token {token.id} is unknown, expired or revoked"]
        tags = f", on the tags {' '.join(record.grant.tags)}" if record.grant.tags else ""
        scopes = " ".join(sorted(record.grant.scopes))
        return record.principal, [f"Token {token.id} has the scopes {scopes} in space {record.grant.space}{tags}"]
    if settings.issuers is None:
        return None, ["Not a Protoslice token, and PROTOSLICE_ISSUERS lists no issuers of JWTs"]
    from protoslice.server.auth.oidc.verification import NotValid, Verifier

    verifier = Verifier(read_issuers(settings.issuers))
    try:
        verified = await verifier.verify(text)
    except NotValid as error:
        return None, [f"Invalid JWT: {error}"]
    finally:
        await verifier.close()
    return verified.principal, _matches(verified.issuer, verified.claims)


def _matches(issuer: Issuer, claims: Mapping[str, Any]) -> list[str]:
    """Return a line for each rule. The line of a rule that does not match names the claim that prevents the match."""
    found = [f"a JWT of {issuer.url}"]
    for rule in issuer.rules:
        wrong = rule.mismatch(claims)
        found.append(f"{'matches' if wrong is None else f'no match, by {wrong}'}: {rule.describe()}")
    return found
