"""Actions that set, remove and read tags."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from tests.stores.simulation.clients import TROUBLE, Action, Client
from tests.stores.simulation.cluster import Unreachable
from tests.stores.simulation.contents import Content
from tests.stores.simulation.ledger import Violation
from tests.stores.simulation.registers import Deed

from protoslice.errors import Conflict, NotFound, StorageUnavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTag(Action):
    """Points a tag at a store: always (`any`), if unset (`new`), or if unchanged since a look (`match`)."""

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
