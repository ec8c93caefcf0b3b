"""Small records with their own digest, so that a flipped bit is noticed and never believed."""

from __future__ import annotations

import hashlib

from protoslice.errors import IntegrityError

__all__ = ["seal", "unseal"]

_DIGEST = 65  # a line feed and 64 hex digits


def seal(data: bytes) -> bytes:
    """`data` and its SHA-256."""
    return data + b"\n" + hashlib.sha256(data).hexdigest().encode()


def unseal(sealed: bytes, what: str) -> bytes:
    """The data that `seal` was given; an `IntegrityError` that names `what` when it is not that any more."""
    data = sealed[:-_DIGEST]
    if len(sealed) < _DIGEST or seal(data) != sealed:
        raise IntegrityError(f"{what} is damaged: it fails its digest")
    return data
