"""Digests of transferred bytes: the header fields of RFC 9530, and a hash that is computed in a thread."""

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

_AHEAD: Final = 8
"""Maximum number of pieces that wait to be hashed."""
_SHA256: Final = re.compile(r"(?:^|,)\s*sha-256=:([A-Za-z0-9+/=]{44}):")


def digest_in(field: str | None) -> bytes | None:
    """Return the SHA-256 in the value of a Repr-Digest or Content-Digest field, or None if there is no SHA-256."""
    if field is None:
        return None
    found = _SHA256.search(field)
    if found is None:
        return None
    try:
        return b64decode(found[1], validate=True)
    except BadBase64:
        raise IntegrityError("The service sent a malformed digest") from None


def digest_of(body: bytes) -> str:
    """Return the value of the Content-Digest field for `body`."""
    return f"sha-256=:{b64encode(hashlib.sha256(body).digest()).decode()}:"


class BackgroundHash:
    """A SHA-256 that a thread computes while the owner waits for the disk or the network."""

    def __init__(self) -> None:
        self._sha = hashlib.sha256()
        self._due: Queue[Iterable[bytes] | None] = Queue(_AHEAD)
        self._failure: Exception | None = None
        self._stopped = False
        # An interrupted program does not wait for a daemon thread.
        self._thread = Thread(target=self._run, name="protoslice-hash", daemon=True)

    def update(self, pieces: Iterable[bytes]) -> None:
        """Queue `pieces` to be hashed in the thread, and wait while the queue is full."""
        if self._thread.ident is None:
            self._thread.start()
        self._due.put(pieces)

    def hexdigest(self) -> str:
        """Return the digest of all bytes, in hex. This has to be the last call.

        If an iterator that was passed to `update` failed, raise its exception.
        """
        self._end()
        if self._failure is not None:
            raise self._failure
        return self._sha.hexdigest()

    def _run(self) -> None:
        while (pieces := self._due.get()) is not None:
            try:
                self._take(pieces)
            except Exception as error:  # continue the loop: otherwise the owner would wait for an ended thread
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
