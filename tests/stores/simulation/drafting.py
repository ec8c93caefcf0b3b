"""Actions that write a folder file by file and ask for the store of it, as MLflow's clients do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace

from tests.stores.simulation.clients import TROUBLE, Action, Client, pieces
from tests.stores.simulation.contents import Content
from tests.stores.simulation.ledger import Violation
from tests.stores.simulation.sending import taken_in

from protoslice.drafts import Drafts, NoDraft
from protoslice.stores import Stores


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal(Action):
    """Write contents into one folder, one after another, and ask for the store of each."""

    folder: str
    """Several clients may write a folder as long as all of them write one and the same content."""
    contents: tuple[Content, ...]

    def simpler(self) -> Iterator[Action]:
        """See `Action.simpler`."""
        yield from Action.simpler(self)
        if len(self.contents) > 1:
            yield replace(self, contents=self.contents[:-1])
            yield replace(self, contents=self.contents[1:])

    async def run(self, client: Client) -> None:
        """See `Action.run`."""
        before: Content | None = None
        for content in self.contents:
            # Writes and stores that nobody was told of may still be under way: the folder is unknown from then on.
            try:
                await self._write(client, content, before)
            except TROUBLE:
                return
            if not await self._sealed(client, content):
                return
            before = content

    async def _write(self, client: Client, content: Content, before: Content | None) -> None:
        for path, data in content.files.items():
            await client.ask("draft", _put(f"{self.folder}/{path}", data))
        for path in sorted(before.files.keys() - content.files.keys()) if before is not None else ():
            await client.ask("undraft", _delete(f"{self.folder}/{path}"))

    async def _sealed(self, client: Client, content: Content) -> bool:
        async def sealed(stores: Stores) -> tuple[str, bool]:
            try:
                return await Drafts(stores).sealed(self.folder), False
            except NoDraft:
                raise Violation("what was acknowledged can be read", f"{self.folder} is empty") from None

        return await taken_in(client, content, (), "seal", sealed, shares=True)


def _put(path: str, data: bytes) -> Callable[[Stores], Awaitable[object]]:
    return lambda stores: Drafts(stores).put(path, pieces(data))


def _delete(path: str) -> Callable[[Stores], Awaitable[None]]:
    return lambda stores: Drafts(stores).delete(path)
