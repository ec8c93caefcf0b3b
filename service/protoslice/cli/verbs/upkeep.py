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
        min=0,
        metavar="SECONDS",
        help="Keep objects younger than this; must exceed the time that the longest upload of a file, or the "
        "longest read, takes.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be removed, without removing it.")]


def gc(
    storage: StorageUri = None,
    grace_seconds: Grace = 86400,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Delete interrupted uploads and removed stores.

    Stores are deleted a day after their removal. Safe to run while services use the storage. Reads
    PROTOSLICE_STORAGE and PROTOSLICE_STORAGE_OPTIONS like `serve`.

    Example: protoslice gc --storage file:///var/lib/protoslice --dry-run
    """
    settings = service_settings(storage=storage)
    report = asyncio.run(_collect(settings, grace_seconds, dry_run))
    if as_json:
        print_json(asdict(report) | {"dry_run": dry_run})
    else:
        say(_told(report, "would be removed" if dry_run else "removed"))
        if report.unreadable is not None:
            raise IntegrityError(f"{report.unreadable} is damaged: objects that it may need were kept")
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
    return f"{done}: {objects}, {stores}, {leftovers} of interrupted uploads"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def check(
    uri: Annotated[str, typer.Argument(metavar="URI", help="The storage, such as s3://bucket.")], as_json: Json = False
) -> None:
    """Check that a storage behaves as the service needs, in a temporary folder.

    Set options of the backend in PROTOSLICE_STORAGE_OPTIONS, a JSON object.

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
    """List the supported URI schemes, with the package of each backend.

    Plug-ins are installed packages, or modules listed in PROTOSLICE_PLUGINS.

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
        return "unknown until the storage is opened"
    return ", ".join(name.replace("_", " ") for name, can in asdict(abilities).items() if can) or "read-only"


def upgrade(
    uri: Annotated[str, typer.Argument(metavar="URI", help="The storage, such as file:///var/lib/protoslice.")],
    as_json: Json = False,
) -> None:
    """Upgrade a storage to the layout of this version, and rebuild its indexes.

    Stop all services that use the storage first. Objects are not moved or copied. To resume an interrupted upgrade,
    run it again. Also run this after restoring a backup.

    Example: protoslice storage upgrade file:///var/lib/protoslice
    """
    settings = service_settings(storage=uri)
    report = asyncio.run(_upgrade(settings.storage, settings.plain_storage_options()))
    if as_json:
        print_json(asdict(report))
    else:
        say(f"upgraded: {_counted(report.stores, 'store')}, {_counted(report.tags, 'tag')}")
    if report.unreadable:
        raise IntegrityError(
            f"{', '.join(report.unreadable)} is damaged and was left unchanged: upload that store again"
        )


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
    """Report the size of all files, the bytes stored, and the bytes `gc` would free.

    Stores share data, so the bytes stored can be far less than the files. To compute this, it reads the list of all
    objects and all manifests. The size of all files is also in the /metrics of services.

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
        raise IntegrityError(f"{_counted(damaged, 'manifest')} could not be read; their files are not counted")


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
