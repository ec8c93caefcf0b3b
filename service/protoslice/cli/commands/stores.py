"""The commands `ls`, `tag`, `rm`, `restore` and `log`, which manage the stores of a service."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from protoslice.cli.hints import command_line
from protoslice.cli.models.remote import connect, names_of
from protoslice.cli.options import Json, Limit, ServiceUrl, Since, Until
from protoslice.cli.tables import agreed, note, print_items, print_json, say, utc
from protoslice.errors import InvalidInput, NotFound, StillNamed, StorageDenied, UnknownCaller
from protoslice.references import Address, service_url, store_of
from protoslice.sizes import format_size

if TYPE_CHECKING:
    from protoslice.client.options import StoreSearch

_ID = re.compile("[0-9a-f]{12,64}")
"""Pattern of a store's id, or of its first digits. No tag matches this pattern."""

Names = Annotated[
    list[str],
    typer.Argument(metavar="TAG|ID…", help="Tags to remove (their stores are kept), or ids of stores to remove."),
]


def ls(  # noqa: PLR0913 - each is an option
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Only stores with this text in a name or a file's path.")
    ] = None,
    url: ServiceUrl = None,
    type_name: Annotated[
        str | None,
        typer.Option("--type", metavar="TYPE", help="Only stores of this message type, such as onnx.ModelProto."),
    ] = None,
    uploader: Annotated[
        str | None, typer.Option(metavar="WHO", help="Only stores that this token or account created.")
    ] = None,
    min_size: Annotated[str | None, typer.Option(metavar="SIZE", help="Only stores of this size or more.")] = None,
    max_size: Annotated[str | None, typer.Option(metavar="SIZE", help="Only stores of this size or less.")] = None,
    since: Since = None,
    until: Until = None,
    sort: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="created, size, name, type or uploader; with - in front, descending.",
            show_default="-created",
        ),
    ] = None,
    tag: Annotated[
        str | None,
        typer.Option(metavar="TAG", help="Only stores with a tag that starts with this text, sorted by tag."),
    ] = None,
    nameless: Annotated[
        bool, typer.Option("--nameless", help="Only stores without a tag and without a name in a registry.")
    ] = False,
    limit: Limit = 100,
    repositories: Annotated[
        bool, typer.Option("--repositories", help="List repositories of model registries instead.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List and search stores, newest first.

    Example: protoslice ls resnet --min-size 1GiB --sort -size
    """
    search: StoreSearch = {
        "name": name, "type": type_name, "uploader": uploader, "min_size": min_size, "max_size": max_size,
        "since": since, "until": until, "tag": tag, "sort": sort, "nameless": nameless or None,
    }  # fmt: skip
    if tag is not None and sort is not None:
        raise InvalidInput("A list by --tag is sorted by tag: leave out --sort, or search by NAME instead of --tag")
    if repositories:
        if any(value is not None for value in search.values()):
            raise InvalidInput("--repositories lists all repositories: leave out the options and the NAME of a search")
        _ls_repositories(url, as_json)
        return
    columns: dict[str, Callable[[Any], object]] = {
        "store": lambda store: store.id[:12],
        "size": lambda store: format_size(store.size),
        "created": lambda store: store.created,
        "type": lambda store: store.type or "files only",
        "names": lambda store: names_of(store) or f"({store.root or _first_file(store)})",
    }
    with connect(service_url(url)) as client:
        print_items(client.stores(**search), columns, as_json=as_json, right=(1,), limit=limit)


def _ls_repositories(url: str | None, as_json: bool) -> None:
    columns: dict[str, Callable[[Any], object]] = {
        "repository": lambda each: each.name,
        "size": lambda each: None if each.size is None else format_size(each.size),
        "updated": lambda each: each.updated,
        "type": lambda each: each.type,
        "protocol": lambda each: each.protocol,
    }
    with connect(service_url(url)) as client:
        print_items(client.repositories(), columns, as_json=as_json, right=(1,))


def _first_file(store: Any) -> str:
    return next((file.path for file in store.files), "no files")


def tag(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The tag, such as resnet50:3.")],
    store: Annotated[str | None, typer.Argument(metavar="STORE", help="Store to point the tag at.")] = None,
    new: Annotated[bool, typer.Option("--new", help="Fail if the tag already exists.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the tag; its store is kept.")] = False,
    url: ServiceUrl = None,
    as_json: Json = False,
) -> None:
    """Point a tag at a store, or remove a tag.

    Example: protoslice tag resnet50:latest @resnet50:3
    """
    if remove == (store is not None):
        raise InvalidInput("Pass the STORE to point the tag at, or --remove to remove the tag")
    if store is None:
        with connect(service_url(url)) as client:
            client.untag(name)
        return
    address = store_of(store, url)
    with connect(address.service) as client:
        made = client.tag(name, address.ref, create=new)
    if as_json:
        print_json({"name": made.name, "store": made.store})
    else:
        say(f"{made.name} → {made.store}")


@dataclass(frozen=True, slots=True)
class _Removal:
    """A tag or a store that the command removes."""

    client: Any
    ref: str
    store: Any
    """The store itself, or the store at which the tag points. It is None if that store no longer exists."""
    is_store: bool

    @property
    def key(self) -> tuple[str, str]:
        """A key that is the same for two names of one store."""
        return self.client.url, self.store.id if self.is_store else self.ref

    def tags(self, named: Collection[str]) -> list[str]:
        """Return the tags that disappear together with the store, except the tags in `named`."""
        return [tag for tag in self.store.tags if tag not in named] if self.is_store else []

    def broken(self, forced: Collection[str]) -> list[Any]:
        """Return the names in registries that the removal breaks, except the names in `forced`."""
        names = self.store.names if self.is_store else ()
        return [each for each in names if each.protocol != "tag" and each.name not in forced]

    def run(self, forced: Collection[str]) -> dict[str, object]:
        """Remove the tag or the store, and return the facts that `--json` prints."""
        if self.is_store:
            # Pass the tags that the user has seen. If a tag was created since then, the service refuses the removal.
            removed = self.client.remove(self.store.id, force=sorted({*self.store.tags, *forced}))
            until = utc(removed.restorable_until)
            return {"store": removed.id, "tags": removed.tags, "restorable_until": until}
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
        # Remove the tags first, because the removal of a store also removes its tags.
        removals = sorted(found.values(), key=lambda removal: removal.is_store)
        forced = {*(force or ())}
        _check_unbroken(removals, forced)
        if not yes and not _confirmed(removals):
            note("nothing was removed")
            return
        done = []
        for removal in removals:
            done.append(removal.run(forced))
            if not as_json:
                _report(removal, done[-1])
    if as_json:
        print_json(done)


def _found(held: ExitStack, address: Address, wants_store: bool) -> _Removal:
    client = held.enter_context(connect(address.service))
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
    """Raise `StillNamed` if a removal would break names in registries that are not in `forced`."""
    for removal in removals:
        broken = removal.broken(forced)
        if broken:
            named = ", ".join(f"{each.name} ({each.protocol})" for each in broken)
            options = " ".join(f"--force {quote(each.name)}" for each in broken)
            raise StillNamed(
                f"Store {removal.store.id[:12]} is still referenced by {named}; to remove it anyway, add: {options}"
            )


def _confirmed(removals: Sequence[_Removal]) -> bool:
    """Ask whether to remove stores together with tags that the user did not name, and return the answer.

    Raise `InvalidInput` if the question is necessary and there is no terminal.
    """
    named = {removal.ref for removal in removals}
    for removal in removals:
        tags = removal.tags(named)
        if not tags:
            continue
        said = f"store {removal.store.id[:12]} also has the tags {', '.join(tags)}"
        if not agreed(f"{said}: remove it with its tags?", f"{said}: pass --yes to remove it with its tags"):
            return False
    return True


def _report(removal: _Removal, done: dict[str, Any]) -> None:
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
        typer.Argument(
            metavar="STORE", help="Id of the removed store, its first 12 or more digits, or a tag that it had."
        ),
    ],
    url: ServiceUrl = None,
    as_json: Json = False,
) -> None:
    """Restore a removed store, with its tags.

    Tags that now point at another store are not restored.

    Example: protoslice restore resnet50:3
    """
    address = store_of(store, url)
    with connect(address.service) as client:
        restored = client.restore(address.ref)
        at = Address(client.url, restored.store.id).page
    if as_json:
        print_json(asdict(restored.store) | {"tags_taken": restored.tags_taken})
        return
    say(at)
    if restored.store.tags:
        note(f"with the tags {' '.join(restored.store.tags)}")
    for tag in restored.tags_taken:
        note(f"The tag {tag} was not restored: it now points at another store")


def log(  # noqa: PLR0913 - each is an option
    subject: Annotated[
        str | None, typer.Argument(metavar="SUBJECT", help="Only changes of the store with this id, or of this name.")
    ] = None,
    url: ServiceUrl = None,
    who: Annotated[str | None, typer.Option(metavar="WHO", help="Only changes by this token or account.")] = None,
    what: Annotated[
        str | None, typer.Option(metavar="WHAT", help="Only changes of this kind, such as store.removed.")
    ] = None,
    since: Since = None,
    until: Until = None,
    every_space: Annotated[
        bool,
        typer.Option("--every-space", help="Show only changes of spaces, and of tokens that are valid in all spaces."),
    ] = False,
    limit: Limit = 100,
    as_json: Json = False,
) -> None:
    """List changes and who made them, newest first.

    Example: protoslice log resnet:3 --since 2026-11-01
    """
    columns: dict[str, Callable[[Any], object]] = {
        "time": lambda change: f"{change.at:%Y-%m-%d %H:%M:%S}",
        "who": lambda change: f"{change.who} ({change.who_id})" if change.who_id else change.who or "-",
        "what": lambda change: change.what,
        "subject": lambda change: change.subject[:12] if change.what.startswith("store.") else change.subject,
        "detail": _detail,
    }
    with connect(service_url(url)) as client:
        changes = client.changes(every_space=every_space, subject=subject, who=who, what=what, since=since, until=until)
        print_items(changes, columns, as_json=as_json, limit=limit)


def _detail(change: Any) -> str:
    detail = {name: value for name, value in change.detail.items() if value not in ("", change.subject, None, [])}
    return " ".join(f"{name}={_short(value)}" for name, value in detail.items())


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text[:12] if len(text) == 64 else text
