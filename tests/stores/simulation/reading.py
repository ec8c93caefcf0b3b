"""Actions that read stores, and collect garbage beside that."""

from __future__ import annotations

import asyncio
import hashlib
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
class Find(Action):
    """Have the pieces of a store computed, and look for those of its files in whatever stores."""

    content: Content
    computes: bool = True

    async def run(self, client: Client) -> None:
        """See `Action.run`."""
        store = client.ids[self.content.name]
        by_digest = {hashlib.sha256(data).hexdigest(): data for data in self.content.files.values() if data}
        began = client.ledger.moment()

        async def find(stores: Stores) -> None:
            if self.computes:
                with suppress(NotFound, IntegrityError):
                    await stores.pieces(store, limit=1, cursor=None)
            for place in await stores.locate({sha256: len(data) for sha256, data in by_digest.items()}, None):
                if not client.ledger.may_be(place.store, began):
                    raise Violation("what was removed is gone", f"a piece is told to be in {place.store}")
                found = client.ledger.contents[place.store].files[place.file]
                if found[place.offset : place.offset + place.size] != by_digest[place.sha256]:
                    raise Violation("a piece lies where it is told to", f"{place}")

        with suppress(*TROUBLE):
            await client.ask("find", find)


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
