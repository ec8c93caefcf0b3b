"""The verbs for message types on a service: `schema put`, `schema ls`, `schema show`, `schema rm`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from protoslice import _core, schema
from protoslice.cli.models.output import write_content
from protoslice.cli.models.remote import client_of
from protoslice.cli.models.schema_files import descriptor_set_in
from protoslice.cli.options import Force, Json, ServiceUrl
from protoslice.cli.progress import Progress
from protoslice.cli.tables import print_json, print_table, say, utc
from protoslice.references import service_url
from protoslice.sizes import format_size
from protoslice.sources.ropes import Rope

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
    with client_of(service_url(url)) as client:
        kept = client.put_schema(name, data)
    if as_json:
        print_json(_facts(kept))
    else:
        say(f"{kept.name}: {kept.messages} message types in {format_size(kept.size)}")


def ls(url: ServiceUrl = None, as_json: Json = False) -> None:
    """List the schemas of a service.

    Example: protoslice schema ls
    """
    with client_of(service_url(url)) as client:
        kept = list(client.schemas())
    if as_json:
        print_json([_facts(each) for each in kept])
        return
    rows = [[each.name, str(each.messages), format_size(each.size), f"{each.updated:%Y-%m-%d %H:%M}"] for each in kept]
    print_table(["schema", "message types", "size", "put"], rows, right=(1, 2))


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
    with client_of(service_url(url)) as client:
        data = client.schema(name)
    if out is not None:
        with Progress("writing", len(data)) as progress:
            write_content(Rope(_core.Rope([data]), []), out, progress, force=force)
        return
    names = sorted(schema.from_descriptor_set(data).names())
    if as_json:
        print_json({"name": name, "size": len(data), "types": names})
    else:
        for each in names:
            say(each)


def rm(name: Name, url: ServiceUrl = None) -> None:
    """Remove a schema; stores that use it stay readable.

    Example: protoslice schema rm mine
    """
    with client_of(service_url(url)) as client:
        client.delete_schema(name)


def _facts(kept: Any) -> dict[str, object]:
    """A schema, as the service's own JSON has it."""
    return asdict(kept) | {"updated": utc(kept.updated)}
