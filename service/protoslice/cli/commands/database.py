"""The verbs of the database: `database upgrade`, `database access`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from protoslice.cli.options import Json, StorageUri
from protoslice.cli.service import opened, service_settings
from protoslice.cli.tables import print_json, say

if TYPE_CHECKING:
    from protoslice.server.settings import Settings


DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--database", metavar="URL", help="URL of the service's database.", show_default="PROTOSLICE_DATABASE"
    ),
]


def upgrade(storage: StorageUri = None, database: DatabaseUrl = None, as_json: Json = False) -> None:
    """Create the tables of the database, or bring them to this version.

    Stop the service first. A SQLite file is copied before it is changed. `serve` does the same for SQLite, so only
    PostgreSQL needs this command.

    Example: protoslice database upgrade --database postgresql://protoslice@db.example/protoslice
    """
    settings = service_settings(storage=storage, database=database)
    from protoslice.catalog.marker import upgrade_catalogue

    options = settings.plain_storage_options()
    before, after = asyncio.run(upgrade_catalogue(settings.storage, options, settings.database))
    if as_json:
        print_json({"before": before, "after": after})
    elif before == after:
        say(f"The database has schema {after} already")
    else:
        say(f"Upgraded the database from schema {before} to {after}")


def access(
    mode: Annotated[
        str | None, typer.Argument(metavar="MODE", help="tokens or open; without it, the mode is shown.")
    ] = None,
    storage: StorageUri = None,
    database: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Show or change whether a service requires tokens or is open to everyone.

    The database keeps the mode of the first start, and a service that is set to another one does not start. Stop all
    processes of the service before a change.

    Example: protoslice database access tokens --storage /var/lib/protoslice
    """
    settings = service_settings(storage=storage, database=database)
    found = asyncio.run(_access(settings, mode))
    if as_json:
        print_json({"access": found})
    else:
        say(f"access: {found or 'not decided before the first start'}")


async def _access(settings: Settings, mode: str | None) -> str | None:
    from protoslice.server.auth.mode import change_mode, kept_mode

    async with opened(settings) as (_, database):
        if mode is not None:
            await change_mode(database, mode)
        return await kept_mode(database)
