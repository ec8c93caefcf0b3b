"""The commands `serve` and `config`, and the commands of the group `database`, which run and configure a service."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from protoslice.cli.errors import ExitCode
from protoslice.cli.options import DatabaseUrl, Json, StorageUri, open_service, service_settings
from protoslice.cli.tables import print_json, say
from protoslice.errors import InvalidInput

if TYPE_CHECKING:
    from protoslice.server.settings import Settings

Host = Annotated[str | None, typer.Option(metavar="ADDRESS", help="Address to listen on.", show_default="127.0.0.1")]
Port = Annotated[
    int | None, typer.Option(metavar="PORT", help="Port to listen on; 0 picks a free one.", show_default="8000")
]

Workers = Annotated[
    int | None, typer.Option(metavar="N", help="Number of processes that serve the port.", show_default="1")
]

Certificate = Annotated[Path | None, typer.Option(metavar="FILE", help="TLS certificate (PEM file).")]
CertificateKey = Annotated[Path | None, typer.Option(metavar="FILE", help="Key of the TLS certificate (PEM file).")]
Rest = Annotated[list[str] | None, typer.Argument(hidden=True)]


def serve(
    host: Host = None,
    port: Port = None,
    storage: StorageUri = None,
    workers: Workers = None,
    tls_cert: Certificate = None,
    tls_key: CertificateKey = None,
    rest: Rest = None,
) -> None:
    """Serve stores over HTTP.

    The command first prints the address of the service, and where the web page and the data are. Every setting can
    also be set by the variable PROTOSLICE_<NAME>; `protoslice config` lists all settings.

    Example: protoslice serve --port 0 --storage file:///var/lib/protoslice
    """
    if rest:
        raise InvalidInput(f"serve takes no arguments; to run another command: protoslice {' '.join(rest)}")
    settings = service_settings(
        host=host, port=port, storage=storage, workers=workers, tls_cert=tls_cert, tls_key=tls_key
    )
    from protoslice.server.transport.run import run

    try:
        run(settings)
    except KeyboardInterrupt:  # the usual end of a service, which its log reports
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def config(as_json: Json = False) -> None:
    """Show the settings of the service and its JWT issuers.

    Example: protoslice config --json
    """
    from protoslice.server.settings import Settings, environment_name

    settings = service_settings()
    shown = {environment_name(name): value for name, value in settings.shown().items()}
    rules = _issuer_rules(settings.issuers)
    if as_json:
        print_json(shown)
        return
    descriptions = {environment_name(name): field.description for name, field in Settings.model_fields.items()}
    for name, value in shown.items():
        say(f"# {descriptions.get(name) or 'File with the value of ' + name.removesuffix('_FILE')}")
        say(f"{name}={_plain(value)}")
    for line in rules:
        say(f"# {line}")


def _issuer_rules(file: Path | None) -> list[str]:
    """Return the rules in a file of issuers as lines of text; raise `InvalidInput` if the file is invalid."""
    if file is None:
        return []
    from protoslice.server.auth.oidc.issuers import read_issuers

    return [line for issuer in read_issuers(file) for line in issuer.describe()]


def _plain(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return ",".join(value)
    return json.dumps(value) if isinstance(value, dict | bool) else str(value)


def upgrade(storage: StorageUri = None, database: DatabaseUrl = None, as_json: Json = False) -> None:
    """Create the tables of the database, or upgrade them to this version.

    Stop the service first. A SQLite file is copied before it is changed. `serve` also upgrades SQLite, so only
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

    The database stores the mode of the service's first start. A service that is configured for another mode does not
    start. Stop all processes of the service before you change the mode.

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

    async with open_service(settings) as (_, database):
        if mode is not None:
            await change_mode(database, mode)
        return await kept_mode(database)
