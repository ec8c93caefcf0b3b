"""Use cases of webhooks."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Self

from protoslice.catalog import Database
from protoslice.catalog.letters import Letter, LetterTable
from protoslice.catalog.webhooks import Webhook, WebhookRecords
from protoslice.errors import InvalidInput, StorageDenied
from protoslice.stores import ResultPage
from protoslice.webhooks.delivery import Delivery
from protoslice.webhooks.dispatcher import Dispatcher
from protoslice.webhooks.model import NewWebhook


class Webhooks:
    """Webhooks of all spaces."""

    def __init__(self, database: Database, delivery: Delivery) -> None:
        self.database = database
        self._records = WebhookRecords(database)
        self._letters = LetterTable(database)
        self._delivery = delivery
        self._dispatcher = Dispatcher(self._records, self._letters, delivery)

    @classmethod
    async def open(cls, database: Database, prefixes: Sequence[str], networks: Sequence[str]) -> Self:
        """Webhooks that may go to URLs below `prefixes`; private addresses only in `networks`."""
        opened = cls(database, Delivery(prefixes, networks))
        await opened._dispatcher.start()
        return opened

    async def close(self) -> None:
        """Stop delivering; letters that are on their way stay in the database."""
        await self._dispatcher.close()
        await self._delivery.close()

    async def put(
        self, space: str, wanted: NewWebhook, *, if_match: bytes | None = None, if_none_match: bool = False
    ) -> tuple[Webhook, bool]:
        """Create or replace a webhook, with a new secret; True when it is new. Its letters stay.

        `Changed` unless its secret is `if_match`, when given, or there is none for `if_none_match`.
        """
        wanted.check()
        try:
            self._delivery.check(wanted.url)
        except StorageDenied:
            raise InvalidInput(
                "The operator does not allow this webhook `url` (PROTOSLICE_WEBHOOK_ALLOW): use an allowed "
                "prefix, or ask the operator"
            ) from None
        events, secret = tuple(sorted(set(wanted.events))), secrets.token_bytes(32)
        proposed = Webhook(secrets.token_hex(16), space, wanted.name, wanted.url, events, time.time(), secret)
        hook, created = await self._records.put(proposed, if_match=if_match, if_none_match=if_none_match)
        await self._dispatcher.learn()
        return hook, created

    async def of(self, space: str) -> list[Webhook]:
        """The webhooks of a space, by name."""
        return await self._records.of(space)

    async def get(self, space: str, name: str) -> Webhook:
        """A webhook of a space; `NotFound` when there is none of that name."""
        return await self._records.get(space, name)

    async def letters(self, hook: Webhook, *, dead: bool, limit: int, cursor: str | None) -> ResultPage[Letter]:
        """A page of the letters of a webhook, oldest first: those that are tried again, or those given up."""
        found = await self._letters.page(hook.id, dead=dead, limit=limit + 1, after=cursor or "")
        return ResultPage(found[:limit], found[limit - 1].id if len(found) > limit else None)

    async def remove(self, space: str, name: str, *, if_match: bytes | None = None) -> None:
        """Remove a webhook and its letters; `NotFound` when there is none of that name."""
        await self._records.remove(await self.get(space, name), if_match=if_match)
        await self._dispatcher.learn()

    async def redeliver(self, space: str, name: str) -> int:
        """Deliver the dead letters of a webhook again; the number of them."""
        hook = await self.get(space, name)
        count = await self._letters.revive(hook.id, time.time())
        self._dispatcher.begin_due()
        return count
