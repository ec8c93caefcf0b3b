"""Signatures: permissions of a caller for a limited time, in signed URLs and session cookies, and their key.

Keys are derived from the key of the service and from what is stored about the caller (the hash of a token, or a sealed
identity), so that neither part alone is enough to sign. Each purpose has a separate key. No signature is valid for
longer than its purpose allows, even if it was made with a later end. Replicas store no signatures.

A cookie holds no secret of its caller. A session ends after some hours, or when its token or JWT does, at every
replica. A cookie only counts for requests of the service's pages, and under the name of the host that set the cookie.
"""

from __future__ import annotations

import hmac
import math
import re
import secrets
import time
from collections.abc import Sequence
from enum import StrEnum
from hashlib import sha256
from typing import Final, NamedTuple, cast

from starlette.types import Scope

from protoslice.concurrency.results import SingleFlight
from protoslice.database.transactions import Database, Row, Transaction
from protoslice.errors import IntegrityError
from protoslice.server.http.headers import HeaderMap
from protoslice.server.http.security import is_own_page

_PARAMETERS: Final = (
    rb"psl-expires=([0-9]{1,12})&psl-token=([0-9A-Za-z]{10}|[0-9A-Za-z_-]{40,1600})&psl-signature=([0-9a-f]{64})"
)
_SIGNED: Final = re.compile(rb"(?:(.*)&)?" + _PARAMETERS, re.DOTALL)
"""Query of a signed URL; the signature is last, and covers every byte before it exactly as it was sent."""
_ALONE: Final = re.compile(rb"(/[^?#]*)\?" + _PARAMETERS)
"""Target whose query is a signature alone."""
_PROOF: Final = 64 + len("&psl-signature=")
SESSION_SECONDS: Final = 8 * 3600
URL_SECONDS: Final = 7 * 24 * 3600
_SKEW_SECONDS: Final = 30
"""Time that signatures end before the longest allowed: the clock of another replica may be behind."""
REMEMBERED_SECONDS: Final = 5.0
"""Time until the key is read again: all that it vouched for ends with it."""
_BYTES: Final = 32
SIGNATURE: Final = "protoslice.signature"
"""Key in the scope of a signature that a facade has found."""


class Purpose(StrEnum):
    """Purposes of signatures; each has separate keys."""

    URL = "URL"
    SESSION = "session"
    S3 = "S3"

    @property
    def seconds(self) -> int:
        """Longest validity of a signature, counted from the moment at which it is checked."""
        return SESSION_SECONDS if self is Purpose.SESSION else URL_SECONDS

    def end(self, wanted: float) -> int:
        """Return the end of a signature that is made now, at most `wanted`, in seconds since the epoch."""
        return int(min(wanted, time.time() + self.seconds - _SKEW_SECONDS))


class UrlSignature(NamedTuple):
    """Signature of a request: its signer, its end, what it covers, and the proof."""

    signer: str
    """Id of a token, or the sealed identity of a JWT."""
    expires: int
    signed: bytes
    proof: str
    purpose: Purpose = Purpose.URL

    def __repr__(self) -> str:
        """Return only the beginning of its signer, because proofs must not be logged."""
        return f"UrlSignature({self.signer[:10]!r})"

    def proves(self, key: bytes) -> bool:
        """Return True when `key` made the proof and its end is valid; takes equally long for every wrong proof."""
        return hmac.compare_digest(proof(key, self.purpose, self.signed), self.proof) and self.is_valid

    @property
    def is_valid(self) -> bool:
        """True while its end is in the future, and not further away than its purpose allows."""
        return 0 < self.expires - time.time() <= self.purpose.seconds


class Signer(NamedTuple):
    """Caller who signs: its name in signatures, its key, and the latest end of its signatures."""

    id: str
    key: bytes
    end: float = math.inf

    def __repr__(self) -> str:
        """Return only the beginning of its id, because keys must not be logged."""
        return f"Signer({self.id[:10]!r})"

    def sign(self, method: str, target: str, expires: float) -> tuple[str, int]:
        """Return `target`, a path with its query as clients will send it, signed for `method`, and its end.

        The end is the earliest of `expires` (seconds since the epoch), the end of the signer, and a week from now.
        """
        end = Purpose.URL.end(min(expires, self.end))
        said = f"{target}{'&' if '?' in target else '?'}psl-expires={end}&psl-token={self.id}"
        return f"{said}&psl-signature={self.hmac(Purpose.URL, f'{method} {said}')}", end

    def hmac(self, purpose: Purpose, said: str) -> str:
        """Return the HMAC of `said` with the key for a purpose."""
        return proof(self.key, purpose, said.encode())


def signer_key(service_key: bytes, kind: str, known: bytes) -> bytes:
    """Return the key of a signer, derived from the service's key and from what is stored about a `kind` of caller."""
    return hmac.digest(service_key, f"protoslice signer {kind}\0".encode() + known, sha256)


class SigningKey:
    """Key in the catalogue, made by the first replica that needs it, and combined with external secrets, if any.

    With several secrets there are several keys: the first key signs and seals, and all keys verify.
    """

    def __init__(self, database: Database, secrets: Sequence[str] = ()) -> None:
        self._database = database
        self._secrets = secrets
        self._found: tuple[bytes, ...] = ()
        self._until = -math.inf
        self._asking: SingleFlight[None, tuple[bytes, ...]] = SingleFlight()

    async def get(self) -> bytes:
        """Return the key that signs; see `all`."""
        return (await self.all())[0]

    async def all(self) -> tuple[bytes, ...]:
        """Return the keys that verify; they may be some seconds old."""
        if time.monotonic() < self._until:
            return self._found
        return await self._asking.get(None, self._ask)

    async def _ask(self) -> tuple[bytes, ...]:
        asked = time.monotonic()
        self._found = await self._read()
        self._until = asked + REMEMBERED_SECONDS
        return self._found

    async def _read(self) -> tuple[bytes, ...]:
        def work(tx: Transaction) -> Row | None:
            tx.run("UPDATE meta SET service_key = :made WHERE service_key IS NULL", made=secrets.token_bytes(_BYTES))
            return tx.first("SELECT service_key FROM meta")

        row = await self._database.read(
            lambda tx: tx.first("SELECT service_key FROM meta WHERE service_key IS NOT NULL")
        )
        row = row or await self._database.write(work)
        found = b"" if row is None else bytes(row[0])
        if len(found) != _BYTES:
            raise IntegrityError(
                "The service key in the database is damaged: run UPDATE meta SET service_key = NULL, and sign in again"
            )
        # A reader of the whole database has this key: with a secret of the operator, it is not enough.
        return tuple(hmac.digest(each.encode(), found, sha256) for each in self._secrets) or (found,)


def fingerprints(secrets: Sequence[str]) -> list[str]:
    """Return what the database stores about the secrets of a process; `-` means none.

    These 16 bits detect secrets that differ by mistake. They do not confirm a guess, since one in 65 536 guesses fits:
    a weak secret is no easier to find for those who read the database.
    """
    return [hmac.digest(each.encode(), b"protoslice signing secret", sha256).hex()[:4] for each in secrets] or ["-"]


def signed_alone(target: bytes) -> tuple[bytes, UrlSignature] | None:
    """Return path and signature of a GET's target whose query is only a signature; None for any other target."""
    found = _ALONE.fullmatch(target)
    if found is None:
        return None
    signature = UrlSignature(found[3].decode(), int(found[2]), b"GET " + target[:-_PROOF], found[4].decode())
    return found[1], signature


def take_signature(scope: Scope) -> UrlSignature | None:
    """Remove the signature from the query of a request, so that later steps do not show it, and return it.

    Return None without a signature. HEAD uses the signature of GET. A registry with a different kind of signature has
    already put it into the scope.
    """
    if (given := scope.get(SIGNATURE)) is not None:
        return cast(UrlSignature, given)
    query: bytes = scope["query_string"]
    found = _SIGNED.fullmatch(query) if b"psl-signature=" in query else None
    if found is None:
        return None
    scope["query_string"] = found[1] or b""
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    method = "GET" if scope["method"] == "HEAD" else scope["method"]
    signed = b"%b %b?%b" % (method.encode(), path, query[:-_PROOF])
    return UrlSignature(found[3].decode(), int(found[2]), signed, found[4].decode())


def proof(key: bytes, purpose: Purpose, signed: bytes) -> str:
    own = hmac.digest(key, f"protoslice signed {purpose}".encode(), sha256)
    return hmac.digest(own, signed, sha256).hex()


SESSION: Final = "protoslice-session"
LOGIN: Final = "protoslice-login"
"""Name of the cookie of a sign-in in progress."""
_LONGEST: Final = 16 << 10
"""Characters of all cookies of a request; of more, none is read."""
_SESSION: Final = re.compile(r"([0-9]{1,12})\.([0-9A-Za-z]{10}|[0-9A-Za-z_-]{40,1600})\.([0-9a-f]{64})")


def session_of(scope: Scope, fields: HeaderMap) -> UrlSignature | None:
    """Return the session, not proved yet, of a request from one of our pages; None if it has none."""
    text = read_cookie(scope, fields, SESSION)
    found = None if text is None else _SESSION.fullmatch(text)
    if found is None or not is_own_page(scope["method"], fields):
        return None
    return UrlSignature(found[2], int(found[1]), _said(fields, found[1], found[2]).encode(), found[3], Purpose.SESSION)


def session_cookie(scope: Scope, fields: HeaderMap, signer: Signer) -> tuple[str, int]:
    """Return the value of Set-Cookie that begins a session, and its end in seconds since the epoch."""
    end = Purpose.SESSION.end(signer.end)
    value = f"{end}.{signer.id}.{signer.hmac(Purpose.SESSION, _said(fields, str(end), signer.id))}"
    return set_cookie(scope, SESSION, value, max(0, int(end - time.time())), "Strict"), end


def read_cookie(scope: Scope, fields: HeaderMap, name: str) -> str | None:
    """Return the cookie with a name; None unless exactly one cookie has the name."""
    # Of two, a neighbour in the domain has planted one.
    begin, all_of_them = f"{_name(scope, name)}=", fields.get(b"cookie", "")
    if len(all_of_them) > _LONGEST:
        return None
    found = [each.strip() for each in all_of_them.split(";")]
    values = [each.removeprefix(begin) for each in found if each.startswith(begin)]
    return values[0] if len(values) == 1 else None


def set_cookie(scope: Scope, name: str, value: str, seconds: int, same_site: str) -> str:
    """Return the value of Set-Cookie for a cookie that scripts cannot read; 0 seconds remove it."""
    secure = "; Secure" if scope["scheme"] == "https" else ""
    return f"{_name(scope, name)}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite={same_site}{secure}"


def _name(scope: Scope, name: str) -> str:
    # Browsers take __Host- over TLS alone, and then from this very host.
    return f"__Host-{name}" if scope["scheme"] == "https" else name


def _said(fields: HeaderMap, end: str, signer: str) -> str:
    """Return the text that a session signs."""
    return f"session {fields.get(b'host', '').lower()} {end} {signer}"
