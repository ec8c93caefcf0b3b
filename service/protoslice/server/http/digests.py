"""Digest fields (RFC 9530). Only sha-256 is supported."""

from __future__ import annotations

import hashlib
import re
from base64 import b64decode, b64encode
from binascii import Error as BadBase64
from collections.abc import AsyncIterator
from functools import lru_cache
from typing import Final

from protoslice.errors import InvalidInput
from protoslice.server.http.headers import HeaderMap
from protoslice.server.problems import DIGEST, HttpProblem

_MEMBER: Final = re.compile(r"[ \t]*([a-z*][a-z0-9_.*-]*)[ \t]*=[ \t]*(:[A-Za-z0-9+/=]*:|[^,;]*)[^,]*")


@lru_cache(maxsize=4096)
def format_digest(digest: bytes) -> bytes:
    """Return the value of Repr-Digest or Content-Digest for a sha-256."""
    return b"sha-256=:" + b64encode(digest) + b":"


def parse_digest(header: str | None) -> bytes | None:
    """Return the sha-256 in a digest field. Return None if the field is absent or has only other algorithms."""
    value = _members(header or "").get("sha-256")
    if value is None:
        return None
    try:
        digest = b64decode(value.strip(":"), validate=True)
    except (BadBase64, ValueError):
        digest = b""
    if len(digest) != 32 or not (value.startswith(":") and value.endswith(":")):
        raise InvalidInput("Invalid digest: use sha-256=:<the 32 bytes in base64>:")
    return digest


def wants_sha256(header: str | None) -> bool:
    """Return True if Want-Repr-Digest or Want-Content-Digest gives sha-256 a weight from 1 to 10."""
    weight = _members(header or "").get("sha-256", "0").strip()
    return weight.isascii() and weight.isdigit() and 1 <= int(weight[:3]) <= 10


def _members(header: str) -> dict[str, str]:
    """Return the members of a structured dictionary, in the form of digest fields.

    If several members have the same name, the last member counts.
    """
    return {match[1]: match[2].strip() for part in header.split(",") if (match := _MEMBER.fullmatch(part))}


class BodyDigest:
    """The sha-256 that a request declares for its whole body, in Content-Digest or Repr-Digest."""

    def __init__(self, fields: HeaderMap) -> None:
        given = {
            digest
            for name in (b"content-digest", b"repr-digest")
            if (digest := parse_digest(fields.get(name))) is not None
        }
        if len(given) > 1:
            raise InvalidInput(
                "Repr-Digest and Content-Digest differ, but must be equal for a complete, unencoded body"
            )
        self.expected: bytes | None = next(iter(given), None)
        self._hash = hashlib.sha256() if given else None

    def update(self, piece: bytes) -> None:
        """Hash a piece if the request declares a digest."""
        if self._hash is not None:
            self._hash.update(piece)

    async def watch(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the pieces. Hash them if the request declares a digest."""
        async for piece in pieces:
            self.update(piece)
            yield piece

    def check(self) -> None:
        """Raise `HttpProblem` unless the body has the declared digest."""
        if self._hash is not None and self._hash.digest() != self.expected:
            raise HttpProblem(DIGEST, "The body does not match its digest: nothing was changed")
