"""The body of a request that appends to an upload, its checksum, and the errors for refusing it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from protoslice.errors import ChecksumMismatch, Conflict


class Hash(Protocol):
    """A hash object like those of `hashlib`."""

    def update(self, piece: bytes | memoryview, /) -> None: ...

    def digest(self) -> bytes: ...


class Checksum:
    """The checksum of one request's body: an unused hash object and the expected digest."""

    __slots__ = ("_expected", "_hash")

    def __init__(self, hash: Hash, expected: bytes) -> None:
        self._hash = hash
        self._expected = expected

    def update(self, piece: bytes | memoryview) -> None:
        """Hash a piece of the body."""
        self._hash.update(piece)

    def matches(self) -> bool:
        """Return True when the hashed bytes have the expected digest."""
        return self._hash.digest() == self._expected


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """The body of an append request, with the facts from its headers."""

    pieces: AsyncIterator[bytes]
    offset: int
    size: int | None = None
    """The length of the body; None when it is not known beforehand."""
    length: int | None = None
    """The length of the whole upload; None when the client does not state it."""
    last: bool = False
    """True when the upload ends with this body."""
    checksum: Checksum | None = None
    sha256: bytes | None = None
    """The expected SHA-256 of the whole upload, or None; such an upload ends with this body and has a path."""

    @property
    def is_checked(self) -> bool:
        """True when no byte of the body may be stored before its digest was compared."""
        return self.checksum is not None or self.sha256 is not None

    def compare(self, sha256: bytes | None) -> None:
        """Raise `ChecksumMismatch` unless all expected digests match; `sha256` is the digest of the whole upload."""
        if self.checksum is not None and not self.checksum.matches():
            raise ChecksumMismatch("The bytes do not match their checksum: nothing was stored")
        if self.sha256 is not None and self.sha256 != sha256:
            raise ChecksumMismatch("The upload does not match its SHA-256: the body of this request was not stored")


class Superseded(Conflict):
    """The error for a request whose upload a newer request has continued."""

    def __init__(self) -> None:
        super().__init__("Another request has taken over this upload")
