"""Model of webhooks: where events go, and letters, each an event on its way to one webhook."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Self

from protoslice.errors import IntegrityError, InvalidInput

EVENTS: Final = (
    "store.created",
    "store.removed",
    "tag.set",
    "tag.removed",
    "ref.set",
    "ref.removed",
    "artifact.tagged",
    "artifact.untagged",
)
"""Types of events, without the `protoslice.` that CloudEvents has before them."""
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_LONGEST_URL: Final = 2048
_ERROR_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True)
class NewWebhook:
    """Terms of a webhook; no events means all of them."""

    name: str
    url: str
    events: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise `InvalidInput` for a name, URL or events that no webhook may have."""
        if not is_webhook_name(self.name):
            raise InvalidInput(f"Invalid webhook name {self.name[:80]!r}: use a-z, 0-9 and '-', at most 63 characters")
        if len(self.url) > _LONGEST_URL or not self.url.startswith(("https://", "http://")):
            raise InvalidInput(f"Invalid webhook URL: use http or https, at most {_LONGEST_URL} characters")
        if unknown := sorted(set(self.events) - set(EVENTS)):
            raise InvalidInput(f"Unknown events {', '.join(unknown)[:200]}: use {', '.join(EVENTS)}")


def is_webhook_name(name: str) -> bool:
    """True when `name` may be the name of a webhook."""
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class Proof:
    """Object of the storage that a change writes, by which others see whether the change took place."""

    key: str
    sha256: str | None
    """Digest of the object after the change; None when the change removes the object."""
    replaces: str | None = None
    """Entity tag of the object that the change is conditional on; None when any may be there."""


@dataclass(frozen=True, slots=True)
class Letter:
    """One event on its way to one webhook, as it lies in the outbox, and among dead letters at its end."""

    id: str
    event: Mapping[str, Any]
    """The CloudEvent, as it is sent."""
    written: float
    due: float
    """Time of the next attempt, in seconds since the epoch; until then one replica has the letter."""
    proof: Proof | None
    """Set until the change is known to have taken place; then None."""
    attempts: int = 0
    error: str = ""
    """Reason of the last failure; empty before the first attempt."""

    def postponed(self, due: float) -> Letter:
        """A copy that is due later, with nothing tried."""
        return replace(self, due=due)

    def failed(self, error: str, due: float) -> Letter:
        """A copy after one more attempt in vain."""
        return replace(self, proof=None, attempts=self.attempts + 1, error=error[:_ERROR_CHARACTERS], due=due)

    def encode(self) -> bytes:
        """Serialize the letter to JSON that no other call writes."""
        return json.dumps(asdict(self) | {"token": secrets.token_hex(8)}).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Parse the output of `encode`; `IntegrityError` for anything else."""
        raw = _parsed(data, "letter")
        raw.pop("token", None)
        try:
            return cls(**raw | {"proof": raw["proof"] and Proof(**raw["proof"])})
        except (TypeError, KeyError) as error:
            raise IntegrityError("the record of a webhook event does not parse") from error


def _parsed(data: bytes, what: str) -> dict[str, Any]:
    try:
        raw = json.loads(data)
    except ValueError as error:
        raise IntegrityError(f"the record of a {what} does not parse") from error
    if not isinstance(raw, dict):
        raise IntegrityError(f"the record of a {what} does not parse")
    return raw
