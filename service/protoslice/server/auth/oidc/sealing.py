"""Sealed texts: data that a browser or a URL carries, which nobody but the service reads or makes."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from joserfc.util import urlsafe_b64decode, urlsafe_b64encode

_NONCE: Final = 12
_TAG: Final = 16


def seal(key: bytes, purpose: str, data: bytes) -> str:
    """`data` encrypted and authenticated by AES-256-GCM, in letters for URLs and cookies."""
    nonce = secrets.token_bytes(_NONCE)
    return urlsafe_b64encode(nonce + _cipher(key, purpose).encrypt(nonce, data, None)).decode()


def unseal(keys: Sequence[bytes], purpose: str, text: str) -> bytes | None:
    """Return the data of a text that `seal` made with one of these keys for this purpose; None for any other."""
    try:
        sealed = urlsafe_b64decode(text.encode("ascii"))
        # A text has one spelling: bits behind the last byte would give it others.
        if len(sealed) < _NONCE + _TAG or urlsafe_b64encode(sealed).decode() != text:
            return None
    except ValueError:
        return None
    for key in keys:
        with suppress(InvalidTag):
            return _cipher(key, purpose).decrypt(sealed[:_NONCE], sealed[_NONCE:], None)
    return None


def _cipher(key: bytes, purpose: str) -> AESGCM:
    """Cipher with a key of its own for every purpose: a text sealed for one is none for another."""
    return AESGCM(hmac.digest(key, f"protoslice sealed {purpose}".encode(), sha256))
