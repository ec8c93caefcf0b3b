"""Digests of what moves: the fields of RFC 9530, and hashing beside the moving."""

from __future__ import annotations

import hashlib
import re
from base64 import b64decode
from binascii import Error as BadBase64
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Final, Self

from protoslice.errors import IntegrityError

__all__ = ["Hashing", "digest_in"]

_SHA256: Final = re.compile(r"(?:^|,)\s*sha-256=:([A-Za-z0-9+/=]{44}):")


def digest_in(field: str | None) -> bytes | None:
    """The sha-256 that Repr-Digest or Content-Digest gives; none when it gives none."""
    if field is None:
        return None
    found = _SHA256.search(field)
    if found is None:
        return None
    try:
        return b64decode(found[1], validate=True)
    except BadBase64:
        raise IntegrityError("the service gives a digest that is none") from None


class Hashing:
    """A sha-256 made in a thread of its own, while its owner waits for the disk or the network."""

    def __init__(self) -> None:
        self._sha = hashlib.sha256()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="protoslice-hash")
        self._before: Future[None] | None = None

    def update(self, data: bytes) -> None:
        """Take the next bytes; waits for the ones before."""
        self._wait()
        self._before = self._pool.submit(self._sha.update, data)

    def update_all(self, pieces: Iterable[bytes]) -> None:
        """Take all pieces, in the thread; what is given next waits for them."""
        self._wait()
        self._before = self._pool.submit(self._take, pieces)

    def _take(self, pieces: Iterable[bytes]) -> None:
        for piece in pieces:
            self._sha.update(piece)

    def hexdigest(self) -> str:
        """The digest of all that was given."""
        self._wait()
        return self._sha.hexdigest()

    def _wait(self) -> None:
        """What was given has been taken."""
        before, self._before = self._before, None
        if before is not None:
            before.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._pool.shutdown()
