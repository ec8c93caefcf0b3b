"""Signed URLs: permissions of a token for one method, path and query, until an end."""

from __future__ import annotations

import hmac
import re
import time
from hashlib import sha256
from typing import Final, NamedTuple

from starlette.types import Scope

_SIGNED: Final = re.compile(
    rb"(?:(.*)&)?psl-expires=([0-9]{1,12})&psl-token=([0-9A-Za-z]{10})&psl-signature=([0-9a-f]{64})", re.DOTALL
)
"""Query of a signed URL; the signature stands last, and covers every byte before it as it was sent."""
_ALONE: Final = re.compile(
    rb"(/[^?#]*)\?psl-expires=([0-9]{1,12})&psl-token=([0-9A-Za-z]{10})&psl-signature=([0-9a-f]{64})"
)
"""Target whose query is a signature alone."""
_PROOF: Final = 64 + len("&psl-signature=")


class UrlSignature(NamedTuple):
    """Signature of a request: the token that gave it, its end, what it covers, and the proof."""

    token: str
    expires: int
    signed: bytes
    proof: str

    def __repr__(self) -> str:
        """The token's id alone, as proofs do not belong in logs."""
        return f"UrlSignature({self.token!r})"

    def proves(self, key: bytes) -> bool:
        """True when `key` made the proof and its end is ahead; takes equally long for every wrong proof."""
        return hmac.compare_digest(_proof(key, self.signed), self.proof) and self.is_valid

    @property
    def is_valid(self) -> bool:
        """True while its end is ahead."""
        return time.time() < self.expires


def signing_key(kept: str) -> bytes:
    """Key of a token's signatures, from the hash in its record: it ends with the token, and needs no room."""
    return hmac.digest(bytes.fromhex(kept), b"protoslice signed URLs", sha256)


def sign(key: bytes, token: str, method: str, target: str, expires: int) -> str:
    """`target`, a path with its query as clients will send them, signed for `method` until `expires`."""
    said = f"{target}{'&' if '?' in target else '?'}psl-expires={expires}&psl-token={token}"
    return f"{said}&psl-signature={_proof(key, f'{method} {said}'.encode())}"


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


def _proof(key: bytes, signed: bytes) -> str:
    return hmac.digest(key, signed, sha256).hex()
