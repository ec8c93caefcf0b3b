"""Clients of resumable uploads, and of repositories."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from tests.stores.simulation.clients import Actions, Client, Content
from tests.stores.simulation.cluster import pieces
from tests.stores.simulation.ledger import Deed
from tests.stores.simulation.replica import Unreachable, Violation

from protoslice.catalog.histories import BranchMoved, Commit, History
from protoslice.catalog.labels import HUB
from protoslice.catalog.repositories import RepositoryExists, RepositoryTable
from protoslice.catalog.uploads import Upload
from protoslice.errors import AlreadyComplete, Conflict, Gone, NotFound, StorageUnavailable, WrongOffset
from protoslice.stores import IngestRequest, Stores
from protoslice.uploads import Body, NewUpload

TRIES = 25


@dataclass(slots=True)
class Sending:
    """An upload in progress: the most bytes that were acknowledged, and its result."""

    id: str
    data: bytes
    least: int = 0
    upload: Upload | None = None

    def see(self, upload: Upload, least: int) -> None:
        """Record an answer to a request that was made when `least` bytes were acknowledged."""
        if upload.offset < least:
            raise Violation(f"an upload went back from {least} to {upload.offset}")
        if upload.state == "failed":
            raise Violation(f"an upload failed: {upload.failure}")
        self.least = max(self.least, upload.offset)
        if upload.state != "open":
            self.upload = upload


class UploadClient(Client):
    """A client that sends files in several requests, and commits to repositories."""

    @property
    def actions(self) -> Actions:
        """Return the client's actions; see `Client`."""
        return (*[self.upload] * 4, self.join, self.commit, self.remove, self.look, self.pause)

    async def upload(self) -> None:
        """Send a file in an upload; sometimes two clients send it at once."""
        space, content = self.place(single=True)
        deeds = [self.ledger.add(space, self.ids[content.name])]
        (path,) = content.files
        new = NewUpload(length=len(content.only), path=path)
        try:
            sending = Sending((await self.ask(space, lambda stores: stores.uploads.create(new))).id, content.only)
        except (StorageUnavailable, Unreachable):
            self.ledger.end(deeds, "refused")
            raise
        await self._fill(space, sending)
        self._made(content, deeds, None if sending.upload is None else sending.upload.store)

    async def join(self) -> None:
        """Send a file in several uploads, and join them."""
        space, content = self.place(single=True)
        data, cut = content.only, self.random.randrange(1, len(content.only))
        ids = []
        for part in (data[:cut], data[cut:]):
            new = NewUpload(length=len(part), partial=True)
            sending = Sending((await self.ask(space, lambda stores, new=new: stores.uploads.create(new))).id, part)  # type: ignore[misc]
            await self._fill(space, sending)
            if sending.upload is None:
                return
            ids.append(sending.id)
        deeds = [self.ledger.add(space, self.ids[content.name])]
        (path,) = content.files

        async def work(stores: Stores) -> str | None:
            if self.random.random() < 0.5:
                return (await stores.uploads.join(ids, NewUpload(path=path))).store
            return (await stores.uploads.assemble({path: ids}, IngestRequest())).store.id

        self._made(content, (), await self.noted(deeds, self.ask(space, work), Conflict, NotFound))

    def _made(self, content: Content, deeds: list[Deed] | tuple[()], store: str | None) -> None:
        self.ledger.end(deeds, "lost" if store is None else "done")
        if store not in {None, self.ids[content.name]}:
            raise Violation(f"{content.name} became store {store}")

    async def _fill(self, space: str, sending: Sending) -> None:
        step = self.random.choice((40, 100, 1000))
        senders = [self._append(space, sending, step) for _ in range(self.random.choice((1, 1, 2)))]
        await asyncio.gather(*senders)

    async def _append(self, space: str, sending: Sending, step: int) -> None:
        offset: int | None = 0
        gives_up = self.random.random() < 0.1
        for _ in range(TRIES):
            if sending.upload is not None:
                return
            if gives_up and sending.least:
                with suppress(Conflict, NotFound):
                    await self.ask(space, lambda stores: stores.uploads.remove(sending.id))
                return
            least = sending.least
            try:
                if offset is None:
                    found = await self.ask(space, lambda stores: stores.uploads.get(sending.id))
                else:
                    found = await self._patch(space, sending, offset, step)
                sending.see(found, least)
                offset = found.offset
            except WrongOffset as error:
                offset = error.expected
            except (Conflict, AlreadyComplete, StorageUnavailable, Unreachable):
                offset = None
                await asyncio.sleep(self.random.uniform(0, 2))
            except (Gone, NotFound):
                return

    async def _patch(self, space: str, sending: Sending, offset: int, step: int) -> Upload:
        data = sending.data[offset : offset + step]
        found = await self.ask(
            space, lambda stores: stores.uploads.append(sending.id, Body(pieces=pieces(data), offset=offset))
        )
        if found.offset < offset + len(data):
            raise Violation(f"of {len(data)} bytes {found.offset - offset} were taken, and all acknowledged")
        return found

    async def commit(self) -> None:
        """Commit a store to the only branch of a repository."""
        space, content = self.place()
        store, begin = self.ids[content.name], self.ledger.tick()
        commit = Commit(store=store, number=1).placed()
        seen: list[bytes | None] = []

        async def work(stores: Stores) -> str:
            repositories = RepositoryTable(stores.database, stores.quotas.usage, HUB)
            row = await repositories.get("m")
            if row is None:
                row = await repositories.create("m")
            history = History(stores.database, stores.quotas.usage, row.id, row.name)
            main = await history.ref("heads", "main")
            seen.append(main.version)
            return ((await history.move(main, commit)).version or b"").hex()

        try:
            version = await self.ask(space, work)
        except (BranchMoved, RepositoryExists):
            return
        except Conflict:
            if self.ledger.must_exist(space, store, begin):
                raise Violation("a commit of a store that exists was refused") from None
            return
        condition = None if seen[0] is None else seen[0].hex()
        self.ledger.see(f"{space} main", version, condition)
        if self.ledger.must_be_gone(space, store, begin):
            raise Violation("a store was committed after it was removed")
