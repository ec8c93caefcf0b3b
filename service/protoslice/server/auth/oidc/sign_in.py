"""Sign-in with the code flow. In cookies and URLs, the state of a sign-in and identities from JWTs are sealed texts."""

from __future__ import annotations

import hmac
import json
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any, Final
from urllib.parse import urlencode

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from joserfc.util import urlsafe_b64decode, urlsafe_b64encode

from protoslice.errors import ProtosliceError, Unsupported
from protoslice.server.auth.oidc.issuers import Issuer
from protoslice.server.auth.oidc.keys import IssuerClient, endpoint
from protoslice.server.auth.signatures import Signer, signer_key

BEGUN_SECONDS: Final = 600
"""The seconds within which a sign-in has to finish."""
_REMEMBERED_SECONDS: Final = 300.0
_LONGEST: Final = 1100
"""The length limit of an identity in bytes. A sealed identity has to fit into a URL and a cookie."""
_NONCE: Final = 12
_TAG: Final = 16
_LOGIN: Final = "login"
_CALLER: Final = "caller"
_CODE: Final = re.compile(r"[!-~]{1,2048}")
_NAME: Final = re.compile(r"[a-z_]{1,64}")


class SignInFailed(Exception):
    """Raised when a sign-in fails. The message explains the reason to the person."""


@dataclass(frozen=True, slots=True)
class BegunSignIn:
    """A sign-in in progress. The browser keeps it in sealed form."""

    state: str
    nonce: str
    verifier: str
    following: str
    """The page to which the person is redirected after the sign-in."""
    end: float


class SignIn:
    """The sign-in at one issuer. The service is a client of this issuer."""

    def __init__(self, issuer: Issuer, issuer_client: IssuerClient) -> None:
        self.issuer = issuer
        self.client = str(issuer.login_client)
        self._issuer_client = issuer_client
        self._login = None if issuer.login_secret is None else (self.client, issuer.login_secret)
        self._known: tuple[float, Mapping[str, Any]] | None = None

    async def begin(self, key: bytes, callback: str, following: str) -> tuple[str, str]:
        """Return the issuer's address at which the person signs in, and the sealed state that the browser keeps."""
        end = time.time() + BEGUN_SECONDS
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        begun = BegunSignIn(state, nonce, verifier, following, end)
        challenge = urlsafe_b64encode(sha256(begun.verifier.encode()).digest()).decode()
        place = endpoint(await self._configuration(), "authorization_endpoint")
        asked = {
            "client_id": self.client, "redirect_uri": callback, "response_type": "code",
            "scope": " ".join(each for each in self.issuer.login_scopes if each != "offline_access"),
            "state": begun.state, "nonce": begun.nonce, "code_challenge": challenge, "code_challenge_method": "S256",
        }  # fmt: skip
        said = f"{place}{'&' if '?' in place else '?'}{urlencode(asked)}"
        return said, seal(key, _LOGIN, json.dumps(asdict(begun)).encode())

    async def finish(
        self, keys: Sequence[bytes], callback: str, kept: str | None, said: Mapping[str, str]
    ) -> tuple[str, BegunSignIn]:
        """Return the unverified id token for the response `said`, and the sign-in to which it belongs.

        Raise `SignInFailed` if the response is wrong or the issuer sends no id token.
        """
        begun = _begun(keys, kept)
        if not hmac.compare_digest(begun.state.encode(), said.get("state", "").encode(errors="replace")):
            raise SignInFailed("This is not the response to the last sign-in in this browser: sign in again")
        if said.get("iss", self.issuer.url) != self.issuer.url:
            raise SignInFailed("The response is from another identity provider: sign in again")
        code = said.get("code", "")
        if not _CODE.fullmatch(code):
            error = said.get("error", "")
            raise SignInFailed(
                "The identity provider did not complete the sign-in: "
                f"{error if _NAME.fullmatch(error) else 'no code in its response'}"
            )
        form = {
            "grant_type": "authorization_code", "code": code, "redirect_uri": callback, "client_id": self.client,
            "code_verifier": begun.verifier,
        }  # fmt: skip
        try:
            place = endpoint(await self._configuration(), "token_endpoint")
            given = (await self._issuer_client.post(place, form, self._login)).get("id_token")
        except ProtosliceError:
            raise SignInFailed("The identity provider rejected the code, or cannot be reached: sign in again") from None
        if not isinstance(given, str):
            raise SignInFailed("The identity provider sent no id token")
        return given, begun

    def check(self, begun: BegunSignIn, claims: Mapping[str, Any]) -> None:
        """Raise `SignInFailed` unless the verified `claims` belong to this sign-in."""
        audience, nonce = claims.get("aud"), claims.get("nonce")
        if claims.get("iss") != self.issuer.url:
            raise SignInFailed("The id token is from another issuer")
        if self.client not in (audience if isinstance(audience, list) else [audience]):
            raise SignInFailed("The audience of the id token is another client")
        if claims.get("azp", self.client) != self.client:
            raise SignInFailed("The id token was issued to another client")
        if not isinstance(nonce, str) or not hmac.compare_digest(nonce.encode(errors="replace"), begun.nonce.encode()):
            raise SignInFailed("The id token belongs to another sign-in: sign in again")

    async def _configuration(self) -> Mapping[str, Any]:
        if self._known is None or self._known[0] <= time.monotonic():
            found = await self._issuer_client.configuration(self.issuer.url)
            self._known = time.monotonic() + _REMEMBERED_SECONDS, found
        return self._known[1]


def _begun(keys: Sequence[bytes], kept: str | None) -> BegunSignIn:
    data = None if kept is None else unseal(keys, _LOGIN, kept)
    if data is None:
        raise SignInFailed("No sign-in was started in this browser, or its cookie is missing: sign in again")
    begun = BegunSignIn(**json.loads(data))
    if begun.end <= time.time():
        raise SignInFailed("The sign-in took too long: sign in again")
    return begun


@dataclass(frozen=True, slots=True)
class SealedIdentity:
    """A caller whom a JWT named, and the facts that a later check of the JWT's validity needs."""

    issuer: str
    """The fingerprint of the conditions under which the issuer's JWTs are accepted."""
    key_id: str | None
    caller: str
    """The id of the principal."""
    name: str
    rules: tuple[str, ...]
    """The fingerprints of the rules that matched."""
    end: float
    """The end of the JWT's validity, in seconds since the epoch."""

    def sealed(self, key: bytes) -> str:
        """Return the identity as a text that only the service can read. Raise `Unsupported` if the text is too long."""
        said = [self.issuer, self.key_id, self.caller, self.name, self.rules, self.end]
        data = json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
        if len(data) > _LONGEST:
            raise Unsupported(
                "Cannot sign URLs with this JWT, because it matches too many rules: use a token of this service"
            )
        return seal(key, _CALLER, data)

    def signer(self, key: bytes) -> Signer:
        """Return a signer for the caller. The signer's id is the sealed identity."""
        text = self.sealed(key)
        return Signer(text, identity_key(key, text), self.end)

    @property
    def expired(self) -> bool:
        """True if the JWT has expired."""
        return self.end <= time.time()


def identity_key(key: bytes, text: str) -> bytes:
    """Return the signing key of the caller whose sealed identity is `text`."""
    return signer_key(key, "statement", text.encode())


def read_identity(keys: Sequence[bytes], text: str) -> SealedIdentity | None:
    """Return the identity in a text that `sealed` made with one of these keys. Return None for any other text."""
    data = unseal(keys, _CALLER, text)
    if data is None:
        return None
    issuer, key_id, caller, name, rules, end = json.loads(data)
    return SealedIdentity(issuer, key_id, caller, name, tuple(rules), end)


def seal(key: bytes, purpose: str, data: bytes) -> str:
    """Encrypt and authenticate `data` with AES-256-GCM. Return a text that may be in URLs and cookies."""
    nonce = secrets.token_bytes(_NONCE)
    return urlsafe_b64encode(nonce + _cipher(key, purpose).encrypt(nonce, data, None)).decode()


def unseal(keys: Sequence[bytes], purpose: str, text: str) -> bytes | None:
    """Return the data in a text that `seal` made for this purpose with one of these keys. Otherwise return None."""
    try:
        sealed = urlsafe_b64decode(text.encode("ascii"))
        # Only one spelling of a text is valid. Unused bits of its last character would otherwise allow more spellings.
        if len(sealed) < _NONCE + _TAG or urlsafe_b64encode(sealed).decode() != text:
            return None
    except ValueError:
        return None
    for key in keys:
        with suppress(InvalidTag):
            return _cipher(key, purpose).decrypt(sealed[:_NONCE], sealed[_NONCE:], None)
    return None


def _cipher(key: bytes, purpose: str) -> AESGCM:
    """Return the cipher for a purpose.

    Each purpose has its own key, so a text cannot be unsealed for another purpose.
    """
    return AESGCM(hmac.digest(key, f"protoslice sealed {purpose}".encode(), sha256))
