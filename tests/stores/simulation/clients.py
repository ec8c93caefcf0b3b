"""Clients: each sends requests to replicas, one after the other, and records the answers in the ledger."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Final, TypeVar

from tests.stores.simulation.cluster import Cluster
from tests.stores.simulation.ledger import Deed, Ledger
from tests.stores.simulation.replica import DELAY_SECONDS, Unreachable, Violation
from tests.support.stores import onnx, read

from protoslice.errors import Conflict, IntegrityError, NotFound, StorageUnavailable
from protoslice.stores import IngestRequest, Stores
from protoslice.views.pieces import table_of

T = TypeVar("T")
Actions = Sequence[Callable[[], Awaitable[None]]]


@dataclass(frozen=True)
class Content:
    """The files of a store; its id is known once they have been sent."""

    name: str
    files: Mapping[str, bytes]

    @property
    def only(self) -> bytes:
        """The file of a store of one file."""
        (data,) = self.files.values()
        return data


def _bytes(size: int, seed: int) -> bytes:
    return Random(seed).randbytes(size)


CONTENTS: Final = (
    Content("held", {"a.bin": _bytes(30, 1)}),
    Content("small", {"a.bin": _bytes(90, 2)}),
    Content("long", {"a.bin": _bytes(400, 3)}),
    Content("model", {"model.onnx": onnx(150, 60, seed=4)}),
    Content("pair", {"a.bin": _bytes(400, 3), "b.bin": _bytes(33, 5)}),
    Content("kin", {"b.bin": _bytes(210, 6), "c.bin": _bytes(400, 3), "d.bin": _bytes(70, 7)}),
    Content("other", {"a.bin": _bytes(300, 8)}),
)
SPACES: Final = ("default", "team")
TAGS: Final = ("t1", "t2")


@dataclass
class Client:
    """A client; `ids` has the ids of stores by the names of their contents."""

    cluster: Cluster
    ledger: Ledger
    ids: dict[str, str]
    random: Random

    @property
    def actions(self) -> Actions:
        """The actions of the client, each repeated by its weight."""
        often = (*[self.send] * 5, *[self.remove] * 3, *[self.restore] * 2, *[self.look] * 2, *[self.tag] * 2)
        return (*often, self.untag, self.cut, self.pause, self.race)

    async def run(self, count: int) -> None:
        """Perform some random actions."""
        for _ in range(count):
            with suppress(Unreachable, StorageUnavailable):
                await self.random.choice(self.actions)()

    def place(self, *, single: bool = False) -> tuple[str, Content]:
        """Return a space and a content; the first ones are drawn more often."""
        contents = [each for each in CONTENTS if len(each.files) == 1] if single else list(CONTENTS)
        return self.random.choice(("default", "default", *SPACES)), self.random.choice(contents)

    async def ask(self, space: str, work: Callable[[Stores], Awaitable[T]]) -> T:
        """Return the result of `work` at some replica."""
        return await self.cluster.ask(lambda stores: work(stores if space == "default" else stores.of_space(space)))

    async def noted(self, deeds: list[Deed], asking: Awaitable[T], *refusals: type[Exception]) -> T | None:
        """End the deeds by the answer, and return it; return None if it is a refusal."""
        try:
            answer = await asking
        except StorageUnavailable:
            self.ledger.end(deeds, "unsure")
            raise
        except Unreachable:
            self.ledger.end(deeds, "lost")
            raise
        except refusals:
            self.ledger.end(deeds, "refused")
            return None
        self.ledger.end(deeds, "done")
        return answer

    async def race(self) -> None:
        """Read or share a store's file while the store is removed and collected."""
        space, (_, _, long, _, pair, *_) = self.place()[0], CONTENTS
        await self._send(space, long, None)
        if self.random.random() < 0.5:
            racing = asyncio.create_task(self._read(space, long, slow=True))
        else:
            sending = self._send(space, pair, long, pause=self.cluster.grace + DELAY_SECONDS)
            racing = asyncio.create_task(sending)
        await asyncio.sleep(0.1)
        await asyncio.gather(self._remove(space, long), racing, return_exceptions=True)
        racing.result()

    async def send(self) -> None:
        """Send a store, perhaps with files of other stores."""
        await self._send(*self.place(), self.random.choice(CONTENTS) if self.random.random() < 0.4 else None)

    async def _send(self, space: str, content: Content, share: Content | None, *, pause: float = 0.0) -> None:
        store, random = self.ids[content.name], self.random
        tags = tuple(tag for tag in TAGS if space == "default" and random.random() < 0.2)
        told, other = random.random() < 0.3, None if share is None else self.ids[share.name]
        deeds = [self.ledger.add(space, store), *(self.ledger.tag(space, tag, store) for tag in tags)]
        jumping = asyncio.create_task(self.cluster.jump())

        async def work(stores: Stores) -> str:
            return await sent(stores, content, IngestRequest(tags=tags), told=told, other=other, pause=pause)

        made = await self.noted(deeds, self.ask(space, work), Conflict)
        await jumping
        if made is None and share is None and not told and self.cluster.weather.jump:
            raise Violation("the bytes of a sender that was not late were collected")
        if made not in {None, store}:
            raise Violation(f"{content.name} became store {made}")
        if made is not None and random.random() < 0.3:
            await self._read(space, content)

    async def remove(self) -> None:
        """Remove a store, and sometimes restore it within the grace."""
        space, content = self.place()
        before = self.cluster.database_time()
        if await self._remove(space, content) and self.random.random() < 0.5:
            await asyncio.sleep(self.random.choice((0, 0.5, 0.99)) * self.cluster.grace)
            found = await self._restore(space, content)
            if not found and self.cluster.database_time() < before + self.cluster.grace:
                raise Violation(f"{content.name} cannot be restored within the grace")

    async def _remove(self, space: str, content: Content) -> bool:
        store = self.ids[content.name]
        deeds = [self.ledger.remove(space, store)]
        deeds += [self.ledger.tag(space, tag, None, of=store) for tag in TAGS if space == "default"]
        return await self.noted(deeds, self.ask(space, lambda stores: stores.delete(store)), NotFound) is not None

    async def restore(self) -> None:
        """Restore a store, which may exist."""
        await self._restore(*self.place())

    async def _restore(self, space: str, content: Content) -> bool:
        store = self.ids[content.name]
        deeds = [self.ledger.add(space, store)]
        deeds += [self.ledger.tag(space, tag, store, of=store) for tag in TAGS if space == "default"]
        answer = await self.noted(deeds, self.ask(space, lambda stores: stores.restore(store)), NotFound)
        if answer is not None:
            await self._read(space, content)
        return answer is not None

    async def look(self) -> None:
        """Read a store."""
        await self._read(*self.place())

    async def _read(self, space: str, content: Content, *, slow: bool = False) -> None:
        begin, slow = self.ledger.tick(), slow or self.random.random() < 0.3
        store, clock, found = self.ids[content.name], self.cluster.database_time, dict[str, bytes]()
        began = clock()

        async def work(stores: Stores) -> None:
            view = await stores.view(store)
            if slow:  # a reader may read until the bytes of a store are deleted
                await asyncio.sleep(DELAY_SECONDS * 0.9)
            for path in content.files:
                found[path] = await read(view.file(path))

        wrong = ""
        try:
            await self.ask(space, work)
        except NotFound:
            wrong = "is lost" if self.ledger.must_exist(space, store, begin) else ""
        except IntegrityError as error:
            wrong = f"is damaged: {error}" if clock() < began + DELAY_SECONDS else ""
        else:
            if found != content.files:
                wrong = "has other bytes"
            elif self.ledger.must_be_gone(space, store, begin):
                wrong = "is there after it was removed"
        if wrong:
            raise Violation(f"{content.name} in {space} {wrong}")

    async def tag(self) -> None:
        """Set a tag, sometimes on condition of its entity tag, and then perhaps twice at once."""
        name, seen = self.random.choice(TAGS), None
        if self.random.random() < 0.6:
            with suppress(NotFound):
                seen = (await self.ask("default", lambda stores: stores.tags.get(name))).etag
        moves = (self._move(name, seen) for _ in range(1 if seen is None else self.random.choice((1, 2))))
        for found in await asyncio.gather(*moves, return_exceptions=True):
            if isinstance(found, Exception):
                raise found

    async def _move(self, name: str, seen: str | None) -> None:
        store, begin = self.ids[self.random.choice(CONTENTS).name], self.ledger.tick()
        deeds = [self.ledger.tag("default", name, store)]
        answer = await self.noted(
            deeds, self.ask("default", lambda stores: stores.put_tag(name, store, if_match=seen)), NotFound, Conflict
        )
        if answer is not None:
            self.ledger.see(name, answer[0].etag, seen)
            if self.ledger.must_be_gone("default", store, begin):
                raise Violation("a tag was pointed at a store that was removed")

    async def untag(self) -> None:
        """Remove a tag."""
        name = self.random.choice(TAGS)
        deeds = [self.ledger.tag("default", name, None)]
        await self.noted(deeds, self.ask("default", lambda stores: stores.tags.remove(name)), NotFound)

    async def cut(self) -> None:
        """Request the pieces of a store, which are derived facts."""
        space, content = self.place()
        with suppress(NotFound, IntegrityError):
            await self.ask(space, lambda stores: self._cut(stores, self.ids[content.name]))

    async def _cut(self, stores: Stores, store: str) -> None:
        await table_of(await stores.view(store))

    async def pause(self) -> None:
        """Wait for some time."""
        await asyncio.sleep(self.random.choice((1, 100, 1000)))


async def sent(
    stores: Stores, content: Content, request: IngestRequest, *,
    told: bool = False, other: str | None = None, pause: float = 0.0,
) -> str:  # fmt: skip
    """Send a store, with files of an `other` store where they are equal, and return its id."""
    async with await stores.ingest(request) as ingest:
        refs = {}
        if other is not None:
            with suppress(NotFound):
                refs = {each.sha256: each for each in (await stores.files(other)).values()}
        digests = {path: hashlib.sha256(data) for path, data in content.files.items()}
        await ingest.take({path: refs[sha.hexdigest()] for path, sha in digests.items() if sha.hexdigest() in refs})
        for path, data in content.files.items():
            if digests[path].hexdigest() not in refs:
                sink = await ingest.file(path, expected_sha256=digests[path].digest() if told else None)
                for at in range(0, len(data), 30):
                    await sink.write(data[at : at + 30])
                await sink.close()
        await asyncio.sleep(pause)
        whole = digests["a.bin"].digest() if told and [*digests] == ["a.bin"] else None
        return (await ingest.commit(expected_sha256=whole)).store.id
