"""Sign-in of people: code flow with PKCE, bound to the browser by a sealed cookie."""

from __future__ import annotations

import hmac
import json
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any, Final
from urllib.parse import urlencode

from joserfc.util import urlsafe_b64encode

from protoslice.errors import ProtosliceError
from protoslice.server.auth.oidc.documents import Documents, endpoint
from protoslice.server.auth.oidc.sealing import seal, unseal
from protoslice.server.auth.oidc.trust import Issuer

BEGUN_SECONDS: Final = 600
"""Time in which a sign-in that was begun has to end."""
_REMEMBERED_SECONDS: Final = 300.0
_PURPOSE: Final = "login"
_CODE: Final = re.compile(r"[!-~]{1,2048}")
_NAME: Final = re.compile(r"[a-z_]{1,64}")


class SignInFailed(Exception):
    """A sign-in that ends without a caller; the message says why, for the person who signs in."""


@dataclass(frozen=True, slots=True)
class BegunSignIn:
    """A sign-in under way, as the browser that began it keeps it."""

    state: str
    nonce: str
    verifier: str
    following: str
    """Place of the page that the person goes on to."""
    end: float


class SignIn:
    """Sign-in at one issuer, as a client of it."""

    def __init__(self, issuer: Issuer, documents: Documents) -> None:
        self.issuer = issuer
        self.client = str(issuer.login_client)
        self._documents = documents
        self._login = None if issuer.login_secret is None else (self.client, issuer.login_secret)
        self._known: tuple[float, Mapping[str, Any]] | None = None

    async def begin(self, key: bytes, callback: str, following: str) -> tuple[str, str]:
        """Address at the issuer that the person goes to, and the sealed state that the browser keeps."""
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
        return said, seal(key, _PURPOSE, json.dumps(asdict(begun)).encode())

    async def finish(
        self, keys: Sequence[bytes], callback: str, kept: str | None, said: Mapping[str, str]
    ) -> tuple[str, BegunSignIn]:
        """The id token for the answer `said` of the issuer, unverified, and the sign-in; `SignInFailed`."""
        begun = _begun(keys, kept)
        if not hmac.compare_digest(begun.state.encode(), said.get("state", "").encode(errors="replace")):
            raise SignInFailed("This is not the response to the last sign-in that was started in this browser")
        if said.get("iss", self.issuer.url) != self.issuer.url:
            raise SignInFailed("The response is from another identity provider")
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
            given = (await self._documents.post(place, form, self._login)).get("id_token")
        except ProtosliceError:
            raise SignInFailed("The identity provider rejected the code, or cannot be reached") from None
        if not isinstance(given, str):
            raise SignInFailed("The identity provider sent no id token")
        return given, begun

    def check(self, begun: BegunSignIn, claims: Mapping[str, Any]) -> None:
        """Raise `SignInFailed` unless verified `claims` are those of this sign-in."""
        audience, nonce = claims.get("aud"), claims.get("nonce")
        if claims.get("iss") != self.issuer.url:
            raise SignInFailed("The id token is from another issuer")
        if self.client not in (audience if isinstance(audience, list) else [audience]):
            raise SignInFailed("The id token is for another client")
        if claims.get("azp", self.client) != self.client:
            raise SignInFailed("The id token was issued to another client")
        if not isinstance(nonce, str) or not hmac.compare_digest(nonce.encode(errors="replace"), begun.nonce.encode()):
            raise SignInFailed("The id token belongs to another sign-in")

    async def _configuration(self) -> Mapping[str, Any]:
        if self._known is None or self._known[0] <= time.monotonic():
            found = await self._documents.configuration(self.issuer.url)
            self._known = time.monotonic() + _REMEMBERED_SECONDS, found
        return self._known[1]


def _begun(keys: Sequence[bytes], kept: str | None) -> BegunSignIn:
    data = None if kept is None else unseal(keys, _PURPOSE, kept)
    if data is None:
        raise SignInFailed("No sign-in was started in this browser, or its cookie is missing")
    begun = BegunSignIn(**json.loads(data))
    if begun.end <= time.time():
        raise SignInFailed("The sign-in took too long")
    return begun
