"""Clients that send a file in several requests, and go on wherever they were interrupted."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from tests.stores.simulation.clients import Action, Client, pieces
from tests.stores.simulation.cluster import Unreachable
from tests.stores.simulation.contents import Content
from tests.stores.simulation.ledger import Violation
from tests.stores.simulation.progress import Sending

from protoslice.errors import (
    ChecksumMismatch,
    Conflict,
    Gone,
    IntegrityError,
    NotFound,
    ProtosliceError,
    StorageUnavailable,
)
from protoslice.stores import IngestRequest, Stores
from protoslice.stores.uploads import AlreadyComplete, Body, Checksum, NewUpload, WrongOffset

TRIES = 40
"""Attempts of a client to go on with an upload before it leaves it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumable(Action):
    """Send one file in many requests to any replicas, alone or as several uploads that are joined."""

    content: Content
    step: int
    """Bytes of a request."""
    streams: int = 1
    """As so many uploads at once, of which a store is made when all are there."""
    told_length: bool = True
    """True to tell the length at the beginning, False with the last request."""
    checksums: bool = False
    watched: float = 0.0
    """If not 0, somebody else looks at the upload so often, in seconds, for as long as it goes on."""
    look: float = 0.2
    """Chance that the client asks for the offset, though it would not have to."""
    lifetime: float
    ended: bool = False
    """True if the client ends the upload half-way."""

    def simpler(self) -> Iterator[Action]:
        """See `Action.simpler`."""
        yield from Action.simpler(self)
        yield from self.plainer(watched=0.0, streams=1, checksums=False, told_length=True, look=0.0, ended=False)
        if self.step < len(self.content.data):
            yield replace(self, step=2 * self.step)

    async def run(self, client: Client) -> None:
        """See `Action.run`."""
        data = self.content.data
        size = -(-len(data) // self.streams)
        parts = [data[at : at + size] for at in range(0, len(data), size)]
        sendings = await asyncio.gather(*(self._begin(client, part) for part in parts))
        found = [sending for sending in sendings if sending is not None]
        for sending in found:
            await asyncio.gather(self._send(client, sending), self._watch(client.another(sending.id), sending))
        if (
            self.streams > 1
            and len(found) == len(parts)
            and all(sending.done and not sending.ended for sending in found)
        ):
            await self._join(client, found)

    async def _begin(self, client: Client, data: bytes) -> Sending | None:
        whole = self.streams == 1
        new = NewUpload(
            length=len(data) if self.told_length else None,
            path=self.content.root if whole else None,
            request=IngestRequest(root=self.content.root) if whole else IngestRequest(),
            partial=not whole,
        )
        for _ in range(3):
            entry = client.ledger.sending(client.ids[self.content.name]) if whole else None
            began = client.cluster.loop.now
            with suppress(StorageUnavailable, Unreachable, Conflict):
                upload = await client.ask("begin", lambda stores: stores.uploads.create(new))
                return Sending(client, upload, data, entry, began)
        return None

    async def _send(self, client: Client, sending: Sending) -> None:
        try:
            await self._go_on(client, sending)
        finally:
            sending.left = True

    async def _go_on(self, client: Client, sending: Sending) -> None:
        sure = True
        for _ in range(TRIES + 2 * len(sending.data) // self.step):
            if self.ended and not sending.done and sending.offset > len(sending.data) // 2:
                await self._end(client, sending)
            if sending.done or sending.ended:
                return
            try:
                await self._next(client, sending, sure=sure)
                sure = True
            except WrongOffset as error:
                sending.at(error.expected)
            except (Conflict, AlreadyComplete, StorageUnavailable, Unreachable) as error:
                sure = False
                if isinstance(error, Unreachable) and sending.entry is not None:
                    client.ledger.sending(sending.entry.store)  # an unanswered request may still take effect much later
                await asyncio.sleep(0.5)
            except (Gone, NotFound, IntegrityError) as error:
                self._gone(client, [sending], error)

    async def _next(self, client: Client, sending: Sending, *, sure: bool) -> None:
        """Ask where the upload is, unless that is sure, and send what comes next."""
        if not sure or client.random.random() < self.look:
            sending.take(await client.ask("head", lambda stores: stores.uploads.get(sending.id)))
        if not sending.done:
            await self._append(client, sending)

    async def _watch(self, watcher: Client, sending: Sending) -> None:
        seen = 0
        while self.watched and not (sending.done or sending.ended or sending.left):
            await asyncio.sleep(self.watched * watcher.random.random())
            with suppress(StorageUnavailable, Unreachable, Conflict, NotFound, IntegrityError):
                offset = (await watcher.ask("watch", lambda stores: stores.uploads.get(sending.id))).offset
                if offset < seen:
                    raise Violation("an upload never goes back", f"seen at {seen}, then at {offset}")
                seen = offset

    async def _append(self, client: Client, sending: Sending) -> None:
        begin = sending.offset
        data = sending.data[begin : begin + self.step]
        last = begin + len(data) == len(sending.data)
        wrong = bool(data) and self.checksums and client.random.random() < 0.1
        digest = hashlib.sha256(data + b"?" * wrong).digest()
        began = client.cluster.loop.now

        def append(stores: Stores) -> object:
            checksum = Checksum(hashlib.sha256(), digest) if self.checksums else None
            body = Body(pieces=pieces(data, 16), offset=begin, last=last and not self.told_length, checksum=checksum)
            return stores.uploads.append(sending.id, body)

        if not wrong:
            sending.sent = max(sending.sent, begin + len(data))
        try:
            sending.take(await client.ask("append", append))  # type: ignore[arg-type]
        except ChecksumMismatch:
            if not wrong:
                raise Violation("a right checksum is accepted", f"at {begin}") from None
            return
        if wrong:
            raise Violation("a wrong checksum is refused", f"at {begin}")
        if sending.offset != begin + len(data):
            raise Violation("a body is taken whole", f"at {begin} came {len(data)} bytes: now at {sending.offset}")
        sending.moved = began

    async def _end(self, client: Client, sending: Sending) -> None:
        sending.ended = True
        with suppress(StorageUnavailable, Unreachable, Conflict, NotFound):
            await client.ask("end", lambda stores: stores.uploads.remove(sending.id))

    def _gone(self, client: Client, sendings: Sequence[Sending], error: ProtosliceError) -> None:
        for sending in sendings:
            sending.ended = True
        if isinstance(error, IntegrityError):
            if not client.ledger.damaged:
                raise error
            return
        now = client.cluster.loop.now
        lifetime = self.lifetime - 2 * client.cluster.skew
        if not any(sending.moved + lifetime < now for sending in sendings):
            raise Violation("an upload is there until it expires", f"{error}")

    async def _join(self, client: Client, sendings: Sequence[Sending]) -> None:
        ids = [sending.id for sending in sendings]
        request = IngestRequest(root=self.content.root)
        store = client.ids[self.content.name]
        new = NewUpload(path=self.content.root, request=request)
        entry = client.ledger.sending(store)
        try:
            if client.random.random() < 0.5:
                made = (await client.ask("join", lambda stores: stores.uploads.join(ids, new))).store
            else:
                files = {self.content.root: ids}
                made = (await client.ask("assemble", lambda stores: stores.uploads.assemble(files, request))).store.id
        except Unreachable:
            return
        except (StorageUnavailable, Conflict):
            client.ledger.end(entry, sure=False)
            return
        except (Gone, NotFound, IntegrityError) as error:
            self._gone(client, sendings, error)
            return
        if made != store:
            raise Violation("a store is what was sent", f"the uploads became {made}")
        client.ledger.end(entry, sure=True)
