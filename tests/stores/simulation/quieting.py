"""Actions that write a folder and leave it, for replicas to make a store of it once it is quiet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

from tests.stores.simulation.clients import TROUBLE, Action, Client, pieces
from tests.stores.simulation.contents import Content
from tests.stores.simulation.ledger import Ledger, Violation
from tests.support.stores import assert_whole

from protoslice.catalog.drafts import ChangedFolders
from protoslice.drafts import Drafts, NoDraft, QuietFolders
from protoslice.drafts.records import DraftRecords
from protoslice.stores import Stores

QUIET_SECONDS = 300.0
_kept: WeakKeyDictionary[Stores, QuietFolders] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave(Action):
    """Write contents into one folder, one after another, and never ask for a store of it."""

    folder: str
    contents: tuple[Content, ...]
    pause: float = 0.0
    """Seconds between two requests."""

    def simpler(self) -> Iterator[Action]:
        """See `Action.simpler`."""
        yield from Action.simpler(self)
        yield from self.plainer(pause=0.0)
        if len(self.contents) > 1:
            yield replace(self, contents=self.contents[:-1])
            yield replace(self, contents=self.contents[1:])

    async def run(self, client: Client) -> None:
        """See `Action.run`."""
        client.ledger.left[self.folder] = False
        before: set[str] = set()
        try:
            for content in self.contents:
                for path, data in content.files.items():
                    await client.ask("draft", self._put(path, data))
                    await asyncio.sleep(self.pause)
                for path in sorted(before - content.files.keys()):
                    await client.ask("undraft", self._delete(path))
                before = {*content.files}
        except TROUBLE:  # some write may come when nobody looks any more
            return
        client.ledger.left[self.folder] = True

    def _put(self, path: str, data: bytes) -> Callable[[Stores], Awaitable[object]]:
        return lambda stores: Drafts(stores).put(f"{self.folder}/{path}", pieces(data))

    def _delete(self, path: str) -> Callable[[Stores], Awaitable[None]]:
        return lambda stores: Drafts(stores).delete(f"{self.folder}/{path}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LookForQuiet(Action):
    """Let a replica look for quiet folders, several times."""

    times: int
    every: float

    def simpler(self) -> Iterator[Action]:
        """See `Action.simpler`."""
        yield from Action.simpler(self)
        if self.times > 1:
            yield replace(self, times=self.times // 2)

    async def run(self, client: Client) -> None:
        """See `Action.run`."""
        for _ in range(self.times):
            with suppress(*TROUBLE):
                await client.ask("look", lambda stores: _quiet(stores).look())
            await asyncio.sleep(self.every)


async def check_left(ledger: Ledger, stores: Stores) -> None:
    """Raise a `Violation` unless every folder that was left is a store, as it was left."""
    if not ledger.left:
        return
    await asyncio.sleep(3 * QUIET_SECONDS)
    await _quiet(stores).look()
    if left := await ChangedFolders(stores.database).quiet(0.0, 10):
        raise Violation("nothing but garbage is left over", str(left))
    records = DraftRecords(stores)
    for folder in [folder for folder, sure in ledger.left.items() if sure]:
        with suppress(NoDraft):
            store = await records.sealed(folder)
            if store is None:
                raise Violation("a folder that was left becomes a store", folder)
            await assert_whole(stores, await stores.get(store))


def _quiet(stores: Stores) -> QuietFolders:
    """The folders as a replica knows them."""

    async def same(space: str) -> Stores:
        return stores

    if stores not in _kept:
        _kept[stores] = QuietFolders(stores.database, same, QUIET_SECONDS)
    return _kept[stores]
