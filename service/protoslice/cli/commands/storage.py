"""The command `gc`, and the commands of the group `storage`, which check and clean up a storage."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from protoslice.cli.errors import ExitCode
from protoslice.cli.options import Json, StorageUri, open_service, service_settings
from protoslice.cli.tables import counted, print_items, print_json, print_pairs, print_table, say
from protoslice.errors import StorageUnavailable
from protoslice.sizes import format_size

if TYPE_CHECKING:
    from protoslice.server.settings import Settings
    from protoslice.storage import Abilities
    from protoslice.storage.registry import Scheme
    from protoslice.stores import GarbageReport
    from protoslice.stores.collection import Usage
    from protoslice.testing.check import Outcome, Report

_PAGE = 100
"""Number of spaces that one database statement reads."""

Grace = Annotated[
    float,
    typer.Option(
        min=0,
        max=10**9,
        metavar="SECONDS",
        help="Keep stores that were removed within this time, so that they can be restored.",
    ),
]
Unfinished = Annotated[
    float,
    typer.Option(
        min=0,
        max=10**9,
        metavar="SECONDS",
        help="Keep data that uploads wrote within this time; uploads that take longer fail. "
        "While services run, use at least 3600.",
    ),
]
StorageArgument = Annotated[
    str | None,
    typer.Argument(metavar="URI", help="The storage, such as s3://bucket.", show_default="PROTOSLICE_STORAGE"),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be removed, without removing it.")]


def gc(
    storage: StorageUri = None,
    grace_seconds: Grace = 86400,
    unfinished_seconds: Unfinished = 86400,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Delete interrupted uploads and removed stores now.

    Services also do this every minute, but keep removed stores, and data written by uploads in progress, for a day. The
    command can run while services use the storage, but uploads that take longer than --unfinished-seconds fail. Like
    `serve`, `gc` reads PROTOSLICE_STORAGE, PROTOSLICE_STORAGE_OPTIONS and PROTOSLICE_DATABASE.

    Example: protoslice gc --storage file:///var/lib/protoslice --dry-run
    """
    settings = service_settings(storage=storage)
    report = asyncio.run(_collect(settings, grace_seconds, unfinished_seconds, dry_run))
    if as_json:
        print_json(asdict(report) | {"dry_run": dry_run})
        return
    objects = f"{counted(report.objects, 'object')} ({format_size(report.bytes)})"
    stores = counted(report.stores, "deleted store")
    if dry_run:
        say(f"would be removed: {objects}, {stores}")
        return
    say(f"removed: {objects}, {stores}, {counted(report.leftovers, 'leftover')} of interrupted uploads")
    minutes = round(settings.deletion_delay_seconds / 60)
    say(f"bytes of {counted(report.deleted, 'object')} deleted; those of others follow after {minutes} minutes")


async def _collect(settings: Settings, grace_seconds: float, unfinished_seconds: float, dry_run: bool) -> GarbageReport:
    from protoslice.catalog.new_objects import USABLE_SECONDS
    from protoslice.database.processes import refuse_running, running
    from protoslice.stores.collection import collect_garbage, doubt_clock

    async with open_service(settings) as (storage, database):
        if not dry_run and unfinished_seconds < USABLE_SECONDS:
            # A service may reserve an object up to an hour before an upload uses it. If the object were deleted
            # meanwhile, the upload would store nothing.
            others = await database.read(lambda tx: running(tx, database.process), background=True)
            refuse_running(others, f"use --unfinished-seconds below {USABLE_SECONDS:.0f}")
        if not dry_run and (wait := (await doubt_clock(database))[0]):
            raise StorageUnavailable(
                "The clock of the database was set ahead since the last collection on this machine: set it right, or "
                f"try again in {wait:.0f} s"
            )
        return await collect_garbage(
            storage,
            database,
            grace_seconds=grace_seconds,
            unfinished_seconds=unfinished_seconds,
            delay_seconds=settings.deletion_delay_seconds,
            dry_run=dry_run,
        )


def check(
    uri: StorageArgument = None,
    as_json: Json = False,
) -> None:
    """Check that a storage behaves as the service needs.

    The check uses a temporary folder of the storage. PROTOSLICE_STORAGE_OPTIONS has the options of the storage backend
    as a JSON object.

    Example: protoslice storage check file:///var/lib/protoslice
    """
    from protoslice.testing.check import check as check_storage

    settings = service_settings(storage=uri)
    show = None if as_json else _show_outcome
    report = asyncio.run(check_storage(settings.storage, settings.plain_storage_options(), show=show))
    if as_json:
        print_json(_as_json(report))
    else:
        _show(str(settings.shown()["storage"]), report)
    if not report.kept:
        raise typer.Exit(ExitCode.FAILED)


def schemes(as_json: Json = False) -> None:
    """List the supported URI schemes, with the package of each backend.

    Plug-ins can add schemes. A plug-in is an installed package, or a module listed in PROTOSLICE_PLUGINS.

    Example: protoslice storage schemes
    """
    from protoslice.storage.registry import described

    columns: dict[str, Callable[[Scheme], object]] = {
        "scheme": lambda each: each.scheme,
        "package": lambda each: each.package,
        "abilities": lambda each: each.problem or _able(each.abilities),
    }
    print_items(described(), columns, as_json=as_json)


def _able(abilities: Abilities | None) -> str:
    if abilities is None:
        return "unknown until the storage is opened"
    return ", ".join(name.replace("_", " ") for name, can in asdict(abilities).items() if can) or "read-only"


def usage(
    uri: StorageArgument = None,
    as_json: Json = False,
) -> None:
    """Report the size of all files, and the number of bytes stored.

    Stores share data, so the storage may need far fewer bytes than the files have. The /metrics of a service also
    report the size of all files. `gc --dry-run` reports how many bytes can be freed.

    Example: protoslice storage usage file:///var/lib/protoslice
    """
    settings = service_settings(storage=uri)
    found = asyncio.run(_usage(settings))
    if as_json:
        print_json(found)
        return
    rows = [
        [str(each.stores), *map(format_size, (each.logical_bytes, each.stored_bytes)), space]
        for space, each in found.items()
    ]
    print_table(["stores", "logical", "stored", "space"], rows, right=(0, 1, 2))


async def _usage(settings: Settings) -> dict[str, Usage]:
    from protoslice.catalog.spaces import SpaceTable
    from protoslice.stores.collection import usage_of

    found: dict[str, Usage] = {}
    async with open_service(settings) as (_, database):
        while rows := await SpaceTable(database).page(_PAGE, max(found, default="")):
            for row in rows:
                found[row.name] = usage_of(row)
    return found


def _as_json(report: Report) -> dict[str, object]:
    return {
        "kept": report.kept,
        "unsafe": report.unsafe,
        "abilities": report.abilities,
        "promises": [{"promise": outcome.promise, "error": outcome.error} for outcome in report.outcomes],
    }


def _show_outcome(outcome: Outcome) -> None:
    say(f"kept: {outcome.promise}" if outcome.error is None else f"broken: {outcome.promise}: {outcome.error}")
    sys.stdout.flush()  # a check of a bucket takes minutes


def _show(uri: str, report: Report) -> None:
    broken = sum(outcome.error is not None for outcome in report.outcomes)
    print_pairs(
        [
            ("storage", uri),
            ("abilities", _able(report.abilities)),
            ("writing", "safe" if report.unsafe is None else report.unsafe),
            ("promises", f"{len(report.outcomes) - broken} kept, {broken} broken"),
        ]
    )
