"""Actions that commit files which came before, as chunks in xorbs of a session."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from tests.stores.simulation.clients import Action, Client
from tests.stores.simulation.cluster import Unreachable
from tests.stores.simulation.committing import committed, repository_in
from tests.stores.simulation.contents import Content
from tests.stores.simulation.ledger import Violation

from protoslice.errors import Conflict, IntegrityError, NotFound, StorageUnavailable
from protoslice.repositories import XorbSession
from protoslice.stores import Stores
from protoslice.stores.manifest import ObjectExtent

_CHUNK = 36
_PIECES = Callable[[Stores], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PushXorbs(Action):
    """Send chunks of files to any replicas, let a shard make the files of them, and commit those."""

    content: Content
    pause: float = 0.0
    """Seconds before the shard, and before the commit."""
    lifetime: float

    def simpler(self) -> Iterator[Action]:
        """See `Action.simpler`."""
        yield from Action.simpler(self)
        yield from self.plainer(pause=0.0)

    async def run(self, client: Client) -> None:
        """See `Action.run`."""
        began = client.cluster.loop.now
        try:
            session = await client.ask("session", lambda stores: _begun(stores))
            for number in range(2):
                await client.ask("xorb", self._xorb(session, number))
            await asyncio.sleep(self.pause)
            await client.ask("shard", self._shard(session))
        except (StorageUnavailable, Unreachable, Conflict):
            return
        except (NotFound, IntegrityError) as error:
            if isinstance(error, IntegrityError):
                if not client.ledger.damaged:
                    raise
            elif client.cluster.loop.now < began + self.lifetime - 2 * client.cluster.skew:
                raise Violation("a session is there until it expires", f"{error}") from error
            return
        await asyncio.sleep(self.pause)
        await committed(client, self.content, staged=True)

    def _xorb(self, session: str, number: int) -> _PIECES:
        """Sends every other chunk, the first one or the second."""

        async def send(stores: Stores) -> None:
            opened = await _opened(stores, session)
            chunks = [chunk for data in self.content.files.values() for chunk in _cut(data)[number::2]]
            target = await opened.begin()
            data = b"".join(chunks)
            target.sum(data)
            await target.write(data)
            stored = await target.commit()
            await opened.keep(str(number) * 64, stored, [len(data)])

        return send

    def _shard(self, session: str) -> _PIECES:
        async def make(stores: Stores) -> None:
            opened, repository = await _opened(stores, session), await repository_in(stores)
            xorbs = [(await opened.xorb(str(number) * 64)).location for number in range(2)]
            ends = [0, 0]
            for data in self.content.files.values():
                extents = []
                for number, chunk in enumerate(_cut(data)):
                    start = ends[number % 2]
                    ends[number % 2] += len(chunk)
                    extents.append(ObjectExtent(xorbs[number % 2], start, start + len(chunk)))
                if extents:
                    upload = await repository.staged.begin(hashlib.sha256(data).hexdigest(), len(data), "")
                    if not upload.is_whole:
                        upload = await opened.compose(upload, extents)
                    await repository.staged.keep(upload)

        return make


def _cut(data: bytes) -> list[bytes]:
    return [data[at : at + _CHUNK] for at in range(0, len(data), _CHUNK)]


async def _begun(stores: Stores) -> str:
    return await (await repository_in(stores)).sessions.begin("")


async def _opened(stores: Stores, session: str) -> XorbSession:
    return await (await repository_in(stores)).sessions.open(session, "")
