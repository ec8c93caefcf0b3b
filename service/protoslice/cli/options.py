"""The options that several commands share, and functions that open a service for the commands of operators.

These functions import the server when they are called, so that other commands do not need the server.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from protoslice.database import Database
    from protoslice.server.settings import Settings
    from protoslice.storage import Storage

FileName = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A model: a path, a URI such as s3://BUCKET/KEY, - for standard input, or a store "
        "(http://HOST/v1/stores/TAG or @TAG).",
    ),
]
LocalName = Annotated[
    str, typer.Argument(metavar="FILE", help="A file or a directory: a path, a URI, or - for standard input.")
]
TypeName = Annotated[
    str | None,
    typer.Option("--type", metavar="TYPE", help="Message type, such as onnx.ModelProto, if it isn't detected."),
]
SchemaFile = Annotated[
    str | None,
    typer.Option(
        "--schema",
        metavar="FILE",
        help="Your own message types: a descriptor set (.binpb) or a .proto file.",
    ),
]
MetaGraphTags = Annotated[
    str | None,
    typer.Option("--tags", metavar="TAGS", help="Only the meta graph with exactly these tags, such as serve,gpu."),
]
ServiceUrl = Annotated[
    str | None,
    typer.Option(
        "--url", metavar="URL", help="URL of the service, such as http://HOST:PORT.", show_default="PROTOSLICE_URL"
    ),
]
SpaceUrl = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="URL of the service, or of a space: http://HOST:PORT/spaces/NAME.",
        show_default="PROTOSLICE_URL",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]
Out = Annotated[
    str | None,
    typer.Option(
        "--out", "-o", metavar="OUT", help="Output file, or - for standard output.", show_default="prints text"
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
MinChunk = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Fields of at least this size become chunks.", show_default="1MiB")
]
MaxChunk = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="Repeated fields are cut into chunks of at most this size.", show_default="1GiB"),
]
RulesFile = Annotated[
    str | None,
    typer.Option(
        "--rules",
        metavar="FILE",
        help="File of split rules, one per line, such as 'node: every 1000'; they take precedence over sizes.",
    ),
]
SplitterName = Annotated[
    str | None,
    typer.Option(
        "--splitter", metavar="NAME", help="Installed splitter to use; --rules take precedence over its rules."
    ),
]
StorageUri = Annotated[
    str | None,
    typer.Option(metavar="URI", help="Storage: a URI or a path.", show_default="a folder under your data folder"),
]
DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--database", metavar="URL", help="URL of the service's database.", show_default="PROTOSLICE_DATABASE"
    ),
]
_FORMATS: Final = ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S%z"]
Since = Annotated[
    datetime | None, typer.Option(formats=_FORMATS, metavar="TIME", help="Only entries at or after this time.")
]
Until = Annotated[
    datetime | None, typer.Option(formats=_FORMATS, metavar="TIME", help="Only entries before this time.")
]
Limit = Annotated[int, typer.Option(metavar="N", help="Maximum number of lines; 0 for all.", min=0)]


def service_settings(**given: Any) -> Settings:
    """Return the service's settings from the environment. Values in `given` that are not None take precedence."""
    from protoslice.server.settings import read_settings

    return read_settings({name: value for name, value in given.items() if value is not None})


@asynccontextmanager
async def open_service(settings: Settings, *, audited: bool = False) -> AsyncIterator[tuple[Storage, Database]]:
    """Open the storage and the database of a service. Both must exist and belong together.

    With `audited`, the audit log records the user of this operating system as the author of changes.
    """
    from protoslice.catalog.marker import open_both
    from protoslice.database.transactions import ACTOR, LOCAL, Actor

    async with open_both(settings.storage, settings.plain_storage_options(), settings.database) as opened:
        if audited:
            ACTOR.set(Actor(LOCAL, _system_user()))
        yield opened


def _system_user() -> str:
    """Return the name of the current user, or the user id if the user has no name, as in many containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid()) if hasattr(os, "getuid") else "unknown"
