"""Webhooks of spaces: their names, URLs and events, checked, stored and delivered."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from protoslice.catalog.webhooks import Delivery, DeliveryTable, Webhook, WebhookTable
from protoslice.database import Database
from protoslice.errors import InvalidInput, StorageDenied
from protoslice.stores import ResultPage
from protoslice.webhooks.delivery import Dispatcher, Sender

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


class Webhooks:
    """Webhooks of all spaces."""

    def __init__(self, database: Database, sender: Sender) -> None:
        self.database = database
        self._table = WebhookTable(database)
        self._deliveries = DeliveryTable(database)
        self._sender = sender
        self._dispatcher = Dispatcher(self._table, self._deliveries, sender)

    @classmethod
    async def open(cls, database: Database, prefixes: Sequence[str], networks: Sequence[str]) -> Self:
        """Open webhooks that may go to URLs below `prefixes`; private addresses only in `networks`."""
        opened = cls(database, Sender(prefixes, networks))
        await opened._dispatcher.start()
        return opened

    async def close(self) -> None:
        """Stop delivering; events that are on their way stay in the database."""
        await self._dispatcher.close()
        await self._sender.close()

    async def put(
        self, space: str, wanted: NewWebhook, *, if_match: bytes | None = None, if_none_match: bool = False
    ) -> tuple[Webhook, bool]:
        """Create or replace a webhook, with a new secret; return it, and True if it is new. Its deliveries stay.

        Raise `Changed` unless its secret is `if_match`, if given, or there is none for `if_none_match`.
        """
        wanted.check()
        try:
            self._sender.check(wanted.url)
        except StorageDenied:
            raise InvalidInput(
                "The operator does not allow this webhook `url` (PROTOSLICE_WEBHOOK_ALLOW): use an allowed "
                "prefix, or ask the operator"
            ) from None
        events, secret = tuple(sorted(set(wanted.events))), secrets.token_bytes(32)
        proposed = Webhook(secrets.token_hex(16), space, wanted.name, wanted.url, events, time.time(), secret)
        hook, created = await self._table.put(proposed, if_match=if_match, if_none_match=if_none_match)
        await self._dispatcher.learn()
        return hook, created

    async def of(self, space: str) -> list[Webhook]:
        """Return the webhooks of a space, by name."""
        return await self._table.of(space)

    async def get(self, space: str, name: str) -> Webhook:
        """Return a webhook of a space; raise `NotFound` if there is none of that name."""
        return await self._table.get(space, name)

    async def deliveries(self, hook: Webhook, *, dead: bool, limit: int, cursor: str | None) -> ResultPage[Delivery]:
        """Return a page of deliveries to a webhook, oldest first: those that are tried again, or the dead ones."""
        found = await self._deliveries.page(hook.id, dead=dead, limit=limit + 1, after=cursor or "")
        return ResultPage(found[:limit], found[limit - 1].id if len(found) > limit else None)

    async def remove(self, space: str, name: str, *, if_match: bytes | None = None) -> None:
        """Remove a webhook and its deliveries; raise `NotFound` if there is none of that name."""
        await self._table.remove(await self.get(space, name), if_match=if_match)
        await self._dispatcher.learn()

    async def redeliver(self, space: str, name: str) -> int:
        """Deliver the dead events of a webhook again; return how many there are."""
        hook = await self.get(space, name)
        count = await self._deliveries.redeliver(hook.id, time.time())
        self._dispatcher.begin_due()
        return count
