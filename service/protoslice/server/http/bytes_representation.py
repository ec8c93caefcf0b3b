"""Bytes in memory as a representation."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

__all__ = ["BytesRepresentation"]


@dataclass(frozen=True, slots=True)
class BytesRepresentation:
    """What is known of bytes that are at hand."""

    data: bytes
    filename: str
    message_type: str | None
    etag: str
    media_type: str = "application/protobuf"
    headers: tuple[tuple[bytes, bytes], ...] = ()

    @property
    def size(self) -> int:
        """How many."""
        return len(self.data)

    @property
    def sha256(self) -> bytes:
        """Their digest."""
        return hashlib.sha256(self.data).digest()
