"""The command `erase`, which deletes a store for good."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final

import typer

from protoslice.cli.errors import ExitCode
from protoslice.cli.options import DatabaseUrl, Json, StorageUri, open_service, service_settings
from protoslice.cli.tables import agreed, counted, note, print_json, print_table, say
from protoslice.errors import InvalidInput, NotFound
from protoslice.sizes import format_size

if TYPE_CHECKING:
    from protoslice.catalog.erasing import Erasable
    from protoslice.database import Database
    from protoslice.server.settings import Settings
    from protoslice.storage import Storage
    from protoslice.stores.collection import Stranded

_ID: Final = re.compile("[0-9a-f]{12,64}")
_SHOWN: Final = 3
"""Maximum number of other stores that a line names."""


@dataclass(frozen=True, slots=True)
class Remainder:
    """A place where bytes or names of an erased store remain."""

    place: str
    what: str
    until: str
    sooner: str
    failed: bool = False
    """True if the command should have removed these bytes or names."""


def erase(
    store: Annotated[str, typer.Argument(metavar="ID", help="Id of the store, or its first 12 or more digits.")],
    storage: StorageUri = None,
    database: DatabaseUrl = None,
    space: Annotated[str, typer.Option(metavar="NAME", help="Space of the store.")] = "default",
    every_space: Annotated[bool, typer.Option("--every-space", help="Erase the store in all spaces.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Erase without asking.")] = False,
    as_json: Json = False,
) -> None:
    """Erase a store for good, and list where parts remain.

    The store cannot be restored. Commits that contain its files stay, but lose these files. Files that MLflow logged,
    images and tags are removed. The command can run while services use the storage. Run it again if it was interrupted.
    Like `serve`, it reads PROTOSLICE_STORAGE, PROTOSLICE_STORAGE_OPTIONS and PROTOSLICE_DATABASE. The exit code is 3 if
    something could not be removed.

    Example: protoslice erase 9f0c5bd1e4a7 --every-space --storage /var/lib/protoslice
    """
    if not _ID.fullmatch(store):
        raise InvalidInput(f"{store[:80]!r} is not the id of a store: `protoslice info TAG` shows the id")
    settings = service_settings(storage=storage, database=database)
    found = asyncio.run(_found(settings, store, None if every_space else space))
    if not as_json:
        _show(found)
    if not yes and not _confirmed(found):
        note("nothing was erased")
        return
    left = asyncio.run(_erased(settings, found))
    digest = found[0].digest
    if as_json:
        print_json({"store": digest, "erased": found, "remains": left})
    else:
        say(_outcome(found, left))
        print_table(["remains in", "what", "until", "sooner"], [[x.place, x.what, x.until, x.sooner] for x in left])
    if any(each.failed for each in left):
        raise typer.Exit(ExitCode.FAILED)


def _outcome(found: Sequence[Erasable], left: Sequence[Remainder]) -> str:
    digest = found[0].digest
    if any(each.failed for each in left):
        return f"Store {digest} is not erased."
    if any(each.stores or each.names for each in found):
        return f"Erased store {digest}."
    return f"Store {digest} was erased already: nothing is left to erase."


def _show(found: Sequence[Erasable]) -> None:
    rows = []
    for each in found:
        if each.stores:
            objects = counted(each.objects, "object")
            rows.append([each.space, "store", f"{each.digest} ({format_size(each.size)}, {objects})"])
        rows += [[each.space, "name", name] for name in each.names]
    print_table(["space", "erases", ""], rows)
    sys.stdout.flush()


def _confirmed(found: Sequence[Erasable]) -> bool:
    store = f"store {found[0].digest[:12]}"
    return agreed(f"erase {store} for good?", f"{store.capitalize()} would be erased for good: pass --yes to erase it")


@asynccontextmanager
async def _open(settings: Settings, space: str | None) -> AsyncIterator[tuple[Storage, Database, list[str]]]:
    """Yield the storage, the database, and the names of the spaces to use.

    The names are the existing space `space`, or all spaces if `space` is None.
    """
    from protoslice.catalog.erasing import spaces

    async with open_service(settings, audited=True) as (storage, database):
        names = await spaces(database)
        if space is not None and space not in names:
            raise NotFound(f"No space {space!r}")
        yield storage, database, names if space is None else [space]


async def _found(settings: Settings, store: str, space: str | None) -> list[Erasable]:
    """Return the erasable parts of the store, one item for each space that has the store.

    Spaces from which an interrupted command has already erased the store are included.
    """
    from protoslice.catalog.erasing import Eraser

    async with _open(settings, space) as (_, database, spaces):
        found = {each: await Eraser(database, each).starting_with(store) for each in spaces}
        digests = set[str]().union(*found.values())
        if not digests:
            raise NotFound(f"No store {store} in {'any space' if space is None else f'the space {space!r}'}")
        if len(digests) > 1:
            raise InvalidInput(f"Several stores have ids that begin with {store}: give more digits")
        (digest,) = digests
        return [await Eraser(database, each).look(digest) for each in spaces if found[each]]


async def _erased(settings: Settings, found: Sequence[Erasable]) -> list[Remainder]:
    from protoslice.catalog.erasing import Eraser
    from protoslice.stores.collection import empty_trash, stranded

    async with _open(settings, None) as (storage, database, spaces):
        digest = found[0].digest
        keys, left = list[str](), list[Remainder]()
        for each in found:
            eraser = Eraser(database, each.space)
            objects = await eraser.parts_of_objects(digest)
            keys += await eraser.keys(objects)
            kept = await stranded(database, each.space, objects, digest)
            await eraser.erase(digest, [one.id for one in kept])
            objects = await eraser.parts_of_objects(digest)
            left += map(_stranded, await stranded(database, each.space, objects, digest))
        await empty_trash(storage, database)
        for space in spaces:
            if await Eraser(database, space).is_left(digest):
                known = any(each.space == space for each in found)
                what = "the store, uploaded again, or a name of it" if known else "another copy"
                left.append(Remainder(f"space {space}", what, "erased too", _command(digest, space), failed=known))
        return [*left, *_shared(found), *await _elsewhere(settings, database, digest, keys)]


def _stranded(object: Stranded) -> Remainder:
    """Describe bytes that remain in an object because other stores use other bytes of the same object."""
    size = f"{format_size(object.size)} ({object.size} B)" if object.size >= 1024 else f"{object.size} B"
    return Remainder(
        f"object {object.key}",
        f"{size} that no other store uses",
        f"the stores that use the rest of the object are erased: {_named(object.stores)}",
        "pull, erase and push each of these stores",
        failed=True,
    )


def _named(stores: Sequence[str]) -> str:
    more = len(stores) - _SHOWN
    return " ".join(digest[:12] for digest in stores[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _shared(found: Sequence[Erasable]) -> list[Remainder]:
    """Describe the bytes that other stores, or open uploads, share with the erased store."""
    left = []
    for each in found:
        if each.sharing:
            what = f"bytes shared with {_named(each.sharing)}"
            sooner = _command(each.sharing[0], each.space)
            left.append(Remainder(f"space {each.space}", what, "these are erased", sooner))
        if each.uploads:
            left.append(
                Remainder(f"space {each.space}", f"bytes of {each.uploads} open uploads", "they expire", "wait")
            )
    return left


async def _elsewhere(settings: Settings, database: Database, digest: str, keys: Collection[str]) -> list[Remainder]:
    """List the places outside the catalogue where bytes or names of the erased store may remain."""
    from protoslice.catalog.erasing import traces
    from protoslice.database.snapshots import last_snapshots
    from protoslice.database.transactions import SECOND

    there, (backed_up, dumped) = await traces(database, digest, keys), await last_snapshots(database)
    left = []
    if there.waiting:
        own = f", {there.own} of them from this store" if keys else ""
        what = f"bytes of {there.waiting} objects from all removed stores{own}"
        until = (
            "a backup or check has ended" if there.overdue else f"{settings.deletion_delay_seconds / 60:.0f} minutes"
        )
        left.append(Remainder("storage", what, until, "protoslice gc", failed=there.overdue > 0))
    if there.histories:
        left.append(
            Remainder("histories", "messages of commits", "their deletion", "delete_repo or super_squash_history")
        )
    seconds = settings.audit_seconds
    until = (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%d") if seconds else "for ever"
    left.append(Remainder("audit", "id, names and tags", until, "a lower PROTOSLICE_AUDIT_SECONDS"))
    if there.events:
        left.append(Remainder("webhooks", f"{there.events} events", "their delivery", "protoslice webhook rm NAME"))
    if database.dialect == "sqlite":
        left.append(Remainder("database", "deleted rows", "new rows overwrite them", "stop the service and run VACUUM"))
    if backed_up:
        until = "as many newer ones as --keep says, by default 7"
        left.append(Remainder("backups", "bytes and names", until, "protoslice backup TARGET --keep 1"))
    if dumped:
        end = datetime.fromtimestamp(dumped / SECOND, UTC) + timedelta(days=settings.dumps)
        left.append(Remainder("dumps", "names, small files", end.strftime("%Y-%m-%d"), "delete files in snapshots/"))
    return [
        *left,
        Remainder("caches", "bytes", "the cache needs their space", "delete PROTOSLICE_CACHE_DIRECTORY"),
        Remainder("proxies", "responses", "at most a year from now", "empty proxy_cache_path"),
        Remainder("logs", "names and ids", "your retention", ""),
        Remainder("clients", "what they pulled", "", ""),
    ]


def _command(digest: str, space: str) -> str:
    return f"protoslice erase {digest[:12]} --space {space}"
