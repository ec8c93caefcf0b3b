"""The gate: before anything is read, a request's caller, space and rule are decided about, once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from starlette.types import Scope as AsgiScope

from protoslice.errors import NotFound
from protoslice.server.auth.credentials import Callers, KnownCaller, is_empty
from protoslice.server.auth.permissions import EVERY_SPACE, Decision, Need, Principal, Scope, lacking
from protoslice.server.auth.rules import Rule, TagPlace
from protoslice.server.auth.sessions import session_of
from protoslice.server.auth.signatures import Signer, SigningKey, UrlSignature, take_signature
from protoslice.server.auth.tags import tags_of
from protoslice.server.auth.tokens import Token, Tokens
from protoslice.server.context import context_of
from protoslice.server.http.headers import Fields
from protoslice.server.problems import FORBIDDEN, UNAUTHORIZED, HttpProblem

if TYPE_CHECKING:  # cryptography is loaded where there are issuers
    from protoslice.server.auth.oidc.sign_in import SignIn
    from protoslice.server.auth.oidc.verification import Verifier

_NO_OLLAMA: Final = "Ollama cannot send a token; let a proxy add it, or pull from a service that is open"
_BASIC: Final = 'Basic realm="protoslice", charset="UTF-8"'
_READ: Final = Need(Scope.READ)
_NO_TOKEN: Final = (
    "Token required: send it as `Authorization: Bearer TOKEN`, or as the password of Basic authentication"
)
_WRONG_TOKEN: Final = "Invalid token: unknown, expired or revoked"
_WRONG_SIGNATURE: Final = "Invalid signed URL: altered, for another method, expired, or its signer lost access"


class Admission:
    """Permission of one request: its caller, and the space it is in."""

    __slots__ = ("_caller", "_callers", "_scope", "_space", "tags", "tags_due")

    def __init__(self, caller: KnownCaller, space: str, rule: Rule, callers: Callers) -> None:
        self._caller = caller
        self._callers = callers
        self._space = space
        self._scope = rule.scope
        self.tags: list[str] = []
        """Tags that the request was asked about, those it may not set too."""
        self.tags_due = rule.tags is TagPlace.BODY and any(grant.tags for grant in caller.principal.grants)
        """True while tags of the body are still to be allowed."""

    @property
    def principal(self) -> Principal:
        """The caller, who has a name."""
        return self._caller.principal

    @property
    def key(self) -> str:
        """Key that the caller counts under."""
        return f"principal {self.principal.id}"

    @property
    def reads(self) -> bool:
        """True for a caller who may read in its space."""
        return self._caller.may_read(self._space)

    async def signer(self) -> Signer:
        """Signer of the caller's URLs, which end with the token or JWT that it came with."""
        return await self._callers.signer_of(self._caller)

    def allow_tags(self, tags: Sequence[str]) -> None:
        """Raise `HttpProblem` unless the caller may set these tags, which its body names."""
        if self._scope is not None:
            self.require(Need(self._scope, tuple(tags)))
        self.tags_due = False

    def require_sight(self) -> None:
        """Raise `NotFound` unless the caller has a grant in its space."""
        if self._caller.verdict(self._space, _READ) is Decision.INVISIBLE:
            raise _hidden(self._space)

    def require(self, need: Need, space: str | None = None) -> None:
        """Raise `HttpProblem` unless the caller may do in `space`, by default its own, what needs `need`."""
        self.tags.extend(need.tags)
        where = space or self._space
        if self._caller.verdict(where, need) is not Decision.ALLOWED:
            raise HttpProblem(FORBIDDEN, lacking(self.principal, where, need), scope=str(need.scope))


class Gate:
    """Lets requests in by the tokens of a storage, or all of them while it stands open."""

    def __init__(self, *, closed: bool) -> None:
        self.closed = closed
        self.failed: Callable[[str], object] = lambda credential: None
        """Called with what was not valid: `token`, for JWTs too, or `signature` of a URL."""
        self._tokens: Tokens | None = None
        self._callers: Callers | None = None
        self._verifier: Verifier | None = None
        self.key: SigningKey | None = None
        """Key of the service, from the start on."""

    async def start(
        self, tokens: Tokens, verifier: Verifier | None = None, key: SigningKey | None = None
    ) -> Token | None:
        """Know callers by `tokens` and JWTs from now on; return the first token of a new catalogue, else None."""
        self._tokens, self._callers = tokens, Callers(tokens, verifier, key)
        self._verifier, self.key = verifier, key
        return await tokens.create_initial_admin()

    async def enter(
        self, secret: str, check: Callable[[Mapping[str, Any]], None] | None = None
    ) -> tuple[Principal, Signer]:
        """The caller that a token or a JWT names, and its signer; `HttpProblem` when it is not valid.

        With `check`, only a JWT is valid, whose verified claims are shown to it.
        """
        if check is not None:
            verified = None if self._verifier is None else await self._verifier.find(secret)
            if verified is not None:
                check(verified.claims)
            secret = "" if verified is None else secret
        found = None if self._callers is None else await self._callers.find(f"Bearer {secret}")
        if found is None or self._callers is None:
            self.failed("token")
            raise HttpProblem(UNAUTHORIZED, _WRONG_TOKEN, headers={"www-authenticate": 'Bearer realm="protoslice"'})
        return found.principal, await self._callers.signer_of(found)

    async def visitor(self, scope: AsgiScope, fields: Fields) -> Principal | None:
        """The caller of the session that a request is part of; None without one, or once it has ended."""
        session = session_of(scope, fields)
        found = None if session is None or self._callers is None else await self._callers.find_signer(session)
        return None if found is None else found.principal

    @property
    def sign_in(self) -> SignIn | None:
        """Way in which people sign in at an issuer; None where there is none."""
        return None if self._verifier is None else self._verifier.sign_in

    @property
    def tokens(self) -> Tokens:
        """Tokens of the service; `NotFound` while the service is open, and has none."""
        if not self.closed or self._tokens is None:
            raise NotFound(
                "This service is open: tokens exist only on a closed one, started with PROTOSLICE_AUTH=tokens"
            )
        return self._tokens

    def reader(self, authorization: str | None, signature: UrlSignature | None, space: str) -> Principal | None:
        """The caller of one credential, looked up some seconds ago, who may read in `space`; else None."""
        if self._callers is None:
            return None
        if authorization is not None:
            caller = self._callers.known(authorization)
        else:
            caller = None if signature is None else self._callers.known_signer(signature)
        return caller.principal if caller is not None and caller.may_read(space) else None

    async def admit(
        self, scope: AsgiScope, fields: Fields, space: str, rule: Rule, parameters: Mapping[str, Any]
    ) -> Admission | None:
        """Admission of a request, or None where nobody is asked; `HttpProblem` or `NotFound` for a refusal."""
        if not self.closed or rule.scope is None:
            return None
        authorization, signature = fields.get(b"authorization"), take_signature(scope)
        caller = None
        if self._callers is not None:
            if authorization is not None:
                caller = await self._callers.find(authorization)
            elif signature is not None:
                if rule.signed:
                    caller = await self._callers.find_signer(signature)
            elif (session := session_of(scope, fields)) is not None:
                caller = await self._callers.find_signer(session)
        if caller is None or self._callers is None:
            sent = authorization is not None and not is_empty(authorization)
            if sent or signature is not None:
                self.failed("token" if sent else "signature")
            wrong = _WRONG_TOKEN if sent else _WRONG_SIGNATURE if signature is not None else None
            raise _unnamed(scope["path"], fields, wrong)
        admission, context = (
            Admission(caller, EVERY_SPACE if rule.everywhere else space, rule, self._callers),
            context_of(scope),
        )
        principal = admission.principal
        # Told before the decision: the line of a refusal says who was refused.
        context.principal, context.principal_id, context.tags = principal.name, principal.id, admission.tags
        # Tags are read once the caller may see the space: before that, mistakes in them tell nothing.
        admission.require_sight()
        for need in rule.needs(tags_of(rule.tags, scope, fields, parameters)):
            admission.require(need)
        return admission


def _hidden(space: str) -> NotFound:
    """The error for a space that the caller may not see, the same as for one that does not exist."""
    return NotFound("No access to this space" if space == EVERY_SPACE else f"No space {space!r}")


def _unnamed(path: str, fields: Fields, wrong: str | None) -> HttpProblem:
    """Problem of a caller without a valid token, with challenges that clients of `path` understand.

    `wrong` says what is the matter with the credential; None without one.
    """
    said = wrong or _NO_TOKEN
    if "/v2/" in path and fields.get(b"user-agent", "").startswith("ollama/"):
        # Upon 401, Ollama asks the realm for a token, and prints only that this failed.
        return HttpProblem(FORBIDDEN, f"unauthorized: {_NO_OLLAMA}")
    bearer = 'Bearer realm="protoslice"' + (', error="invalid_token"' if wrong else "")
    # Clients of OCI registries take Bearer for the URL of a service that gives out tokens.
    challenge = _BASIC if "/v2/" in path else f"{bearer}, {_BASIC}"
    if fields.get(b"sec-fetch-dest") == "empty":  # a script: upon Basic, browsers ask for a password by themselves
        challenge = bearer
    return HttpProblem(UNAUTHORIZED, said, headers={"www-authenticate": challenge})
