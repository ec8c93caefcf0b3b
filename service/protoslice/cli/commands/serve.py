"""The verbs of the service: `serve`, `config`. They import the web stack when one of them runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from protoslice.cli.errors import ExitCode
from protoslice.cli.options import Json, StorageUri
from protoslice.cli.service import service_settings
from protoslice.cli.tables import print_json, say
from protoslice.errors import InvalidInput

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

    Prints the address first, and where the web page and the data are. Every setting can also be given as
    PROTOSLICE_<NAME>; `protoslice config` shows them all.

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
    except KeyboardInterrupt:  # as people end a service; its log has told what there is to tell
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def config(as_json: Json = False) -> None:
    """Show the settings of the service and rules of issuers.

    Example: protoslice config --json
    """
    from protoslice.server.settings import Settings, environment_name

    settings = service_settings()
    shown = {environment_name(name): value for name, value in settings.shown().items()}
    told = _told_issuers(settings.issuers)
    if as_json:
        print_json(shown)
        return
    descriptions = {environment_name(name): field.description for name, field in Settings.model_fields.items()}
    for name, value in shown.items():
        say(f"# {descriptions.get(name) or 'File with the value of ' + name.removesuffix('_FILE')}")
        say(f"{name}={_plain(value)}")
    for line in told:
        say(f"# {line}")


def _told_issuers(file: Path | None) -> list[str]:
    """Rules of a file of issuers, one a line; `InvalidInput` for mistakes in it."""
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
