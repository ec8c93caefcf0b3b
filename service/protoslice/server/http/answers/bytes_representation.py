"""Bytes in memory as a representation."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

__all__ = ["BytesRepresentation"]


@dataclass(frozen=True, slots=True)
class BytesRepresentation:
    """Representation whose bytes are in memory."""

    data: bytes
    filename: str
    message_type: str | None
    etag: str
    media_type: str = "application/protobuf"
    headers: tuple[tuple[bytes, bytes], ...] = ()

    @property
    def size(self) -> int:
        """Number of bytes."""
        return len(self.data)

    @property
    def sha256(self) -> bytes:
        """SHA-256 of the bytes."""
        return hashlib.sha256(self.data).digest()
