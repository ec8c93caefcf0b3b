"""Clients: scripts of actions, each a request or a few, that hold the service to what it says."""

from __future__ import annotations

import asyncio
import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import Any, TypeVar

from tests.stores.simulation.cluster import Cluster, Unreachable
from tests.stores.simulation.contents import Content
from tests.stores.simulation.faults import REQUEST
from tests.stores.simulation.ledger import Entry, Ledger, Violation
from tests.stores.simulation.registers import Deed
from tests.support.stores import assert_whole, keys_in

from protoslice.errors import Conflict, IntegrityError, NotFound, ProtosliceError, StorageUnavailable
from protoslice.recipes import Copy, RecipeWriter
from protoslice.storage import ObjectKey, Storage
from protoslice.stores import IngestRequest, Stores, follow

__all__ = [
    "TAGS",
    "Action",
    "Client",
    "Collect",
    "Damage",
    "DropTag",
    "Look",
    "Read",
    "Recipe",
    "Remove",
    "Restore",
    "Send",
    "SetTag",
    "pieces",
]

T = TypeVar("T")

TAGS = ("v1", "v2")
TROUBLE = (StorageUnavailable, Unreachable)
"""The client cannot know whether what it wanted has been done."""


class Client:
    """Does what its script says. What it is told is held against what it was told before."""

    def __init__(self, name: str, cluster: Cluster, ledger: Ledger, ids: Mapping[str, str]) -> None:
        self.name = name
        self.cluster = cluster
        self.ledger = ledger
        self.ids = ids
        """The ids of stores, by the names of their contents."""
        self.etags: dict[str, str] = {}
        """The entity tags of tags, as they were seen last."""
        self.random = Random()
        self._action: Action
        self._label = ""
        self._requests = 0

    async def act(self, number: int, action: Action) -> None:
        """Do action `number` of the script."""
        self._label, self._requests = f"{self.name}.{number}", 0
        self.random = Random(f"{self.cluster.seed} {self._label}")
        self._action = action
        await asyncio.sleep(action.wait)
        await action.run(self)

    def another(self, what: str) -> Client:
        """Another client, who acts beside this one."""
        other = Client(f"{self.name}+", self.cluster, self.ledger, self.ids)
        other._action, other._label = self._action, f"{self._label}+{what[-4:]}"
        other.random = Random(f"{self.cluster.seed} {other._label}")
        return other

    def replica(self) -> int:
        """The replica to be asked next."""
        return self.random.choice(sorted(self.cluster.machines))

    async def ask(self, kind: str, work: Callable[[Stores], Awaitable[T]], replica: int | None = None) -> T:
        """What a replica answers; `Unreachable` when it does not, or not in time."""
        machine = self.cluster.machines[self.replica() if replica is None else replica]
        request = self.cluster.request(f"{self._label}.{self._requests}", kind)
        leaves = self.random.random() < 0.5
        self._requests += 1
        stores = machine.stores
        if machine.dead or stores is None:
            await asyncio.sleep(1)
            raise Unreachable(f"{machine.name} is down")
        task = self.cluster.begin(machine, request, _awaited(work, stores))
        waiting: set[asyncio.Future[Any]] = {task, machine.death}
        await asyncio.wait(waiting, timeout=self._action.patience, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            if leaves:
                task.cancel()
            self.say(f"{kind} at {machine.name}: no answer{' (and leaves)' if leaves else ''}")
            raise Unreachable(f"{machine.name} does not answer")
        return self._told(kind, machine.name, task)

    def _told(self, kind: str, machine: str, task: asyncio.Task[T]) -> T:
        error = task.exception()
        self.say(f"{kind} at {machine}: {_brief(error if error is not None else task.result())}")
        if error is not None and not isinstance(error, ProtosliceError | Violation):
            raise Violation("errors are those of the vocabulary", f"{kind} ended with {error!r}") from error
        return task.result()

    def say(self, text: str) -> None:
        """Note something in the journal."""
        self.cluster.journal.told(self.cluster.loop.now, self.name, lambda: text)


async def _awaited(work: Callable[[Stores], Awaitable[T]], stores: Stores) -> T:
    return await work(stores)


def _brief(told: object) -> str:
    return f"{type(told).__name__}: {told}" if isinstance(told, Exception) else str(told)[:150]


async def pieces(data: bytes, size: int = 40) -> AsyncIterator[bytes]:
    """The body of a request, which comes slowly."""
    for at in range(0, len(data), size):
        await asyncio.sleep(0.001 + REQUEST.get().random.random() / 50)
        yield data[at : at + size]


@dataclass(frozen=True, slots=True, kw_only=True)
class Action(ABC):
    """What a client does next, after a while; it loses its patience with a replica that takes longer than that."""

    wait: float = 0.0
    patience: float = 60.0

    @abstractmethod
    async def run(self, client: Client) -> None:
        """Do it. Whatever goes wrong as it may is borne; anything else is a `Violation`."""

    def simpler(self) -> Iterator[Action]:
        """The same with less to it, for a history to be made shorter."""
        if self.wait:
            yield replace(self, wait=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Send(Action):
    """Send a store whole, with tags."""

    content: Content
    tags: tuple[str, ...] = ()

    def simpler(self) -> Iterator[Action]:
        """See `Action.simpler`."""
        yield from Action.simpler(self)
        if self.tags:
            yield replace(self, tags=())

    async def run(self, client: Client) -> None:
        """See `Action.run`."""
        await _taken_in(client, self.content, self.tags, "send", self.send)

    async def send(self, stores: Stores) -> tuple[str, bool]:
        """The id of the store, and whether it was not there before."""
        content = self.content
        async with await stores.ingest(IngestRequest(root=content.root, tags=self.tags)) as ingest:
            for path, data in content.files.items():
                sink = await ingest.file(path)
                async for piece in pieces(data):
                    await sink.write(piece)
                await sink.close()
            created = await ingest.commit()
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

        await _taken_in(client, self.content, (), "recipe", send)

    def _recipe(self, source: str) -> bytes:
        writer, recipe = RecipeWriter(), b""
        for path, data in self.content.files.items():
            recipe += writer.file(path)
            if self.source.files.get(path) == data:
                recipe += writer.copy(Copy(source, path, 0, len(data)))
            else:
                recipe += writer.literal(len(data)) + data
            recipe += writer.end(len(data), hashlib.sha256(data).hexdigest())
        return recipe + writer.done()


async def _taken_in(
    client: Client,
    content: Content,
    tags: tuple[str, ...],
    kind: str,
    work: Callable[[Stores], Awaitable[tuple[str, bool]]],
) -> None:
    """Note what comes of sending a store."""
    ledger, store = client.ledger, client.ids[content.name]
    entry = ledger.sending(store)
    deeds = [ledger.deed(name, Deed("set", entry.began, store)) for name in tags]
    try:
        made, created = await client.ask(kind, work)
    except Unreachable:
        return
    except (StorageUnavailable, Conflict):
        for begun in _all(entry, deeds):
            ledger.end(begun, sure=False)
        return
    if made != store:
        raise Violation("a store is what was sent", f"{content.name} became {made}")
    for begun in _all(entry, deeds):
        ledger.end(begun, sure=True)
    entry.created = created


def _all(entry: Entry, deeds: Sequence[Deed]) -> Sequence[Entry | Deed]:
    return [entry, *deeds]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove(Action):
    """Remove a store."""

    content: Content

    async def run(self, client: Client) -> None:
        """See `Action.run`."""
        ledger, store = client.ledger, client.ids[self.content.name]
        entry = ledger.removing(store)
        deeds = [ledger.deed(name, Deed("drop", entry.began, of=store)) for name in TAGS]
        for name in TAGS:
            ledger.dangling(name, store)
        sure = False
        with suppress(StorageUnavailable):
            try:
                await client.ask("remove", lambda stores: stores.delete(store))
                sure = True
            except NotFound:
                pass
            except Unreachable:
                return
        for begun in _all(entry, deeds):
            ledger.end(begun, sure=sure and isinstance(begun, Entry))


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore(Action):
    """Take the removal of a store back."""

    content: Content

    async def run(self, client: Client) -> None:
        """See `Action.run`."""
        ledger, store = client.ledger, client.ids[self.content.name]
        entry = ledger.sending(store, again=True)
        deeds = [ledger.deed(name, Deed("set", entry.began, store, condition="new", of=store)) for name in TAGS]
        sure = False
        with suppress(StorageUnavailable, NotFound, Conflict):
            try:
                await client.ask("restore", lambda stores: stores.restore(store))
                sure = True
            except Unreachable:
                return
        for begun in _all(entry, deeds):
            ledger.end(begun, sure=sure)


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage(Action):
    """Destroy an object of a store, as no client can: a stranger has found the storage."""

    content: Content

    async def run(self, client: Client) -> None:
        """See `Action.run`."""
        truth, ledger = client.cluster.truth, client.ledger
        manifests = {store: await _content(truth, f"stores/{store}") for store in ledger.contents}
        wanted = manifests[client.ids[self.content.name]]
        attempts = set(_ATTEMPT.findall(wanted))
        found = [key for key in await keys_in(truth, "objects") if key.split("/")[1] in attempts and _is_content(key)]
        if not found:
            return
        key = client.random.choice(found)
        for store, manifest in manifests.items():
            if key.split("/")[1] in manifest:
                ledger.damaging(store)
        data = await _content(truth, key)
        if data and client.random.random() < 0.5:
            await truth.put(ObjectKey(key), data[:-1].encode("latin-1"))
        else:
            await truth.delete(ObjectKey(key))
        client.say(f"destroys {key}")


_ATTEMPT = re.compile(r"[0-9a-f]{10}-[0-9a-f]{20}")


def _is_content(key: str) -> bool:
    return not key.endswith("/claim") and "/of-" not in key


async def _content(storage: Storage, key: str) -> str:
    """An object as text, each byte a letter; empty when there is none."""
    try:
        size = (await storage.stat(ObjectKey(key))).size
        return (await storage.get_range(ObjectKey(key), 0, size)).decode("latin-1")
    except NotFound:
        return ""


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
class SetTag(Action):
    """Point a tag at a store: however it is (`any`), if there is none (`new`), or if it is as it was seen (`match`)."""

    tag: str
    content: Content
    condition: str = "any"

    async def run(self, client: Client) -> None:
        """See `Action.run`."""
        ledger, store, seen = client.ledger, client.ids[self.content.name], client.etags.get(self.tag)
        if_match = seen if self.condition == "match" else None
        new = self.condition == "new" or (self.condition == "match" and seen is None)
        deed = ledger.deed(self.tag, Deed("set", ledger.moment(), store, condition="new" if new else if_match))
        try:
            tag, _ = await client.ask(
                "tag", lambda stores: stores.put_tag(self.tag, store, if_match=if_match, if_none_match=new)
            )
            deed.told, deed.etag = "done", tag.etag
            client.etags[self.tag] = tag.etag
        except Unreachable:
            return
        except Conflict:
            deed.told = "refused"
            await look(client, self.tag)
        except NotFound:
            ledger.tags[self.tag].remove(deed)  # there is no such store
        except StorageUnavailable:
            pass
        ledger.end(deed, sure=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class DropTag(Action):
    """Remove a tag: however it is (`any`), or if it is as it was seen (`match`)."""

    tag: str
    condition: str = "any"

    async def run(self, client: Client) -> None:
        """See `Action.run`."""
        ledger, seen = client.ledger, client.etags.get(self.tag)
        if_match = seen if self.condition == "match" else None
        deed = ledger.deed(self.tag, Deed("drop", ledger.moment(), condition=if_match))
        try:
            await client.ask("untag", lambda stores: stores.delete_tag(self.tag, if_match=if_match))
            deed.told = "done"
        except Unreachable:
            return
        except Conflict:
            deed.told = "refused"
        except NotFound:
            deed.told = "missing"
        except StorageUnavailable:
            pass
        ledger.end(deed, sure=True)


async def look(client: Client, name: str) -> None:
    """See where a tag points."""
    deed = client.ledger.deed(name, Deed("look", client.ledger.moment()))
    try:
        tag = await client.ask("look", lambda stores: stores.tag(name))
        deed.told, deed.store, deed.etag = "done", tag.store, tag.etag
        client.etags[name] = tag.etag
    except NotFound:
        deed.told = "missing"
    except TROUBLE:
        return
    client.ledger.end(deed, sure=True)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Look(Action):
    """List stores and tags, and see where a tag points."""

    tag: str

    async def run(self, client: Client) -> None:
        """See `Action.run`."""
        await look(client, self.tag)
        with suppress(*TROUBLE):
            listed = await client.ask("list", lambda stores: stores.list(limit=3))
            strange = [info.id for info in listed.items if info.id not in client.ledger.contents]
            if strange:
                raise Violation("a list shows what was sent", f"{strange}")
