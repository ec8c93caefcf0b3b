"""The verbs `database upgrade` and `database copy`."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated

import typer

from protoslice.cli.options import Json, StorageUri
from protoslice.cli.service import service_settings
from protoslice.cli.terminal.show import print_json, say
from protoslice.errors import NotFound, Unsupported

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


def copy(
    target: Annotated[Path, typer.Argument(metavar="FILE", help="The copy; a file of this name is replaced.")],
    storage: StorageUri = None,
    database: DatabaseUrl = None,
) -> None:
    """Copy a SQLite catalogue to a file, as a consistent snapshot; the service may keep running.

    Example: protoslice database copy /backup/catalog.sqlite --storage /var/lib/protoslice
    """
    settings = service_settings(storage=storage, database=database)
    asyncio.run(_copy(settings.database, settings.storage, target))


async def _copy(url: str | None, storage: str, target: Path) -> None:
    from protoslice.catalog import connect, schema
    from protoslice.catalog.sqlite import SqliteDatabase

    opened = await asyncio.to_thread(connect, url, storage)
    try:
        if not isinstance(opened, SqliteDatabase):
            raise Unsupported("This command copies only SQLite databases: use pg_dump for PostgreSQL")
        if not await schema.version_of(opened):
            raise NotFound(f"No Protoslice database at {opened.path}: check --storage and --database")
        part = target.with_name(f"{target.name}.part")
        part.unlink(missing_ok=True)
        await opened.copy(part)
        os.replace(part, target)
    finally:
        await opened.close()


async def _upgrade(url: str | None, storage: str) -> tuple[int, int]:
    from protoslice.catalog import connect, upgrade

    opened = await asyncio.to_thread(connect, url, storage)
    try:
        return await upgrade(opened)
    finally:
        await opened.close()
