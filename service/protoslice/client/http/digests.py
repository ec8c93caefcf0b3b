"""Digests of what moves: the fields of RFC 9530, and hashing beside the moving."""

from __future__ import annotations

import hashlib
import re
from base64 import b64decode, b64encode
from binascii import Error as BadBase64
from collections.abc import Iterable
from queue import Queue
from threading import Thread
from types import TracebackType
from typing import Final, Self

from protoslice.errors import IntegrityError

__all__ = ["Hashing", "digest_in", "digest_of"]

_AHEAD: Final = 8
"""How many pieces wait to be hashed at most."""
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


def digest_of(body: bytes) -> str:
    """Value of Content-Digest for `body`."""
    return f"sha-256=:{b64encode(hashlib.sha256(body).digest()).decode()}:"


class Hashing:
    """A sha-256 made in a thread of its own, while its owner waits for the disk or the network."""

    def __init__(self) -> None:
        self._sha = hashlib.sha256()
        self._due: Queue[Iterable[bytes] | None] = Queue(_AHEAD)
        self._failure: Exception | None = None
        self._stopped = False
        # A daemon: a program that is interrupted while it ends the thread must not wait for that.
        self._thread = Thread(target=self._run, name="protoslice-hash", daemon=True)

    def update(self, pieces: Iterable[bytes]) -> None:
        """Take these bytes, in the thread, behind those given before; waits while much is still to be done."""
        if self._thread.ident is None:
            self._thread.start()
        self._due.put(pieces)

    def hexdigest(self) -> str:
        """The digest of all that was given. Raises what an iterator raised; it is the last call."""
        self._end()
        if self._failure is not None:
            raise self._failure
        return self._sha.hexdigest()

    def _run(self) -> None:
        while (pieces := self._due.get()) is not None:
            try:
                self._take(pieces)
            except Exception as error:  # the owner is told, who must never wait for a thread that has ended
                self._failure, self._stopped = error, True

    def _take(self, pieces: Iterable[bytes]) -> None:
        for piece in pieces:
            if self._stopped:
                return
            self._sha.update(piece)

    def _end(self) -> None:
        if self._thread.is_alive():
            self._due.put(None)
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._stopped = True
        self._end()
