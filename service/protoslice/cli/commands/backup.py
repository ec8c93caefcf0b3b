"""The commands `backup`, `restore-backup` and `check`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from protoslice.cli.errors import ExitCode
from protoslice.cli.options import DatabaseUrl, Json, StorageUri, open_service, service_settings
from protoslice.cli.progress import Progress
from protoslice.cli.tables import counted, note, print_json, say
from protoslice.errors import InvalidInput, NotFound
from protoslice.sizes import format_size
from protoslice.uris import parse_location

if TYPE_CHECKING:
    from protoslice.server.settings import Settings
    from protoslice.storage import Storage
    from protoslice.stores.backups import Checked, Copied

_SHOWN = 10
Target = Annotated[
    str, typer.Argument(metavar="TARGET", help="A path, or the URI of a bucket, such as s3://BUCKET/FOLDER.")
]


def backup(
    target: Target,
    storage: StorageUri = None,
    database: DatabaseUrl = None,
    keep: Annotated[int, typer.Option(min=1, metavar="N", help="Number of database snapshots to keep.")] = 7,
    as_json: Json = False,
) -> None:
    """Copy the database and new objects to a backup.

    The service may run during the backup. If the target already has backups, only new objects are copied.

    Example: protoslice backup s3://backups/protoslice --storage /var/lib/protoslice
    """
    settings = service_settings(storage=storage, database=database)
    done = asyncio.run(_back_up(settings, target, keep))
    if as_json:
        print_json(done)
    else:
        say(f"snapshot {done.snapshot}: {_copied(done)}")
        if done.deleted:
            say(f"{counted(done.deleted, 'object')} deleted that no snapshot refers to")
    _end_of("missing from the storage", done.missing)


def restore_backup(
    target: Target,
    storage: StorageUri = None,
    database: DatabaseUrl = None,
    snapshot: Annotated[
        str | None, typer.Option(metavar="TIME", help="Snapshot to restore.", show_default="the newest")
    ] = None,
    list_only: Annotated[bool, typer.Option("--list", help="List the snapshots of TARGET instead.")] = False,
    take_over: Annotated[
        bool,
        typer.Option("--take-over", help="Restore into the storage of a service whose database is lost."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Fill an empty storage and database from a backup.

    If TARGET is the storage itself, only the database is restored, from the dump that the service makes every day. This
    needs --take-over. A service that still runs on the storage deletes nothing afterwards, and you have to stop it.

    Example: protoslice restore-backup s3://backups/protoslice --storage /var/lib/protoslice
    """
    settings = service_settings(storage=storage, database=database)
    if list_only:
        names = asyncio.run(_snapshots(settings, target))
        if as_json:
            print_json(names)
        else:
            for name in names or ["There are no snapshots"]:
                say(name)
        return
    done = asyncio.run(_restore(settings, target, snapshot, take_over=take_over))
    if as_json:
        print_json(done)
    else:
        say(f"restored snapshot {done.snapshot}: {_copied(done)}")
    _end_of("missing from the backup", done.missing)


def check(
    storage: StorageUri = None,
    database: DatabaseUrl = None,
    read: Annotated[bool, typer.Option("--read", help="Also read all data, and verify its checksums.")] = False,
    delete_unknown: Annotated[
        bool, typer.Option("--delete-unknown", help="Delete objects that the database does not list.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check that the storage has all objects of the database.

    The service may run during the check. The exit code is 3 if objects are missing or damaged.

    Example: protoslice check --storage /var/lib/protoslice --read
    """
    settings = service_settings(storage=storage, database=database)
    found = asyncio.run(_check(settings, read=read, delete_unknown=delete_unknown))
    if as_json:
        print_json(found)
    else:
        stores = f", {found.stores} stores read" if read else ""
        verdict = "" if found.missing or found.damaged else "OK: "
        say(f"{verdict}{counted(found.objects, 'object')} checked{stores}")
        if found.unknown:
            what = "deleted" if delete_unknown else "kept; --delete-unknown deletes them"
            say(f"{counted(len(found.unknown), 'object')} that the database does not list: {what}")
    _end_of("damaged stores", found.damaged, fails=False)
    _end_of("missing or incomplete", found.missing, fails=False)
    if found.missing or found.damaged:
        raise typer.Exit(ExitCode.FAILED)


async def _back_up(settings: Settings, target: str, keep: int) -> Copied:
    from protoslice.stores.backups import back_up

    uri = _uri(target)
    if _is_within(uri, settings.storage) or _is_within(settings.storage, uri):
        raise InvalidInput("The target and the storage must not contain each other: choose another place")
    async with open_service(settings) as (storage, database), _opened_target(settings, uri) as there:
        with Progress("copying") as bar:
            return await back_up(storage, database, there, keep=keep, progress=bar.advance)


async def _restore(settings: Settings, target: str, name: str | None, *, take_over: bool) -> Copied:
    from protoslice.catalog.marker import read_marker
    from protoslice.database import connect, file_of
    from protoslice.storage import open_storage
    from protoslice.stores.backups import restore

    uri = _uri(target)
    file_of(settings.database, settings.storage)
    async with (
        _existing_target(settings, uri) as source,
        open_storage(settings.storage, settings.plain_storage_options()) as storage,
    ):
        await read_marker(storage)  # raises an error for a storage of another layout, before a catalogue is created
        database = await asyncio.to_thread(connect, settings.database, settings.storage)
        try:
            in_place = parse_location(uri) == parse_location(settings.storage)
            with Progress("copying") as bar:
                return await restore(
                    source, storage, database,
                    name=name, in_place=in_place, take_over=take_over, progress=bar.advance,
                )  # fmt: skip
        finally:
            await database.close()


async def _snapshots(settings: Settings, target: str) -> list[str]:
    from protoslice.stores.backups import snapshots

    async with _existing_target(settings, _uri(target)) as source:
        return await snapshots(source)


async def _check(settings: Settings, *, read: bool, delete_unknown: bool) -> Checked:
    from protoslice.concurrency.executor import Worker
    from protoslice.stores.backups import check

    worker = Worker(settings.worker_threads)
    try:
        async with open_service(settings) as (storage, database):
            return await check(storage, database, worker, read=read, delete_unknown=delete_unknown)
    finally:
        await worker.close()


def _uri(target: str) -> str:
    """Return the URI of a target, which may be a URI or a path."""
    return service_settings(storage=target).storage


def _is_within(uri: str, other: str) -> bool:
    inner, outer = parse_location(uri), parse_location(other)
    same = (inner.scheme, inner.authority) == (outer.scheme, outer.authority)
    return same and inner.segments[: len(outer.segments)] == outer.segments


def _existing_target(settings: Settings, uri: str) -> Storage:
    from protoslice.catalog.marker import is_missing
    from protoslice.stores.backups import NO_SNAPSHOTS

    if is_missing(uri):
        raise NotFound(NO_SNAPSHOTS)
    return _opened_target(settings, uri)


def _opened_target(settings: Settings, uri: str) -> Storage:
    """Open a backup target.

    Without backup options, the storage's options are used if the target has the same URI scheme as the storage.
    """
    from protoslice.storage import open_storage

    options = settings.plain_backup_options()
    if not options and uri.partition("://")[0] == settings.storage.partition("://")[0]:
        options = settings.plain_storage_options()
    return open_storage(uri, options)


def _copied(done: Copied) -> str:
    return f"{counted(done.objects, 'object')} copied ({format_size(done.bytes)}), {done.kept} already there"


def _end_of(what: str, found: Sequence[str], *, fails: bool = True) -> None:
    """Print the problems in `found` on standard error. If there are any and `fails` is set, end with an exit code."""
    if not found:
        return
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    note(f"{what}: {', '.join(found[:_SHOWN])}{more}")
    if fails:
        raise typer.Exit(ExitCode.FAILED)
