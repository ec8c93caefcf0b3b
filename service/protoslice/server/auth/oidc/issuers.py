"""Trusted issuers: the file that lists the issuers, and the rules that turn claims of their JWTs into grants."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import urlsplit

from protoslice.errors import InvalidInput
from protoslice.server.auth.permissions import EVERY_SPACE, Grant, Scope
from protoslice.server.settings import read_secret_file
from protoslice.storage.web_guard import Networks
from protoslice.stores.service import is_space
from protoslice.tensors.listing import pattern

Claims: TypeAlias = Mapping[str, Any]
T = TypeVar("T")
ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
"""The algorithms that an issuer may use. Only algorithms with public keys are allowed."""
_LARGEST: Final = 1 << 20
_MOST: Final = 1000
_TOP: Final = frozenset({"issuer"})
_ISSUER: Final = frozenset(
    {"url", "audience", "algorithms", "networks", "keys_file", "ca_file", "name", "allow"}
    | {"login_client", "login_secret_file", "login_scopes", "device_client"}
)
_SCOPES: Final = ("openid", "profile", "email", "offline_access")
_RULE: Final = frozenset({"claims", "space", "scopes", "tags"})


@dataclass(frozen=True, slots=True)
class ClaimRule:
    """A grant for callers whose claims match.

    For each claim in the rule, at least one of the caller's values has to match one of the rule's patterns.
    """

    claims: Mapping[str, tuple[str, ...]]
    grant: Grant

    @property
    def id(self) -> str:
        """The fingerprint of the rule. It changes whenever the rule changes."""
        grant = self.grant
        return _fingerprint([sorted(self.claims.items()), grant.space, sorted(grant.scopes), grant.tags])

    def describe(self) -> str:
        """Return a line, for people to read, that describes the rule."""
        asked = " and ".join(f"{name} is {' or '.join(patterns)}" for name, patterns in self.claims.items())
        space = "every space" if self.grant.space == EVERY_SPACE else f"the space {self.grant.space}"
        tags = f", on the tags {' '.join(self.grant.tags)}" if self.grant.tags else ""
        return f"tokens where {asked} get {' '.join(sorted(self.grant.scopes))} in {space}{tags}"

    def mismatch(self, claims: Claims) -> str | None:
        """Return the name of the first claim that does not match. Return None if all claims match."""
        for name, patterns in self.claims.items():
            values = texts_at(claims, name)
            if not any(pattern(wanted)(value) for wanted in patterns for value in values):
                return name
        return None


@dataclass(frozen=True, slots=True)
class Issuer:
    """A trusted issuer, the conditions for its JWTs, and the rules for their claims."""

    url: str
    audience: tuple[str, ...]
    algorithms: tuple[str, ...]
    networks: tuple[str, ...]
    keys_file: Path | None
    ca_file: Path | None
    name: str
    """The claim that names the caller in logs, as a name or a JSON pointer."""
    rules: tuple[ClaimRule, ...]
    login_client: str | None = None
    """The OpenID client for sign-in on the web page; None if people cannot sign in there."""
    login_secret: str | None = field(default=None, repr=False)
    """The secret of `login_client`; None if that client is public."""
    device_client: str | None = None
    """The public OpenID client for sign-in on the command line; None if people cannot sign in there."""
    login_scopes: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The fingerprint of the conditions under which the issuer's JWTs are accepted.

        The fingerprint does not cover the rules.
        """
        return _fingerprint([self.url, self.audience, self.algorithms, str(self.keys_file)])

    def describe(self) -> list[str]:
        """Return lines, for people to read, that describe the issuer and each of its rules."""
        takes = f"JWTs for the audience {' or '.join(self.audience)}, signed with {' or '.join(self.algorithms)}"
        login = [f"  users sign in through the OpenID client {self.login_client}"] if self.login_client else []
        if self.device_client != self.login_client:
            shown = f"through the OpenID client {self.device_client}" if self.device_client else "with tokens only"
            login.append(f"  command line users sign in {shown}")
        return [f"{self.url}: {takes}", *login, *(f"  {rule.describe()}" for rule in self.rules)]

    def matching(self, claims: Claims) -> tuple[ClaimRule, ...]:
        """Return the rules that match the claims."""
        return tuple(rule for rule in self.rules if rule.mismatch(claims) is None)


def read_issuers(path: Path) -> tuple[Issuer, ...]:
    """Read the issuers in a file. Raise `InvalidInput` with the place of a mistake."""
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST + 1)
        if len(text) > _LARGEST:
            raise InvalidInput(f"the file is too large (at most {_LARGEST} bytes)")
        return parse_issuers(tomllib.loads(text.decode()))
    except OSError as error:
        raise InvalidInput(f"{path}: {error.strerror}") from None
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error.message}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path}: not valid TOML: {error}") from None


def parse_issuers(data: Mapping[str, Any]) -> tuple[Issuer, ...]:
    """Return the issuers of a parsed file. Raise `InvalidInput` with the name of a wrong entry."""
    _check_names(data, _TOP, "the file")
    issuers = _each(data.get("issuer"), "issuer", _issuer)
    twice = {one.url for one in issuers if sum(other.url == one.url for other in issuers) > 1}
    if twice:
        raise InvalidInput(f"Issuer {min(twice)} is listed twice: put its rules into one entry")
    if len([one for one in issuers if one.login_client]) > 1:
        raise InvalidInput("Two issuers have a `login_client`, but users can sign in with only one: remove the other")
    return issuers


def _issuer(data: Mapping[str, Any], where: str) -> Issuer:
    _check_names(data, _ISSUER, where)
    url = _text(data.get("url"), f"{where}.url")
    parts = urlsplit(url)
    if parts.scheme not in {"https", "http"} or not parts.hostname or parts.query or parts.fragment or "@" in url:
        raise InvalidInput(
            f"{where}.url: invalid issuer {url!r}: use https://HOST/PATH, exactly as in the `iss` of its JWTs"
        )
    algorithms = _texts(data.get("algorithms", ["RS256", "ES256"]), f"{where}.algorithms")
    if unknown := [each for each in algorithms if each not in ALGORITHMS]:
        raise InvalidInput(f"{where}.algorithms: {unknown[0]!r} is not one of {', '.join(ALGORITHMS)}")
    networks = _texts(data.get("networks", []), f"{where}.networks", least=0)
    Networks(*networks)
    audience = _texts(data.get("audience"), f"{where}.audience")
    client, secret, device = _clients(data, where, audience)
    return Issuer(
        url=url,
        audience=audience,
        algorithms=algorithms,
        networks=networks,
        keys_file=_optional(data.get("keys_file"), f"{where}.keys_file", Path),
        ca_file=_optional(data.get("ca_file"), f"{where}.ca_file", Path),
        name=_text(data.get("name", "sub"), f"{where}.name"),
        rules=_each(data.get("allow"), f"{where}.allow", _rule),
        login_client=client,
        login_secret=secret,
        device_client=device,
        login_scopes=_texts(data.get("login_scopes", list(_SCOPES)), f"{where}.login_scopes"),
    )


def _clients(data: Mapping[str, Any], where: str, audience: Sequence[str]) -> tuple[str | None, str | None, str | None]:
    """Return the web page's client, its secret, and the command line's client, which has no secret."""
    client, device = (_optional(data.get(name), f"{where}.{name}", str) for name in ("login_client", "device_client"))
    file = _optional(data.get("login_secret_file"), f"{where}.login_secret_file", Path)
    for name, value in (("login_secret_file", file), ("device_client", device)):
        if value is not None and client is None:
            raise InvalidInput(f"{where}.{name}: needs a `login_client`")
    for name, value in (("login_client", client), ("device_client", device)):
        if value is not None and value not in audience:
            raise InvalidInput(
                f"{where}.{name}: add {value!r} to `audience`, because users who sign in get JWTs for this audience"
            )
    secret = None if file is None else read_secret_file(file, f"{where}.login_secret_file: {file}")
    return client, secret, device or (client if file is None else None)


def _rule(data: Mapping[str, Any], where: str) -> ClaimRule:
    _check_names(data, _RULE, where)
    claims = data.get("claims")
    if not isinstance(claims, Mapping) or not claims:
        raise InvalidInput(f'{where}.claims: name a claim and its value; {{ sub = "*" }} allows everyone')
    matched = {name: _texts(value, f"{where}.claims.{name}") for name, value in claims.items()}
    space = _text(data.get("space"), f"{where}.space")
    if space != EVERY_SPACE and not is_space(space):
        raise InvalidInput(f"{where}.space: {space!r} is neither a space nor * (all spaces)")
    scopes = _texts(data.get("scopes"), f"{where}.scopes")
    if unknown := [each for each in scopes if each not in set(Scope)]:
        raise InvalidInput(f"{where}.scopes: {unknown[0]!r} is not one of {', '.join(Scope)}")
    tags = _texts(data.get("tags", []), f"{where}.tags", least=0)
    return ClaimRule(matched, Grant(space, frozenset(map(Scope, scopes)), tags))


def _fingerprint(terms: object) -> str:
    return sha256(json.dumps(terms).encode()).hexdigest()[:16]


def _each(value: object, where: str, parse: Callable[[Mapping[str, Any], str], T]) -> tuple[T, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(one, Mapping) for one in value):
        raise InvalidInput(f"{where}: add at least one table [[{where.split('[')[0]}]]")
    if len(value) > _MOST:
        raise InvalidInput(f"{where}: at most {_MOST} allowed")
    return tuple(parse(one, f"{where}[{at}]") for at, one in enumerate(value))


def _check_names(data: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    if unknown := sorted(set(data) - set(known)):
        raise InvalidInput(f"{where}: unknown key {unknown[0]!r}; use one of {', '.join(sorted(known))}")


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise InvalidInput(f"{where}: use a string")
    return value


def _optional(value: object, where: str, make: Callable[[str], T]) -> T | None:
    return None if value is None else make(_text(value, where))


def _texts(value: object, where: str, least: int = 1) -> tuple[str, ...]:
    found: Sequence[object] = [value] if isinstance(value, str) else value if isinstance(value, list) else ()
    if len(found) < least or (least == 0 and not isinstance(value, list | str)):
        raise InvalidInput(f"{where}: use a string or a list of strings")
    return tuple(_text(each, where) for each in found)


def texts_at(claims: Claims, name: str) -> tuple[str, ...]:
    """Return the values of a claim as texts, one per list member. Return no values for an absent claim or an object.

    `name` is the name of a claim. With a leading `/`, it is a JSON pointer (RFC 6901) into the claims.
    """
    if not name.startswith("/"):
        return _values(claims.get(name))
    value: object = claims
    for word in name[1:].split("/"):
        if not isinstance(value, Mapping):
            return ()
        value = value.get(word.replace("~1", "/").replace("~0", "~"))
    return _values(value)


def _values(value: object) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [value]
    return tuple(text for each in values if (text := _value(each)) is not None)


def _value(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return value if isinstance(value, str) else None
