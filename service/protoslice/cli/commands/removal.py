"""The verbs that remove tags and stores, and take the removal of a store back: `rm`, `restore`."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from shlex import quote
from typing import Annotated, Any

import typer

from protoslice.cli.hints import command_line
from protoslice.cli.models.remote import client_of, store_facts
from protoslice.cli.options import Json, ServiceUrl
from protoslice.cli.tables import escaped, note, print_json, say, utc
from protoslice.errors import InvalidInput, NotFound, StillNamed, StorageDenied, UnknownCaller
from protoslice.references import Address, store_of

_ID = re.compile("[0-9a-f]{12,64}")
"""An id, or the beginning of one; no tag looks like that."""

Names = Annotated[
    list[str],
    typer.Argument(metavar="TAG|ID…", help="Tags (their stores are kept), or ids of stores."),
]


@dataclass(frozen=True, slots=True)
class _Removal:
    """One thing that is to be removed."""

    client: Any
    ref: str
    store: Any
    """The store that it is or points at; None for a tag whose store is gone."""
    is_store: bool

    @property
    def key(self) -> tuple[str, str]:
        """The same for two ways to name one thing."""
        return self.client.url, self.store.id if self.is_store else self.ref

    def tags(self, named: Collection[str]) -> list[str]:
        """The tags that go with it, but for those `named`."""
        return [tag for tag in self.store.tags if tag not in named] if self.is_store else []

    def broken(self, forced: Collection[str]) -> list[Any]:
        """Return the names in registries that break with it, without those `forced`."""
        names = self.store.names if self.is_store else ()
        return [each for each in names if each.protocol != "tag" and each.name not in forced]

    def run(self, forced: Collection[str]) -> dict[str, object]:
        """Remove it; what is told of it as JSON."""
        if self.is_store:
            # The tags as they were shown: a name that has been made since is refused by the service.
            removed = self.client.remove(self.store.id, force=sorted({*self.store.tags, *forced}))
            until = utc(removed.restorable_until)
            return {"store": removed.id, "tags": list(removed.tags), "restorable_until": until}
        self.client.untag(self.ref)
        return {"tag": self.ref, "store": None if self.store is None else self.store.id}


def rm(
    names: Names,
    store: Annotated[bool, typer.Option("--store", help="Remove the store that TAG points at.")] = False,
    url: ServiceUrl = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove the store's tags too, without asking.")] = False,
    force: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Remove the store although this registry name, such as ann/m@main, refers to it; repeatable.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Remove tags, or stores by id.

    Removing a tag keeps its store; removing a store removes its tags. If a store is named in repositories, OCI tags
    or MLflow folders, pass --force with each of these names. A removed store can be restored until `gc` collects
    its objects.

    Example: protoslice rm resnet50:3
    """
    with ExitStack() as held:
        found = {removal.key: removal for removal in (_found(held, store_of(name, url), store) for name in names)}
        removals = sorted(found.values(), key=lambda removal: removal.is_store)  # a store would take the tags along
        forced = {*(force or ())}
        _check_unbroken(removals, forced)
        if not yes and not _agreed(removals):
            note("nothing was removed")
            return
        done = []
        for removal in removals:
            done.append(removal.run(forced))
            if not as_json:
                _tell(removal, done[-1])
    if as_json:
        print_json(done)


def _found(held: ExitStack, address: Address, wants_store: bool) -> _Removal:
    client = held.enter_context(client_of(address.service))
    is_store = wants_store or _ID.fullmatch(address.ref) is not None
    try:
        return _Removal(client, address.ref, client.store(address.ref), is_store)
    except NotFound:
        if is_store or all(tag.name != address.ref for tag in client.tags()):
            raise
        return _Removal(client, address.ref, None, is_store)
    except StorageDenied as error:
        if not isinstance(error, UnknownCaller):
            error.message = f"rm needs the scopes delete and read: {error.message}"
        raise


def _check_unbroken(removals: Sequence[_Removal], forced: Collection[str]) -> None:
    """Raise `StillNamed` if names in registries would break that are not `forced`."""
    for removal in removals:
        broken = removal.broken(forced)
        if broken:
            named = ", ".join(f"{each.name} ({each.protocol})" for each in broken)
            options = " ".join(f"--force {quote(each.name)}" for each in broken)
            raise StillNamed(
                f"Store {removal.store.id[:12]} is still referenced by {named}; to remove it anyway, add: {options}"
            )


def _agreed(removals: Sequence[_Removal]) -> bool:
    """Permission for unnamed tags to go with their stores; a terminal is asked, anything else is refused."""
    named = {removal.ref for removal in removals}
    for removal in removals:
        tags = removal.tags(named)
        if not tags:
            continue
        said = f"store {removal.store.id[:12]} also has the tags {', '.join(tags)}"
        if not sys.stdin.isatty():
            raise InvalidInput(f"{said}: pass --yes to remove it with its tags")
        print(escaped(f"protoslice: {said}: remove it with its tags? [y/N] "), end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            return False
    return True


def _tell(removal: _Removal, done: dict[str, Any]) -> None:
    if "tags" in done:
        tags = f" and its tags {' '.join(done['tags'])}" if done["tags"] else ""
        say(f"Removed store {done['store']}{tags}.")
        again = command_line("restore", Address(removal.client.url, done["store"]))
        note(f"Undo until {done['restorable_until']} with: {again}")
        return
    say(f"Removed tag {done['tag']}.")
    if removal.store is not None:
        others = [tag for tag in removal.store.tags if tag != removal.ref]
        also = command_line("rm", Address(removal.client.url, removal.store.id[:12]))
        named = f"it still has the tags {' '.join(others)}" if others else f"to remove it: {also}"
        note(f"store {removal.store.id[:12]} is kept; {named}")


def restore(
    store: Annotated[
        str,
        typer.Argument(metavar="STORE", help="Id of the removed store, its first 12 or more digits, or a tag it had."),
    ],
    url: ServiceUrl = None,
    as_json: Json = False,
) -> None:
    """Restore a removed store, with its tags.

    Tags that now point at another store are not restored.

    Example: protoslice restore resnet50:3
    """
    address = store_of(store, url)
    with client_of(address.service) as client:
        restored = client.restore(address.ref)
        at = Address(client.url, restored.store.id).page
    if as_json:
        print_json(store_facts(restored.store) | {"tags_taken": list(restored.tags_taken)})
        return
    say(at)
    if restored.store.tags:
        note(f"with the tags {' '.join(restored.store.tags)}")
    for tag in restored.tags_taken:
        note(f"{tag} was not restored: it points at another store now")
