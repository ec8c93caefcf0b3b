"""The verbs that look after storage: `gc`, `storage check`, `storage upgrade`, `storage usage`.

Each imports the service when it runs.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from protoslice.cli.options import Json, StorageUri
from protoslice.cli.service import service_settings
from protoslice.cli.terminal.show import print_json, print_pairs, print_table, say
from protoslice.errors import IntegrityError
from protoslice.sizes import format_size

if TYPE_CHECKING:
    from protoslice.server.settings import Settings
    from protoslice.storage import Abilities
    from protoslice.stores import GarbageReport
    from protoslice.stores.catalog.upgrade import UpgradeReport
    from protoslice.stores.usage import Usage
    from protoslice.testing.check import Report

NOT_KEPT = 3

Grace = Annotated[
    float,
    typer.Option(
        min=0, metavar="SECONDS", help="Leave what is younger: longer than any upload of one file, or any read, takes."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Remove nothing, and show what would be removed.")]


def gc(
    storage: StorageUri = None,
    grace_seconds: Grace = 86400,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Remove what no store needs any more.

    Those are broken uploads, and stores removed a day ago. It may run beside any number of services.
    PROTOSLICE_STORAGE and PROTOSLICE_STORAGE_OPTIONS count as for `serve`.

    Example: protoslice gc --storage file:///var/lib/protoslice --dry-run
    """
    settings = service_settings(storage=storage)
    report = asyncio.run(_collect(settings, grace_seconds, dry_run))
    if as_json:
        print_json(asdict(report) | {"dry_run": dry_run})
    else:
        say(_told(report, "would be removed" if dry_run else "removed"))
        if report.unreadable is not None:
            raise IntegrityError(f"{report.unreadable} is damaged: the objects that it may need were left alone")
    if report.unreadable is not None:
        raise typer.Exit(NOT_KEPT)


async def _collect(settings: Settings, grace_seconds: float, dry_run: bool) -> GarbageReport:
    from protoslice.catalog import open_database
    from protoslice.storage import open_storage
    from protoslice.stores import Stores
    from protoslice.stores.layout.version import check_layout
    from protoslice.stores.spaces import Spaces

    async with open_storage(settings.storage, settings.plain_storage_options()) as storage:
        await check_layout(storage, mark=False)  # before a catalogue is made in what is no storage
        async with open_database(settings.database, settings.storage, shared=storage.abilities.shared) as database:
            stores = await Stores.open(storage, database, create=False)
            try:
                return await Spaces(storage, stores).collect_garbage(grace_seconds=grace_seconds, dry_run=dry_run)
            finally:
                await stores.close()


def _told(report: GarbageReport, done: str) -> str:
    objects = f"{_counted(report.objects, 'object')} ({format_size(report.bytes)})"
    stores, leftovers = _counted(report.stores, "deleted store"), _counted(report.leftovers, "leftover")
    return f"{done}: {objects}, {stores}, {leftovers} of broken writers"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def check(
    uri: Annotated[str, typer.Argument(metavar="URI", help="The storage, as in s3://bucket.")], as_json: Json = False
) -> None:
    """Find out whether a storage keeps what the service relies on, in a folder of its own there.

    Options of the backend are taken from PROTOSLICE_STORAGE_OPTIONS, a JSON object.

    Example: protoslice storage check file:///var/lib/protoslice
    """
    from protoslice.testing.check import check as check_storage

    settings = service_settings(storage=uri)
    report = asyncio.run(check_storage(settings.storage, settings.plain_storage_options()))
    if as_json:
        print_json(_as_json(report))
    else:
        _show(uri, report)
    if not report.kept:
        raise typer.Exit(NOT_KEPT)


def schemes(as_json: Json = False) -> None:
    """List the schemes of URIs, with the package of each backend and what it can do.

    Plug-ins are installed packages, or modules that PROTOSLICE_PLUGINS names.

    Example: protoslice storage schemes
    """
    from protoslice.storage.registry import described

    found = described()
    if as_json:
        print_json([asdict(each) for each in found])
        return
    rows = [[each.scheme, each.package, each.problem or _able(each.abilities)] for each in found]
    print_table(["scheme", "package", "abilities"], rows)


def _able(abilities: Abilities | None) -> str:
    if abilities is None:
        return "not told before a storage is opened"
    return ", ".join(name.replace("_", " ") for name, can in asdict(abilities).items() if can) or "reading alone"


def upgrade(
    uri: Annotated[str, typer.Argument(metavar="URI", help="The storage, as in file:///var/lib/protoslice.")],
    as_json: Json = False,
) -> None:
    """Bring a storage of an older version to the layout of this one, and make its indexes anew.

    Stop all services that use the storage first. No object is moved or copied; an upgrade that broke off is taken up
    where it is run again. After a backup was restored, the same verb makes the indexes.

    Example: protoslice storage upgrade file:///var/lib/protoslice
    """
    settings = service_settings(storage=uri)
    report = asyncio.run(_upgrade(settings.storage, settings.plain_storage_options()))
    if as_json:
        print_json(asdict(report))
    else:
        say(f"upgraded: {_counted(report.stores, 'store')}, {_counted(report.tags, 'tag')}")
    if report.unreadable:
        raise IntegrityError(f"{', '.join(report.unreadable)}: damaged, and left as it is: send that store again")


async def _upgrade(uri: str, options: dict[str, str]) -> UpgradeReport:
    from protoslice.storage import PrefixStorage, open_storage
    from protoslice.stores.catalog.upgrade import upgrade as upgrade_storage
    from protoslice.stores.spaces import space_folders

    async with open_storage(uri, options) as storage:
        report = await upgrade_storage(storage)
        async for folder in space_folders(storage):
            report.add(await upgrade_storage(PrefixStorage(storage, folder)), folder)
        return report


def usage(
    uri: Annotated[str, typer.Argument(metavar="URI", help="The storage, as in s3://bucket.")], as_json: Json = False
) -> None:
    """Count the bytes of all files of stores, those stored for them, and those that `gc` would free.

    Stores share files and parts of files, so the second may be far less. All objects are listed and all manifests read.
    The first is kept for /metrics of services.

    Example: protoslice storage usage file:///var/lib/protoslice
    """
    settings = service_settings(storage=uri)
    found = asyncio.run(_usage(settings))
    if as_json:
        print_json({space: asdict(each) for space, each in found.items()})
        return
    rows = [
        [str(each.stores), *map(format_size, (each.logical_bytes, each.stored_bytes, each.reclaimable_bytes)), space]
        for space, each in found.items()
    ]
    print_table(["stores", "logical", "stored", "reclaimable", "space"], rows, right=(0, 1, 2, 3))
    damaged = sum(each.unreadable for each in found.values())
    if damaged:
        raise IntegrityError(f"{_counted(damaged, 'manifest')} cannot be read, and their files are not counted")


async def _usage(settings: Settings) -> dict[str, Usage]:
    from protoslice.catalog import open_database
    from protoslice.storage import PrefixStorage, open_storage
    from protoslice.stores.collection.tally import keep_logical_bytes
    from protoslice.stores.layout.version import check_layout
    from protoslice.stores.names import DEFAULT_SPACE
    from protoslice.stores.spaces import space_folders
    from protoslice.stores.usage import usage_of

    async with open_storage(settings.storage, settings.plain_storage_options()) as storage:
        await check_layout(storage, mark=False)  # before a catalogue is made in what is no storage
        async with open_database(settings.database, settings.storage, shared=storage.abilities.shared) as database:
            found = {DEFAULT_SPACE: await usage_of(storage, database, DEFAULT_SPACE)}
            async for folder in space_folders(storage):
                space = folder.segments[-1]
                found[space] = await usage_of(PrefixStorage(storage, folder), database, space)
        if storage.abilities.write:
            await keep_logical_bytes(storage, sum(each.logical_bytes for each in found.values()))
        return found


def _as_json(report: Report) -> dict[str, object]:
    promises = [{"promise": outcome.promise, "error": outcome.error} for outcome in report.outcomes]
    return {"kept": report.kept, "unsafe": report.unsafe, "abilities": asdict(report.abilities), "promises": promises}


def _show(uri: str, report: Report) -> None:
    broken = [outcome for outcome in report.outcomes if outcome.error is not None]
    print_pairs(
        [
            ("storage", uri),
            ("abilities", _able(report.abilities)),
            ("writing", "safe" if report.unsafe is None else report.unsafe),
            ("promises", f"{len(report.outcomes) - len(broken)} kept, {len(broken)} broken"),
        ]
    )
    for outcome in broken:
        say(f"broken: {outcome.promise}: {outcome.error}")
