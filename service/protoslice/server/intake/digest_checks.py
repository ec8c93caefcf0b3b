"""The digests a client sends with a body, compared with what arrived."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator

from protoslice.errors import InvalidInput
from protoslice.server.api.problems import DIGEST, HttpProblem
from protoslice.server.http.digests import parse_digest
from protoslice.server.http.headers import Fields

__all__ = ["BodyDigest"]


class BodyDigest:
    """The sha-256 that a request gives for its whole body, by Content-Digest or Repr-Digest."""

    def __init__(self, fields: Fields) -> None:
        given = {
            digest
            for name in (b"content-digest", b"repr-digest")
            if (digest := parse_digest(fields.get(name))) is not None
        }
        if len(given) > 1:
            raise InvalidInput("Repr-Digest and Content-Digest differ, but the body is sent whole and as it is")
        self.expected: bytes | None = next(iter(given), None)
        self._hash = hashlib.sha256() if given else None

    def update(self, piece: bytes) -> None:
        """Take in a piece, if there is something to compare with."""
        if self._hash is not None:
            self._hash.update(piece)

    async def watch(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The pieces, digested on their way when that was asked for."""
        async for piece in pieces:
            self.update(piece)
            yield piece

    def check(self) -> None:
        """Raise unless the body had the digest given."""
        if self._hash is not None and self._hash.digest() != self.expected:
            raise HttpProblem(DIGEST, "the digest given does not match what arrived: nothing was done with it")
