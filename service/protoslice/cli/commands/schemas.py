"""The commands of the group `schema`, which manage the message types of a service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from protoslice import schema
from protoslice.cli.models.output import write_content
from protoslice.cli.models.remote import connect
from protoslice.cli.models.schema_files import descriptor_set_in
from protoslice.cli.options import Force, Json, ServiceUrl
from protoslice.cli.progress import Progress
from protoslice.cli.tables import print_items, print_json, say
from protoslice.references import service_url
from protoslice.sizes import format_size

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the schema on the service.")]


def put(
    name: Name,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A descriptor set (.binpb), or a .proto file.")],
    url: ServiceUrl = None,
    as_json: Json = False,
) -> None:
    """Upload message types to a service, for use with --type.

    Example: protoslice schema put mine mine.binpb
    """
    data = descriptor_set_in(file)
    with connect(service_url(url)) as client:
        made = client.put_schema(name, data)
    if as_json:
        print_json(made)
    else:
        say(f"{made.name}: {made.messages} message types in {format_size(made.size)}")


def ls(url: ServiceUrl = None, as_json: Json = False) -> None:
    """List the schemas of a service.

    Example: protoslice schema ls
    """
    with connect(service_url(url)) as client:
        columns: dict[str, Callable[[Any], object]] = {
            "schema": lambda schema: schema.name,
            "message types": lambda schema: schema.messages,
            "size": lambda schema: format_size(schema.size),
            "put": lambda schema: schema.updated,
        }
        print_items(client.schemas(), columns, as_json=as_json, right=(1, 2))


def show(
    name: Name,
    out: Annotated[
        str | None, typer.Option("--out", "-o", metavar="OUT", help="Write the descriptor set to this file.")
    ] = None,
    force: Force = False,
    url: ServiceUrl = None,
    as_json: Json = False,
) -> None:
    """Show the message types of a schema, or save its descriptor set.

    Example: protoslice schema show mine -o mine.binpb
    """
    with connect(service_url(url)) as client:
        data = client.schema(name)
    if out is not None:
        with Progress("writing", len(data)) as progress:
            write_content([memoryview(data)], out, progress, force=force)
        return
    names = sorted(schema.from_descriptor_set(data).names())
    if as_json:
        print_json({"name": name, "size": len(data), "types": names})
    else:
        for each in names:
            say(each)


def rm(name: Name, url: ServiceUrl = None) -> None:
    """Remove a schema. Stores that use it stay readable.

    Example: protoslice schema rm mine
    """
    with connect(service_url(url)) as client:
        client.delete_schema(name)
