"""Authentication: finds the caller of a request, and the caller's permissions, before anything is read.

Credentials are tokens and JWTs in `Authorization`, signed URLs, and browser sessions.
"""

from __future__ import annotations

import time
from base64 import b64decode
from binascii import Error as BadBase64
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from starlette.types import Scope as AsgiScope

from protoslice.concurrency.gather import both
from protoslice.concurrency.results import LruCache, SingleFlight
from protoslice.errors import DatabaseUnavailable, NotFound
from protoslice.server.auth.permissions import EVERY_SPACE, Decision, Principal, Rule, Scope, decide, lacking
from protoslice.server.auth.signatures import Signer, SigningKey, UrlSignature, session_of, take_signature
from protoslice.server.auth.tokens import PREFIX, Token, TokenRecord, Tokens, is_token_id, parse_token
from protoslice.server.context import context_of
from protoslice.server.http.headers import HeaderMap
from protoslice.server.problems import FORBIDDEN, UNAUTHORIZED, HttpProblem

if TYPE_CHECKING:  # only services with issuers load cryptography
    from protoslice.server.auth.oidc.sign_in import SealedIdentity, SignIn
    from protoslice.server.auth.oidc.verification import Verifier

KNOWN_SECONDS: Final = 5.0
"""The seconds for which a caller is cached without a database read.

A revoked token remains valid for at most this time.
"""
_AWAY_SECONDS: Final = 55.0
"""The additional seconds for which a cached caller is accepted while the database does not respond."""
KNOWN_BY_JWT_SECONDS: Final = 300.0
"""The seconds for which a verified JWT is not verified again. The issuer may withdraw the JWT's key meanwhile."""
_CALLERS: Final = 4096
_ROOM: Final = 8 << 20
_PROVEN: Final = 256
"""The maximum number of verified signatures that are kept per caller."""
_TAIL: Final = 64
"""The number of characters at a credential's end that serve as its cache key. Hashing a whole JWT takes long."""
_HUB_PREFIX: Final = "hf_"
"""The prefix that some Hugging Face clients require in a token. The service ignores this prefix."""
_LONGEST: Final = 24 << 10
"""The length limit of a credential, in characters. A longer credential is invalid."""
_NO_OLLAMA: Final = "Ollama cannot send a token; let a proxy add it, or pull from a service that is open"
_BASIC: Final = 'Basic realm="protoslice", charset="UTF-8"'
_NO_TOKEN: Final = (
    "Token required: send it as `Authorization: Bearer TOKEN`, or as the password of Basic authentication"
)
_WRONG_TOKEN: Final = "Invalid token: unknown, expired or revoked"
_WRONG_SIGNATURE: Final = (
    "Invalid signed URL: it was altered, has expired or is for another method, or its signer lost access"
)


class CachedPrincipal:
    """The cached principal of a credential. The cached entry is valid until `until` on the monotonic clock."""

    __slots__ = ("_keys", "_proven", "origin", "principal", "until")

    def __init__(
        self, principal: Principal, until: float, origin: TokenRecord | SealedIdentity, keys: Sequence[bytes] = ()
    ) -> None:
        self.principal = principal
        self.until = until
        self.origin = origin
        """The record of the caller's token, or the identity from the caller's JWT."""
        self._keys = keys
        """The keys of the caller's signatures; empty if the caller was found by a token or JWT."""
        self._proven: set[UrlSignature] = set()

    @property
    def is_believed(self) -> bool:
        """True if the caller is still accepted while the database is unavailable."""
        return time.monotonic() < self.until + _AWAY_SECONDS and not self.origin.expired

    def signed(self, signature: UrlSignature) -> bool:
        """Return True if the caller made `signature` and the signature has not expired.

        Each signature is verified only once.
        """
        if signature in self._proven:
            return signature.is_valid
        if not any(signature.proves(key) for key in self._keys):
            return False
        if len(self._proven) >= _PROVEN:
            self._proven.clear()
        self._proven.add(signature)
        return True


class CredentialCache:
    """A cache of principals by credential.

    A principal is looked up again after some seconds. While the database is unavailable, the cached principal is used
    for longer.
    """

    def __init__(self) -> None:
        self._kept: LruCache[str, tuple[str, CachedPrincipal]] = LruCache(most=_CALLERS, room=_ROOM)
        self._asking: SingleFlight[str, CachedPrincipal | None] = SingleFlight()

    def get(self, credential: str) -> CachedPrincipal | None:
        """Return the principal of a credential that was looked up within the last few seconds.

        Return None for any other credential.
        """
        found = self._any_age(credential)
        return found if found is not None and found.until > time.monotonic() else None

    async def look_up(
        self, credential: str, ask: Callable[[], Coroutine[Any, Any, CachedPrincipal | None]]
    ) -> CachedPrincipal | None:
        """Return and cache the principal that `ask` finds for a credential.

        Return None if the credential is invalid.
        """
        found: CachedPrincipal | None
        try:
            found = await self._asking.get(credential, ask)
        except DatabaseUnavailable:
            found = self._any_age(credential)
            if found is None or not found.is_believed:
                raise
            return found
        if found is None:
            self._kept.drop(credential[-_TAIL:])
        else:
            self._kept.put(credential[-_TAIL:], (credential, found), len(credential) + 1000)
        return found

    def _any_age(self, credential: str) -> CachedPrincipal | None:
        kept = self._kept.get(credential[-_TAIL:])
        if kept is None or kept[0] != credential:
            return None
        return kept[1]


class AuthContext:
    """The permissions of a request's caller in the request's space.

    If the service requires no credentials, the caller is anonymous and may do everything.
    """

    __slots__ = ("_cached", "_key", "_space", "tags")

    def __init__(self, space: str, cached: CachedPrincipal | None = None, key: SigningKey | None = None) -> None:
        self._space = space
        self._cached = cached
        self._key = key
        self.tags: list[str] = []
        """The tags for which permissions were checked, including tags that the request may not set."""

    @property
    def principal(self) -> Principal | None:
        """The caller; None if the service requires no credentials."""
        return None if self._cached is None else self._cached.principal

    @property
    def id(self) -> str | None:
        """The id that distinguishes callers with equal names; None for an anonymous caller."""
        return None if self._cached is None else self._cached.principal.id

    @property
    def name(self) -> str | None:
        """The name of the token, or the name in the JWT; None for an anonymous caller."""
        return None if self._cached is None else self._cached.principal.name

    @property
    def key(self) -> str | None:
        """The key under which limits count the caller; None for an anonymous caller."""
        return None if self._cached is None else f"principal {self._cached.principal.id}"

    async def signer(self) -> Signer:
        """Return the signer of URLs for this caller. The URLs expire with the caller's token or JWT."""
        if self._cached is None or self._key is None:
            raise RuntimeError("only callers with a name sign URLs")
        return self._cached.origin.signer(await self._key.get())

    def may(self, scope: Scope, space: str | None = None, *, tags: Sequence[str] = ()) -> bool:
        """Return True if the caller has `scope` for these `tags` in `space`.

        The default space is the request's space.
        """
        principal = self.principal
        return principal is None or decide(principal, space or self._space, scope, tags) is Decision.ALLOWED

    def require(self, scope: Scope, space: str | None = None, *, tags: Sequence[str] = ()) -> None:
        """Raise `HttpProblem` unless `may` returns True for these arguments."""
        principal = self.principal
        if principal is None:
            return
        self.tags.extend(tags)
        if not self.may(scope, space, tags=tags):
            raise HttpProblem(FORBIDDEN, lacking(principal, space or self._space, scope, tags), scope=str(scope))

    def require_visible(self) -> None:
        """Raise `NotFound`, as for a missing space, unless the caller has a grant in the request's space."""
        if self._cached is not None and decide(self._cached.principal, self._space, Scope.READ) is Decision.INVISIBLE:
            raise NotFound("No access to this space" if self._space == EVERY_SPACE else f"No space {self._space!r}")


ANYONE: Final = AuthContext(EVERY_SPACE)
"""The permissions of callers from whom no credentials are required."""


class Authenticator:
    """The authenticator of requests. It checks tokens and JWTs, or admits all requests while the service is open."""

    def __init__(self, *, closed: bool) -> None:
        self.closed = closed
        self.failed: Callable[[str], object] = lambda credential: None
        """The function to call with an invalid credential's kind, which is `token` (also for JWTs) or `signature`."""
        self.key: SigningKey | None = None
        """The signing key of the service; None before `start`."""
        self._tokens: Tokens | None = None
        self._verifier: Verifier | None = None
        # The caches are separate, because a signer's name is no secret and must not be accepted as a credential.
        self._callers, self._signers = CredentialCache(), CredentialCache()

    async def start(
        self, tokens: Tokens, verifier: Verifier | None = None, key: SigningKey | None = None
    ) -> Token | None:
        """Begin to require tokens or JWTs. Return the admin token if the catalogue is new, and None otherwise."""
        self._tokens, self._verifier, self.key = tokens, verifier, key
        self._callers, self._signers = CredentialCache(), CredentialCache()
        return await tokens.create_initial_admin()

    @property
    def code_flow(self) -> SignIn | None:
        """The sign-in of people at an issuer; None if no issuer is configured for sign-in."""
        return None if self._verifier is None else self._verifier.sign_in

    @property
    def tokens(self) -> Tokens:
        """The tokens of the service. Raise `NotFound` while the service is open, because it then has no tokens."""
        if not self.closed or self._tokens is None:
            raise NotFound(
                "This service is open and has no tokens: to use tokens, start it with PROTOSLICE_AUTH=tokens"
            )
        return self._tokens

    async def authenticate(
        self, scope: AsgiScope, fields: HeaderMap, space: str, rule: Rule, parameters: Mapping[str, Any]
    ) -> AuthContext:
        """Return the permissions of a request.

        Raise `HttpProblem` or `NotFound` if the caller may not use the route.
        """
        if not self.closed or rule.scope is None:
            return ANYONE
        authorization, signature = fields.get(b"authorization"), take_signature(scope)
        cached = None
        if authorization is not None:
            cached = await self.find(authorization)
        elif signature is not None:
            if rule.signed:
                cached = await self.find_signer(signature)
        elif (session := session_of(scope, fields)) is not None:
            cached = await self.find_signer(session)
        if cached is None:
            sent = authorization is not None and not is_empty(authorization)
            if sent or signature is not None:
                self.failed("token" if sent else "signature")
            wrong = _WRONG_TOKEN if sent else _WRONG_SIGNATURE if signature is not None else None
            raise _unauthenticated(scope["path"], fields, wrong)
        auth = AuthContext(EVERY_SPACE if rule.everywhere else space, cached, self.key)
        context_of(scope).auth = auth  # set before the decision, so that the log line of a refusal names the caller
        # Tags are read only if the caller may see the space. Errors about tags would otherwise reveal that it exists.
        auth.require_visible()
        for needed, tags in rule.needs(rule.tags(scope, fields, parameters)):
            auth.require(needed, tags=tags)
        return auth

    async def sign_in(self, secret: str, check: Callable[[Mapping[str, Any]], None] | None = None) -> AuthContext:
        """Return the caller that a token or a JWT names. Raise `HttpProblem` if the token or JWT is invalid.

        With `check`, only a JWT is accepted, and `check` is called with its verified claims.
        """
        if check is not None:
            verified = None if self._verifier is None else await self._verifier.find(secret)
            if verified is not None:
                check(verified.claims)
            secret = "" if verified is None else secret
        found = await self.find(f"Bearer {secret}")
        if found is None:
            self.failed("token")
            raise HttpProblem(UNAUTHORIZED, _WRONG_TOKEN, headers={"www-authenticate": 'Bearer realm="protoslice"'})
        return AuthContext(EVERY_SPACE, found, self.key)

    async def session_caller(self, scope: AsgiScope, fields: HeaderMap) -> AuthContext | None:
        """Return the caller of the request's session. Return None without a session, or after the session's end."""
        session = session_of(scope, fields)
        found = None if session is None else await self.find_signer(session)
        return None if found is None else AuthContext(EVERY_SPACE, found, self.key)

    def cached_reader(
        self, authorization: str | None, signature: UrlSignature | None, space: str
    ) -> AuthContext | None:
        """Return the caller of a recently used credential, if the caller may read in `space`.

        Return None otherwise. The credential must have been looked up within the last few seconds.
        """
        if authorization is not None:
            found = self._callers.get(authorization)
        else:
            found = None if signature is None else self._known_signer(signature)
        if found is None or decide(found.principal, space, Scope.READ) is not Decision.ALLOWED:
            return None
        return AuthContext(space, found, self.key)

    async def find(self, authorization: str) -> CachedPrincipal | None:
        """Return the caller of a token or JWT. Return None if the token or JWT is invalid."""
        found = self._callers.get(authorization)
        if found is not None:
            return found
        text = secret_in(authorization)
        token = parse_token(text)
        if token is not None:
            return await self._callers.look_up(authorization, lambda: self._ask(token))
        if self._verifier is None or not text:
            return None
        return await self._callers.look_up(authorization, lambda: self._verify(text))

    def _known_signer(self, signature: UrlSignature) -> CachedPrincipal | None:
        found = self._signers.get(signature.signer)
        return found if found is not None and found.signed(signature) else None

    async def find_signer(self, signature: UrlSignature) -> CachedPrincipal | None:
        """Return the caller who signed a request. Return None if the signature is invalid."""
        id = signature.signer
        found = self._signers.get(id) or await self._signers.look_up(id, lambda: self._ask_signer(id))
        return found if found is not None and found.signed(signature) else None

    async def _ask(self, token: Token) -> CachedPrincipal | None:
        asked = time.monotonic()  # taken before the read, so that a token revoked during it is not cached for longer
        record = None if self._tokens is None else await self._tokens.find(token)
        if record is None or self._tokens is None:
            return None
        await self._tokens.note_use(record)
        return CachedPrincipal(record.principal, _until(record, asked), record)

    async def _verify(self, text: str) -> CachedPrincipal | None:
        verified = None if self._verifier is None else await self._verifier.find(text)
        if verified is None:
            return None
        left = min(KNOWN_BY_JWT_SECONDS, verified.expires - time.time())
        return CachedPrincipal(verified.principal, time.monotonic() + left, verified.identity())

    async def _ask_signer(self, id: str) -> CachedPrincipal | None:
        asked, tokens, key = time.monotonic(), self._tokens, self.key
        if tokens is None or key is None:
            return None
        if not is_token_id(id):
            return await self._restore(id, key, asked)
        record, keys = await both(lambda: tokens.get(id), key.all)
        if record is None:
            return None
        return CachedPrincipal(
            record.principal, _until(record, asked), record, [record.signer(one).key for one in keys]
        )

    async def _restore(self, text: str, key: SigningKey, asked: float) -> CachedPrincipal | None:
        """Return the caller of a sealed identity.

        Return None for any other text, and for an identity whose JWT is no longer accepted.
        """
        if self._verifier is None:
            return None
        from protoslice.server.auth.oidc.sign_in import identity_key, read_identity

        keys = await key.all()
        identity = read_identity(keys, text)
        principal = None if identity is None else await self._verifier.restore(identity)
        if identity is None or principal is None:
            return None
        left = min(KNOWN_SECONDS, identity.end - time.time())
        return CachedPrincipal(principal, asked + left, identity, [identity_key(each, text) for each in keys])


def _until(record: TokenRecord, asked: float) -> float:
    """Return the monotonic time until which the caller that a token's record names is cached."""
    left = KNOWN_SECONDS if record.expires is None else record.expires.timestamp() - time.time()
    return asked + min(KNOWN_SECONDS, left)


def _unauthenticated(path: str, fields: HeaderMap, wrong: str | None) -> HttpProblem:
    """Return the problem for a caller without a valid token. The problem's challenges suit the clients of `path`.

    `wrong` says why the credential is invalid. Pass None if the caller sent no credential.
    """
    said = wrong or _NO_TOKEN
    if "/v2/" in path and fields.get(b"user-agent", "").startswith("ollama/"):
        # After a 401, Ollama requests a token from the realm, and then reports only that this request failed.
        return HttpProblem(FORBIDDEN, f"unauthorized: {_NO_OLLAMA}")
    bearer = 'Bearer realm="protoslice"' + (', error="invalid_token"' if wrong else "")
    # Clients of OCI registries read a Bearer realm as the URL of a service that issues tokens, so they get only Basic.
    challenge = _BASIC if "/v2/" in path else f"{bearer}, {_BASIC}"
    if fields.get(b"sec-fetch-dest") == "empty":  # a script's request; Basic would make browsers show a password prompt
        challenge = bearer
    return HttpProblem(UNAUTHORIZED, said, headers={"www-authenticate": challenge})


def is_empty(authorization: str) -> bool:
    """Return True if Basic credentials have neither name nor password.

    Skopeo sends such credentials without a login.
    """
    return authorization.partition(" ")[2].strip() == "Og=="


def secret_in(authorization: str) -> str:
    """Return the secret in an `Authorization` header: the Bearer token, or the password of Basic.

    The secret is empty if the header has none. Clients of Hugging Face send a token with `hf_` before it, or with `hf_`
    instead of `psl_`.
    """
    scheme, _, value = authorization.partition(" ")
    if len(authorization) > _LONGEST:
        return ""
    value = value.strip()
    match scheme.lower():
        case "bearer":
            return _without_hub_prefix(value)
        case "basic":
            try:
                return _without_hub_prefix(b64decode(value, validate=True).decode().partition(":")[2])
            except (BadBase64, ValueError):
                return ""
        case _:
            return ""


def _without_hub_prefix(secret: str) -> str:
    """Return a secret without the prefix `hf_`.

    If only alphanumeric characters follow the prefix, `psl_` replaces it, because llama.cpp sends no other characters.
    """
    rest = secret.removeprefix(_HUB_PREFIX)
    return f"{PREFIX}{rest}" if rest != secret and rest.isalnum() else rest
