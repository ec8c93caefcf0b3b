"""Tokens: secrets that scanners recognise, kept as hashes."""

from __future__ import annotations

import hmac
from hashlib import sha256
from secrets import choice
from typing import Final, NamedTuple
from zlib import crc32

PREFIX: Final = "psl_"
_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID, _SECRET, _CHECK = 10, 32, 6
"""Characters of the public id, of the secret (190 bits), and of the checksum."""
_LENGTH: Final = len(PREFIX) + _ID + _SECRET + _CHECK


class Token(NamedTuple):
    """A token as its owner holds it: the id names the record, the secret proves the owner."""

    id: str
    secret: str

    def __repr__(self) -> str:
        """The id alone, as secrets do not belong in logs."""
        return f"Token({self.id!r})"

    @property
    def text(self) -> str:
        """The token as it is shown once and sent from then on."""
        body = f"{PREFIX}{self.id}{self.secret}"
        return body + _checksum(body)

    @property
    def hash(self) -> str:
        """SHA-256 in hex for the record; a secret of 190 bits needs no slow hash."""
        return sha256(self.text.encode()).hexdigest()

    def proves(self, kept: str) -> bool:
        """True when `kept` is the hash of this token; takes equally long for every other one."""
        return hmac.compare_digest(self.hash.encode(), kept.encode())


def new_token() -> Token:
    """A new token, from the system's randomness."""
    return Token(_random(_ID), _random(_SECRET))


def parse_token(text: str) -> Token | None:
    """The token in `text`; None for any text that never was a token, which costs no look at the storage."""
    if len(text) != _LENGTH or not text.startswith(PREFIX) or not set(text[len(PREFIX) :]) <= set(_DIGITS):
        return None
    body, check = text[:-_CHECK], text[-_CHECK:]
    if _checksum(body) != check:
        return None
    at = len(PREFIX)
    return Token(body[at : at + _ID], body[at + _ID :])


def is_token_id(text: str) -> bool:
    """True when `text` may be the id of a token."""
    return len(text) == _ID and set(text) <= set(_DIGITS)


def _random(count: int) -> str:
    return "".join(choice(_DIGITS) for _ in range(count))


def _checksum(body: str) -> str:
    number, digits = crc32(body.encode()), ""
    for _ in range(_CHECK):
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits
