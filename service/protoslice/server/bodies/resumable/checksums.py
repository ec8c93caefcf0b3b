"""The checksums that a request may give for its own body: tus' Upload-Checksum, and Content-Digest."""

from __future__ import annotations

import hashlib
from base64 import b64decode
from binascii import Error as BadBase64
from collections.abc import Callable
from typing import Final

from protoslice import _core
from protoslice.errors import InvalidInput
from protoslice.server.http.digests import parse_digest
from protoslice.server.http.headers import Fields
from protoslice.stores.uploads import Checksum, Hash


class _Crc32c:
    """CRC-32C in four bytes, the highest first."""

    def __init__(self) -> None:
        self._crc = 0

    def update(self, piece: bytes | memoryview, /) -> None:
        self._crc = _core.crc32c(piece, self._crc)

    def digest(self) -> bytes:
        return self._crc.to_bytes(4, "big")


# SHA-1 secures nothing; tus wants every server to know it.
_KNOWN: Final[dict[str, Callable[[], Hash]]] = {
    "sha256": hashlib.sha256,
    "crc32c": _Crc32c,
    "sha1": lambda: hashlib.sha1(usedforsecurity=False),
}
ALGORITHMS: Final = tuple(_KNOWN)


def checksum_of(fields: Fields) -> Checksum | None:
    """Checksum that the request gives for its body; None when it gives none."""
    given = fields.get(b"upload-checksum")
    if given is None:
        digest = parse_digest(fields.get(b"content-digest"))
        return None if digest is None else Checksum(hashlib.sha256(), digest)
    name, _, value = given.strip().partition(" ")
    if name not in _KNOWN:
        raise InvalidInput(f"Unsupported checksum {name[:40]!r}: use one of {', '.join(ALGORITHMS)}")
    algorithm = _KNOWN[name]()
    try:
        digest = b64decode(value, validate=True)
    except (BadBase64, ValueError):
        digest = b""
    if len(digest) != len(algorithm.digest()):
        raise InvalidInput(f"Invalid Upload-Checksum: use {name} <the digest in base64>")
    return Checksum(algorithm, digest)
