"""Envelope: a small record with its own SHA-256, so that damage is detected."""

from __future__ import annotations

import hashlib

from protoslice.errors import IntegrityError

_DIGEST = 65  # a line feed and 64 hex digits


def seal(data: bytes) -> bytes:
    """`data` followed by its SHA-256."""
    return data + b"\n" + hashlib.sha256(data).hexdigest().encode()


def unseal(sealed: bytes, what: str) -> bytes:
    """The data of an envelope; `IntegrityError`, naming `what`, when the digest does not match."""
    data = sealed[:-_DIGEST]
    if len(sealed) < _DIGEST or seal(data) != sealed:
        raise IntegrityError(f"{what} is damaged: it does not match its digest")
    return data
