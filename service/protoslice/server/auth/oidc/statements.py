"""Statements about JWTs: enough of a verified one to know its caller again, without the JWT."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from protoslice.errors import Unsupported
from protoslice.server.auth.oidc.sealing import seal, unseal
from protoslice.server.auth.signatures import Signer, signing_key

_PURPOSE: Final = "caller"
_LONGEST: Final = 1100
"""Bytes of a statement: sealed, it has to fit into a URL and a cookie."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A caller whom a JWT named, and all that the JWT was believed by."""

    issuer: str
    """Fingerprint of the issuer's terms."""
    key_id: str | None
    caller: str
    """Id of the principal."""
    name: str
    rules: tuple[str, ...]
    """Fingerprints of the rules that matched."""
    end: float
    """End of the JWT, in seconds since the epoch."""

    def sealed(self, key: bytes) -> str:
        """The statement as a text that only the service reads; `Unsupported` for one that is too long."""
        said = [self.issuer, self.key_id, self.caller, self.name, self.rules, self.end]
        data = json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
        if len(data) > _LONGEST:
            raise Unsupported(
                "Cannot sign URLs with this JWT, because it matches too many rules: use a token of this service"
            )
        return seal(key, _PURPOSE, data)

    def signer(self, key: bytes) -> Signer:
        """Return the caller as a signer, whose id is the sealed statement."""
        text = self.sealed(key)
        return Signer(text, statement_key(key, text), self.end)

    @property
    def expired(self) -> bool:
        """True when the time of the JWT is over."""
        return self.end <= time.time()


def statement_key(key: bytes, text: str) -> bytes:
    """Return the key of the signer with a sealed statement."""
    return signing_key(key, "statement", text.encode())


def read_statement(keys: Sequence[bytes], text: str) -> Statement | None:
    """Return the statement in a text that `sealed` gave under one of these keys; None for any other text."""
    data = unseal(keys, _PURPOSE, text)
    if data is None:
        return None
    issuer, key_id, caller, name, rules, end = json.loads(data)
    return Statement(issuer, key_id, caller, name, tuple(rules), end)
