"""Actions that remove a store, take that back, or destroy a part of it."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass

from tests.stores.simulation.clients import TAGS, Action, Client
from tests.stores.simulation.cluster import Unreachable
from tests.stores.simulation.contents import FAMILY, Content
from tests.stores.simulation.ledger import Entry
from tests.stores.simulation.registers import Deed
from tests.stores.simulation.sending import entry_and_deeds
from tests.support.stores import keys_in

from protoslice.errors import Conflict, NotFound, StorageUnavailable
from protoslice.storage import ObjectKey, Storage


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
        for begun in entry_and_deeds(entry, deeds):
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
        for begun in entry_and_deeds(entry, deeds):
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
        attempts = set(ATTEMPT.findall(wanted))
        found = [key for key in await keys_in(truth, "objects") if key.split("/")[1] in attempts and _is_content(key)]
        if not found:
            return
        key = client.random.choice(found)
        damaged = {store for store, manifest in manifests.items() if key.split("/")[1] in manifest}
        family = {client.ids[content.name] for content in FAMILY}
        for store in damaged | (family if damaged & family else set()):  # a recipe under way may share the object
            ledger.damaging(store)
        data = await _content(truth, key)
        if data and client.random.random() < 0.5:
            await truth.put(ObjectKey(key), data[:-1].encode("latin-1"))
        else:
            await truth.delete(ObjectKey(key))
        client.say(f"destroys {key}")


ATTEMPT = re.compile(r"[0-9a-f]{10}-[0-9a-f]{20}")


def _is_content(key: str) -> bool:
    return not key.endswith("/claim") and "/of-" not in key


async def _content(storage: Storage, key: str) -> str:
    """An object as text, each byte a letter; empty when there is none."""
    try:
        size = (await storage.stat(ObjectKey(key))).size
        return (await storage.get_range(ObjectKey(key), 0, size)).decode("latin-1")
    except NotFound:
        return ""
