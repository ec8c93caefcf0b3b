"""Signatures in signed URLs and session cookies, and their keys. A signature grants a caller's permissions for a while.

A caller's key is derived from two parts: the service's key, and either the hash of the caller's token or the caller's
sealed identity. Neither part alone is enough to sign. Each purpose has a separate key. No signature is valid for longer
than its purpose allows, even if it was made with a later end. Replicas store no signatures.

A cookie holds no secret of its caller. A session ends after some hours, or when the caller's token or JWT ends, at
every replica. A cookie only counts for requests of the service's own pages, and only on the host that set the cookie.
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
"""The query of a signed URL. The signature is last, and covers every byte before it exactly as it was sent."""
_ALONE: Final = re.compile(rb"(/[^?#]*)\?" + _PARAMETERS)
"""A request target whose query is nothing but a signature."""
_PROOF: Final = 64 + len("&psl-signature=")
SESSION_SECONDS: Final = 8 * 3600
URL_SECONDS: Final = 7 * 24 * 3600
_SKEW_SECONDS: Final = 30
"""The seconds by which a signature ends before its latest allowed end.

Without this margin, a replica whose clock is behind would refuse the signature.
"""
REMEMBERED_SECONDS: Final = 5.0
"""The seconds after which the key is read again. Signatures that were made with a replaced key then become invalid."""
_BYTES: Final = 32
SIGNATURE: Final = "protoslice.signature"
"""The key in the ASGI scope under which the S3 routes put a signature of S3."""


class Purpose(StrEnum):
    """The purposes of signatures. Each purpose has separate keys."""

    URL = "URL"
    SESSION = "session"
    S3 = "S3"

    @property
    def seconds(self) -> int:
        """The longest validity of a signature in seconds, counted from the moment of its verification."""
        return SESSION_SECONDS if self is Purpose.SESSION else URL_SECONDS

    def end(self, wanted: float) -> int:
        """Return the end of a signature that is made now, in seconds since the epoch.

        The end is `wanted`, or the latest end that the purpose allows if this is earlier.
        """
        return int(min(wanted, time.time() + self.seconds - _SKEW_SECONDS))


class UrlSignature(NamedTuple):
    """The signature of a request: its signer, its end, the bytes that it covers, and the proof."""

    signer: str
    """The id of a token, or the sealed identity from a JWT."""
    expires: int
    signed: bytes
    proof: str
    purpose: Purpose = Purpose.URL

    def __repr__(self) -> str:
        """Return only the beginning of the signer's id, because proofs must not be logged."""
        return f"UrlSignature({self.signer[:10]!r})"

    def proves(self, key: bytes) -> bool:
        """Return True if `key` made the proof, and if the signature's end is valid.

        The comparison takes equally long for all wrong proofs.
        """
        return hmac.compare_digest(proof(key, self.purpose, self.signed), self.proof) and self.is_valid

    @property
    def is_valid(self) -> bool:
        """True if the signature's end is in the future, but no further away than the purpose allows."""
        return 0 < self.expires - time.time() <= self.purpose.seconds


class Signer(NamedTuple):
    """A caller who signs: its id in signatures, its key, and the latest end of its signatures."""

    id: str
    key: bytes
    end: float = math.inf

    def __repr__(self) -> str:
        """Return only the beginning of the id, because keys must not be logged."""
        return f"Signer({self.id[:10]!r})"

    def sign(self, method: str, target: str, expires: float) -> tuple[str, int]:
        """Return `target` with a signature for `method`, and the end of the signature.

        `target` is a path and query as clients will send them. The end is the earliest of `expires` (seconds since the
        epoch), the end of the signer, and a week from now.
        """
        end = Purpose.URL.end(min(expires, self.end))
        said = f"{target}{'&' if '?' in target else '?'}psl-expires={end}&psl-token={self.id}"
        return f"{said}&psl-signature={self.hmac(Purpose.URL, f'{method} {said}')}", end

    def hmac(self, purpose: Purpose, said: str) -> str:
        """Return the HMAC of `said` with the key for a purpose."""
        return proof(self.key, purpose, said.encode())


def signer_key(service_key: bytes, kind: str, known: bytes) -> bytes:
    """Derive a signer's key from the service's key and from the stored facts about a `kind` of caller."""
    return hmac.digest(service_key, f"protoslice signer {kind}\0".encode() + known, sha256)


class SigningKey:
    """The service's key. The first replica that needs the key makes one and stores it in the catalogue.

    If the operator sets secrets, the stored key is combined with each secret. Each combination is one key. The first
    key signs and seals, and all keys verify.
    """

    def __init__(self, database: Database, secrets: Sequence[str] = ()) -> None:
        self._database = database
        self._secrets = secrets
        self._found: tuple[bytes, ...] = ()
        self._until = -math.inf
        self._asking: SingleFlight[None, tuple[bytes, ...]] = SingleFlight()

    async def get(self) -> bytes:
        """Return the key that signs, which is the first of `all`."""
        return (await self.all())[0]

    async def all(self) -> tuple[bytes, ...]:
        """Return the keys that verify. They may be some seconds old."""
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
        # Anyone who reads the whole database has this key. If the operator has set a secret, the stored key alone is
        # not enough for signing.
        return tuple(hmac.digest(each.encode(), found, sha256) for each in self._secrets) or (found,)


def fingerprints(secrets: Sequence[str]) -> list[str]:
    """Return the fingerprints of a process's secrets, which the database stores. `-` means that the process has none.

    These 16 bits detect secrets that differ by mistake. They do not confirm a guess, because one in 65 536 guesses
    fits. A reader of the database therefore cannot find a weak secret more easily.
    """
    return [hmac.digest(each.encode(), b"protoslice signing secret", sha256).hex()[:4] for each in secrets] or ["-"]


def signed_alone(target: bytes) -> tuple[bytes, UrlSignature] | None:
    """Return the path and signature in a GET's target, if the target's query is only a signature.

    Otherwise return None.
    """
    found = _ALONE.fullmatch(target)
    if found is None:
        return None
    signature = UrlSignature(found[3].decode(), int(found[2]), b"GET " + target[:-_PROOF], found[4].decode())
    return found[1], signature


def take_signature(scope: Scope) -> UrlSignature | None:
    """Return the signature in a request's query, and remove it from the query, so that later steps do not show it.

    Return None without a signature. A HEAD request uses the signature for GET. The S3 routes have another kind of
    signature, which they have already put into the scope.
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
"""The name of the cookie for a sign-in in progress."""
_LONGEST: Final = 16 << 10
"""The limit on the total length of a request's cookies, in characters. Above this limit, no cookie is read."""
_SESSION: Final = re.compile(r"([0-9]{1,12})\.([0-9A-Za-z]{10}|[0-9A-Za-z_-]{40,1600})\.([0-9a-f]{64})")


def session_of(scope: Scope, fields: HeaderMap) -> UrlSignature | None:
    """Return the unverified session of a request from one of the service's own pages. Return None without a session."""
    text = read_cookie(scope, fields, SESSION)
    found = None if text is None else _SESSION.fullmatch(text)
    if found is None or not is_own_page(scope["method"], fields):
        return None
    return UrlSignature(found[2], int(found[1]), _said(fields, found[1], found[2]).encode(), found[3], Purpose.SESSION)


def session_cookie(scope: Scope, fields: HeaderMap, signer: Signer) -> tuple[str, int]:
    """Return the value of Set-Cookie that begins a session, and the session's end in seconds since the epoch."""
    end = Purpose.SESSION.end(signer.end)
    value = f"{end}.{signer.id}.{signer.hmac(Purpose.SESSION, _said(fields, str(end), signer.id))}"
    return set_cookie(scope, SESSION, value, max(0, int(end - time.time())), "Strict"), end


def read_cookie(scope: Scope, fields: HeaderMap, name: str) -> str | None:
    """Return the value of the cookie with a name. Return None unless exactly one cookie has this name."""
    # If two cookies have the name, another host in the domain may have set one of the two.
    begin, all_of_them = f"{_name(scope, name)}=", fields.get(b"cookie", "")
    if len(all_of_them) > _LONGEST:
        return None
    found = [each.strip() for each in all_of_them.split(";")]
    values = [each.removeprefix(begin) for each in found if each.startswith(begin)]
    return values[0] if len(values) == 1 else None


def set_cookie(scope: Scope, name: str, value: str, seconds: int, same_site: str) -> str:
    """Return the value of Set-Cookie for a cookie that scripts cannot read.

    A lifetime of 0 seconds removes the cookie.
    """
    secure = "; Secure" if scope["scheme"] == "https" else ""
    return f"{_name(scope, name)}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite={same_site}{secure}"


def _name(scope: Scope, name: str) -> str:
    # Browsers accept the prefix __Host- only over TLS, and only if this very host sets the cookie.
    return f"__Host-{name}" if scope["scheme"] == "https" else name


def _said(fields: HeaderMap, end: str, signer: str) -> str:
    """Return the text that a session's signature covers."""
    return f"session {fields.get(b'host', '').lower()} {end} {signer}"
