"""Credentials of requests: the token or JWT in `Authorization`, and the callers known by it."""

from __future__ import annotations

import time
from base64 import b64decode
from binascii import Error as BadBase64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from protoslice.concurrency.gather import both
from protoslice.concurrency.lru import LruCache
from protoslice.concurrency.singleflight import SingleFlight
from protoslice.errors import DatabaseUnavailable
from protoslice.server.auth.permissions import Decision, Need, Principal, Scope, decide
from protoslice.server.auth.signatures import Signer, SigningKey, UrlSignature
from protoslice.server.auth.tokens import PREFIX, Token, TokenRecord, Tokens, is_token_id, parse_token

if TYPE_CHECKING:  # cryptography is loaded where there are issuers
    from protoslice.server.auth.oidc.sign_in import SealedIdentity
    from protoslice.server.auth.oidc.verification import Verifier

KNOWN_SECONDS: Final = 5.0
"""Time for which a caller is known without a look at the storage: a revoked token ends after it."""
_AWAY_SECONDS: Final = 55.0
"""Time after that for which a caller is believed if the database does not answer."""
KNOWN_BY_JWT_SECONDS: Final = 300.0
"""Time for which a verified JWT is not verified again: its key may be withdrawn meanwhile."""
_CALLERS: Final = 4096
_ROOM: Final = 8 << 20
_PROVEN: Final = 256
"""Signatures of one caller that are kept as proven."""
_TAIL: Final = 64
"""Characters at the end of a credential that it is looked up by: a whole JWT takes long to hash."""
_READ: Final = Need(Scope.READ)
_HUB_PREFIX: Final = "hf_"
"""Prefix without which some clients of Hugging Face send no token; ours mean the same with it."""
_LONGEST: Final = 24 << 10
"""Characters of a credential; a longer one is none."""


class KnownCaller:
    """A principal, and what was decided about it, until `until` on the monotonic clock."""

    __slots__ = ("_decided", "_keys", "_proven", "_readable", "origin", "principal", "until")

    def __init__(
        self,
        principal: Principal,
        until: float,
        origin: TokenRecord | SealedIdentity,
        keys: Sequence[bytes] = (),
    ) -> None:
        self.principal = principal
        self.until = until
        self.origin = origin
        """The record of the caller's token, or the identity from its JWT."""
        self._keys = keys
        """Keys of the signatures that the caller comes with; none for one who came with a token or JWT."""
        self._decided: dict[tuple[str, Need], Decision] = {}
        self._readable: dict[str, bool] = {}
        self._proven: set[UrlSignature] = set()

    @property
    def is_believed(self) -> bool:
        """True for a caller who is believed while the database is away."""
        if time.monotonic() >= self.until + _AWAY_SECONDS:
            return False
        return not self.origin.expired

    def may_read(self, space: str) -> bool:
        """True when the caller may read in a space; decided once."""
        found = self._readable.get(space)
        if found is None:
            if len(self._readable) >= _CALLERS:
                self._readable.clear()
            found = self._readable[space] = self.verdict(space, _READ) is Decision.ALLOWED
        return found

    def signed(self, signature: UrlSignature) -> bool:
        """True when the caller made a signature whose end is ahead; proved once."""
        if signature in self._proven:
            return signature.is_valid
        if not any(signature.proves(key) for key in self._keys):
            return False
        if len(self._proven) >= _PROVEN:
            self._proven.clear()
        self._proven.add(signature)
        return True

    def verdict(self, space: str, need: Need) -> Decision:
        """The decision, made once for needs without tags."""
        if need.tags:
            return decide(self.principal, space, need)
        found = self._decided.get((space, need))
        if found is None:
            if len(self._decided) >= _CALLERS:
                self._decided.clear()
            found = self._decided[space, need] = decide(self.principal, space, need)
        return found


class Callers:
    """Callers by the credentials that they send."""

    def __init__(self, tokens: Tokens, verifier: Verifier | None = None, key: SigningKey | None = None) -> None:
        self._tokens = tokens
        self._verifier = verifier
        self._key = key
        self._known: LruCache[str, tuple[str, KnownCaller]] = LruCache(most=_CALLERS, room=_ROOM)
        self._signers: LruCache[str, KnownCaller] = LruCache(most=_CALLERS, room=_ROOM)
        self._asking: SingleFlight[Token, KnownCaller | None] = SingleFlight()
        self._asking_signers: SingleFlight[str, KnownCaller | None] = SingleFlight()

    def known(self, authorization: str) -> KnownCaller | None:
        """The caller of a credential that was looked up some seconds ago; None for any other."""
        kept = self._known.get(authorization[-_TAIL:])
        if kept is None or kept[0] != authorization:
            return None
        return kept[1] if kept[1].until > time.monotonic() else None

    def known_signer(self, signature: UrlSignature) -> KnownCaller | None:
        """The caller who signed a request, if it was looked up some seconds ago; None for any other."""
        found = self._signers.get(signature.signer)
        return found if found is not None and found.until > time.monotonic() and found.signed(signature) else None

    async def find(self, authorization: str) -> KnownCaller | None:
        """The caller of a credential; None when it is not valid."""
        found = self.known(authorization)
        if found is not None:
            return found
        text = secret_in(authorization)
        token = parse_token(text)
        try:
            found = await (self._verify(text) if token is None else self._asking.get(token, lambda: self._ask(token)))
        except DatabaseUnavailable:
            kept = self._known.get(authorization[-_TAIL:])
            if kept is None or kept[0] != authorization or not kept[1].is_believed:
                raise
            return kept[1]
        if found is None:
            self._known.drop(authorization[-_TAIL:])
        else:
            self._known.put(authorization[-_TAIL:], (authorization, found), len(authorization) + 1000)
        return found

    async def find_signer(self, signature: UrlSignature) -> KnownCaller | None:
        """The caller who signed a request; None when the signature is not valid."""
        id = signature.signer
        found = self._signers.get(id)
        if found is None or found.until <= time.monotonic():
            try:
                found = await self._asking_signers.get(id, lambda: self._ask_signer(id))
            except DatabaseUnavailable:
                if found is None or not found.is_believed:
                    raise
                return found if found.signed(signature) else None
            if found is not None:
                self._signers.put(id, found, len(id) + 1000)
        return found if found is not None and found.signed(signature) else None

    async def signer_of(self, caller: KnownCaller) -> Signer:
        """Signer of a caller's URLs, which end with the token or JWT that it came with."""
        if self._key is None:
            raise RuntimeError("callers are known once the service has its key")
        return caller.origin.signer(await self._key.get())

    async def _ask(self, token: Token) -> KnownCaller | None:
        asked = time.monotonic()  # before the read: what was revoked during it counts as valid for no longer
        record = await self._tokens.find(token)
        if record is None:
            return None
        await self._tokens.note_use(record)
        return KnownCaller(record.principal, _until(record, asked), record)

    async def _ask_signer(self, id: str) -> KnownCaller | None:
        asked = time.monotonic()
        if not is_token_id(id):
            return await self._restore(id, asked)
        if self._key is None:
            return None
        record, keys = await both(lambda: self._tokens.get(id), self._key.all)
        if record is None:
            return None
        return KnownCaller(record.principal, _until(record, asked), record, [record.signer(each).key for each in keys])

    async def _restore(self, text: str, asked: float) -> KnownCaller | None:
        """The caller of a sealed identity; None for any other text, and once the JWT would not be taken."""
        if self._verifier is None or self._key is None:
            return None
        from protoslice.server.auth.oidc.sign_in import identity_key, read_identity

        keys = await self._key.all()
        identity = read_identity(keys, text)
        principal = None if identity is None else await self._verifier.restore(identity)
        if identity is None or principal is None:
            return None
        left = min(KNOWN_SECONDS, identity.end - time.time())
        return KnownCaller(principal, asked + left, identity, [identity_key(each, text) for each in keys])

    async def _verify(self, text: str) -> KnownCaller | None:
        if self._verifier is None or not text:
            return None
        verified = await self._verifier.find(text)
        if verified is None:
            return None
        left = min(KNOWN_BY_JWT_SECONDS, verified.expires - time.time())
        return KnownCaller(verified.principal, time.monotonic() + left, verified.identity())


def _until(record: TokenRecord, asked: float) -> float:
    """Time until which the caller of a record is known, on the monotonic clock."""
    left = KNOWN_SECONDS if record.expires is None else record.expires.timestamp() - time.time()
    return asked + min(KNOWN_SECONDS, left)


def is_empty(authorization: str) -> bool:
    """True for a login of Basic without a name and without a password, as skopeo sends when it has none."""
    return authorization.partition(" ")[2].strip() == "Og=="


def _without_hub_prefix(secret: str) -> str:
    """Return a secret without `hf_`; llama.cpp sends no other characters than letters and digits behind it."""
    rest = secret.removeprefix(_HUB_PREFIX)
    return f"{PREFIX}{rest}" if rest != secret and rest.isalnum() else rest


def secret_in(authorization: str) -> str:
    """The secret in the value of `Authorization`: of Bearer, or the password of Basic; empty without one.

    Clients of Hugging Face send a token with `hf_` in front, or `hf_` in place of `psl_`.
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
