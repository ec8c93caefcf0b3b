"""The verb `database upgrade`."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from protoslice.cli.options import Json, StorageUri
from protoslice.cli.service import service_settings
from protoslice.cli.terminal.show import print_json, say

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
    before, after = asyncio.run(_upgrade(settings.database, settings.storage))
    if as_json:
        print_json({"before": before, "after": after})
    elif before == after:
        say(f"The database has schema {after} already")
    else:
        say(f"Upgraded the database from schema {before} to {after}")


async def _upgrade(url: str | None, storage: str) -> tuple[int, int]:
    from protoslice.catalog import connect, upgrade

    opened = await asyncio.to_thread(connect, url, storage)
    try:
        return await upgrade(opened)
    finally:
        await opened.close()
