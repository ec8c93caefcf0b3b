"""Signatures: permissions of a caller until an end, as signed URLs and as sessions.

Keys are made of the key of the service and of what is kept of the caller, the hash of a token or a sealed identity,
so that neither is enough to sign; and each purpose has a key of its own. No signature is valid for longer than its
purpose allows, even if it was made with a later end.
"""

from __future__ import annotations

import hmac
import math
import re
import time
from enum import StrEnum
from hashlib import sha256
from typing import Final, NamedTuple

from starlette.types import Scope

_PARAMETERS: Final = (
    rb"psl-expires=([0-9]{1,12})&psl-token=([0-9A-Za-z]{10}|[0-9A-Za-z_-]{40,1600})&psl-signature=([0-9a-f]{64})"
)
_SIGNED: Final = re.compile(rb"(?:(.*)&)?" + _PARAMETERS, re.DOTALL)
"""Query of a signed URL; the signature stands last, and covers every byte before it as it was sent."""
_ALONE: Final = re.compile(rb"(/[^?#]*)\?" + _PARAMETERS)
"""Target whose query is a signature alone."""
_PROOF: Final = 64 + len("&psl-signature=")
SESSION_SECONDS: Final = 8 * 3600
URL_SECONDS: Final = 7 * 24 * 3600
_SKEW_SECONDS: Final = 30
"""Time that signatures end before the longest allowed: the clock of another replica may be behind."""


class Purpose(StrEnum):
    """Purposes of signatures; each has separate keys."""

    URL = "URL"
    SESSION = "session"

    @property
    def seconds(self) -> int:
        """Longest validity of a signature, from the moment at which it is looked at."""
        return URL_SECONDS if self is Purpose.URL else SESSION_SECONDS

    def end(self, wanted: float) -> int:
        """Return the end of a signature that is made now, `wanted` at most; seconds since the epoch."""
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
        """The beginning of its signer alone, as proofs do not belong in logs."""
        return f"UrlSignature({self.signer[:10]!r})"

    def proves(self, key: bytes) -> bool:
        """True when `key` made the proof and its end is valid; takes equally long for every wrong proof."""
        return hmac.compare_digest(_proof(key, self.purpose, self.signed), self.proof) and self.is_valid

    @property
    def is_valid(self) -> bool:
        """True while its end is ahead, and no further than its purpose allows."""
        return 0 < self.expires - time.time() <= self.purpose.seconds


class Signer(NamedTuple):
    """Caller who signs: its name in signatures, its key, and the end that no signature of it outlives."""

    id: str
    key: bytes
    end: float = math.inf

    def __repr__(self) -> str:
        """The beginning of its id alone, as keys do not belong in logs."""
        return f"Signer({self.id[:10]!r})"

    def sign(self, method: str, target: str, expires: float) -> tuple[str, int]:
        """`target`, a path with its query as clients will send them, signed for `method`, and its end.

        The end is `expires`, in seconds since the epoch, that of the signer, or a week from now.
        """
        end = Purpose.URL.end(min(expires, self.end))
        said = f"{target}{'&' if '?' in target else '?'}psl-expires={end}&psl-token={self.id}"
        return f"{said}&psl-signature={self.prove(Purpose.URL, f'{method} {said}')}", end

    def prove(self, purpose: Purpose, said: str) -> str:
        """Return the HMAC of `said` under the key for a purpose."""
        return _proof(self.key, purpose, said.encode())


def signing_key(service_key: bytes, kind: str, known: bytes) -> bytes:
    """Return the key of a signer, made of the service's and of what is kept of a `kind` of caller."""
    return hmac.digest(service_key, f"protoslice signer {kind}\0".encode() + known, sha256)


def signed_alone(target: bytes) -> tuple[bytes, UrlSignature] | None:
    """Path and signature of a GET's target whose query is a signature alone; None for any other."""
    found = _ALONE.fullmatch(target)
    if found is None:
        return None
    signature = UrlSignature(found[3].decode(), int(found[2]), b"GET " + target[:-_PROOF], found[4].decode())
    return found[1], signature


def is_signed(scope: Scope) -> bool:
    """True when the query of a request ends with a signature, valid or not."""
    return b"psl-signature=" in scope["query_string"]


def take_signature(scope: Scope) -> UrlSignature | None:
    """Take the signature off the query of a request, so that nothing behind shows it; None without one.

    HEAD goes by the signature of GET.
    """
    query: bytes = scope["query_string"]
    found = _SIGNED.fullmatch(query) if is_signed(scope) else None
    if found is None:
        return None
    scope["query_string"] = found[1] or b""
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    method = "GET" if scope["method"] == "HEAD" else scope["method"]
    signed = b"%b %b?%b" % (method.encode(), path, query[:-_PROOF])
    return UrlSignature(found[3].decode(), int(found[2]), signed, found[4].decode())


def _proof(key: bytes, purpose: Purpose, signed: bytes) -> str:
    own = hmac.digest(key, f"protoslice signed {purpose}".encode(), sha256)
    return hmac.digest(own, signed, sha256).hex()
