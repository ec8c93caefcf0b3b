"""Actions that read stores, and collect garbage beside that."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from tests.stores.simulation.clients import TROUBLE, Action, Client
from tests.stores.simulation.contents import Content
from tests.stores.simulation.ledger import Violation
from tests.support.stores import assert_whole

from protoslice.errors import IntegrityError, NotFound
from protoslice.stores import Stores


@dataclass(frozen=True, slots=True, kw_only=True)
class Read(Action):
    """Read a store whole, in all its views."""

    content: Content

    async def run(self, client: Client) -> None:
        """See `Action.run`."""
        store = client.ids[self.content.name]
        began = client.ledger.moment()

        async def read(stores: Stores) -> None:
            await assert_whole(stores, (await stores.view(store)).info)

        try:
            await client.ask("read", read)
        except TROUBLE:
            return
        except (NotFound, IntegrityError) as error:
            if client.ledger.must_be(store, began, client.ledger.moment()):
                raise Violation("what was acknowledged can be read", f"{self.content.name}: {error}") from error
            return
        if not client.ledger.may_be(store, began):
            raise Violation("what was removed is gone", self.content.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collect(Action):
    """Collect garbage, several times."""

    grace: float
    times: int = 1
    every: float = 10.0

    def simpler(self) -> Iterator[Action]:
        """See `Action.simpler`."""
        yield from Action.simpler(self)
        if self.times > 1:
            yield replace(self, times=self.times // 2)
            yield replace(self, times=1, wait=self.wait + (self.times - 1) * self.every)

    async def run(self, client: Client) -> None:
        """See `Action.run`."""
        for _ in range(self.times):
            with suppress(*TROUBLE):
                await client.ask("collect", lambda stores: stores.collect_garbage(grace_seconds=self.grace))
            await asyncio.sleep(self.every)
