"""Actions that send a store whole, or as a recipe of another."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tests.stores.simulation.clients import Action, Client, pieces
from tests.stores.simulation.cluster import Unreachable
from tests.stores.simulation.contents import Content
from tests.stores.simulation.ledger import Entry, Violation
from tests.stores.simulation.registers import Deed

from protoslice.errors import Conflict, NotFound, StorageUnavailable
from protoslice.recipes import Copy, RecipeWriter
from protoslice.stores import FileRef, IngestRequest, Stores, follow
from protoslice.stores.catalog.files import FilesByDigest


@dataclass(frozen=True, slots=True, kw_only=True)
class Send(Action):
    """Send a store whole, with tags."""

    content: Content
    tags: tuple[str, ...] = ()
    told: bool = False
    """True when the digest of a single file is told, which spares the storage what it has."""
    pause: float = 0.0
    """Seconds between the files and the commit."""

    def simpler(self) -> Iterator[Action]:
        """See `Action.simpler`."""
        yield from Action.simpler(self)
        yield from self.plainer(tags=(), told=False, pause=0.0)

    async def run(self, client: Client) -> None:
        """See `Action.run`."""
        await taken_in(client, self.content, self.tags, "send", self.send, shares=self.told)

    async def send(self, stores: Stores) -> tuple[str, bool]:
        """The id of the store, and whether it was not there before."""
        content = self.content
        told = hashlib.sha256(content.data).digest() if self.told and len(content.files) == 1 else None
        async with await stores.ingest(IngestRequest(root=content.root, tags=self.tags)) as ingest:
            for path, data in content.files.items():
                sink = await ingest.file(path, told=told)
                async for piece in pieces(data):
                    await sink.write(piece)
                await sink.close()
            await asyncio.sleep(self.pause)
            created = await ingest.commit(expected_sha256=told)
            return created.store.id, created.created


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe(Action):
    """Send a store as a recipe, which copies what another store has."""

    content: Content
    source: Content

    async def run(self, client: Client) -> None:
        """See `Action.run`."""
        source = client.ids[self.source.name]

        async def send(stores: Stores) -> tuple[str, bool]:
            async with await stores.ingest(IngestRequest(root=self.content.root)) as ingest:
                await follow(pieces(self._recipe(source), 90), ingest, stores)
                created = await ingest.commit()
                return created.store.id, created.created

        await taken_in(client, self.content, (), "recipe", send, shares=True)

    def _recipe(self, source: str) -> bytes:
        writer, recipe = RecipeWriter(), b""
        for path, data in self.content.files.items():
            recipe += writer.file(path)
            old = self.source.files.get(path, b"")
            size = len(old) if data.startswith(old) else 0
            if size:
                recipe += writer.copy(Copy(source, path, 0, size))
            if size < len(data):
                recipe += writer.literal(len(data) - size) + data[size:]
            recipe += writer.end(len(data), hashlib.sha256(data).hexdigest())
        return recipe + writer.done()


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit(Action):
    """Send a store of which another has some files, found in that one or by their digests."""

    content: Content
    source: Content
    digests: bool
    pause: float = 0.0
    """Seconds between the files and the commit."""

    def simpler(self) -> Iterator[Action]:
        """See `Action.simpler`."""
        yield from Action.simpler(self)
        yield from self.plainer(pause=0.0)

    async def run(self, client: Client) -> None:
        """See `Action.run`."""
        source = client.ids[self.source.name]
        await taken_in(client, self.content, (), "commit", lambda stores: self._send(stores, source), shares=True)

    async def _send(self, stores: Stores, source: str) -> tuple[str, bool]:
        files = self.content.files
        refs = await self._found(stores, source)
        async with await stores.ingest(IngestRequest(root=self.content.root)) as ingest:
            await ingest.take(refs)
            for path in (path for path in files if path not in refs):
                sink = await ingest.file(path)
                async for piece in pieces(files[path]):
                    await sink.write(piece)
                await sink.close()
            await asyncio.sleep(self.pause)
            created = await ingest.commit()
            return created.store.id, created.created

    async def _found(self, stores: Stores, source: str) -> dict[str, FileRef]:
        wanted = {path: hashlib.sha256(data).hexdigest() for path, data in self.content.files.items()}
        if self.digests:
            found = {path: await FilesByDigest(stores.storage).find(digest) for path, digest in wanted.items()}
            return {path: ref for path, ref in found.items() if ref is not None}
        there: Mapping[str, FileRef] = {}
        with suppress(NotFound):
            there = await stores.files(source)
        by_digest = {ref.sha256: ref for ref in there.values()}
        return {path: by_digest[digest] for path, digest in wanted.items() if digest in by_digest}


async def taken_in(
    client: Client,
    content: Content,
    tags: tuple[str, ...],
    kind: str,
    work: Callable[[Stores], Awaitable[tuple[str, bool]]],
    *,
    shares: bool = False,
) -> bool:
    """Note what comes of sending a store; one that shares objects is damaged by what befell them before.

    True when the client was told that the store is there; else it may still be under way.
    """
    ledger, store = client.ledger, client.ids[content.name]
    entry = ledger.sending(store, again=shares)
    deeds = [ledger.deed(name, Deed("set", entry.began, store)) for name in tags]
    try:
        made, created = await client.ask(kind, work)
    except Unreachable:
        return False
    except (StorageUnavailable, Conflict):
        for begun in entry_and_deeds(entry, deeds):
            ledger.end(begun, sure=False)
        return False
    if made != store:
        raise Violation("a store is what was sent", f"{content.name} became {made}")
    for begun in entry_and_deeds(entry, deeds):
        ledger.end(begun, sure=True)
    entry.created = created
    return True


def entry_and_deeds(entry: Entry, deeds: Sequence[Deed]) -> Sequence[Entry | Deed]:
    return [entry, *deeds]
