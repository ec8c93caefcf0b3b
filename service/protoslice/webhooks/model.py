"""Terms of webhooks: where events go, and which."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from protoslice.errors import InvalidInput

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
