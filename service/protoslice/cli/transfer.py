"""The verbs that move models to a service and back, and look after what is there: `push`, `pull`, `ls`, `tag`, `rm`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from protoslice.cli.addresses import address_of, service_url
from protoslice.cli.options import Json, MaxChunk, MinChunk, TypeName
from protoslice.cli.progress import Progress
from protoslice.cli.remote import client_of, store_facts
from protoslice.cli.show import note, print_json, print_table, say
from protoslice.errors import InvalidInput
from protoslice.sizes import format_size, parse_size

__all__ = ["ls", "pull", "push", "rm", "tag"]

Service = Annotated[
    str | None, typer.Option("--url", help="The service, as http://HOST:PORT.", show_default="PROTOSLICE_URL")
]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="Point this tag at the store; may be repeated.")]
Store = Annotated[str, typer.Argument(metavar="STORE", help="http://HOST/v1/stores/TAG, or @TAG with PROTOSLICE_URL.")]


def push(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A file, or the directory of a model.")],
    url: Service = None,
    tags: Tags = None,
    root: Annotated[str | None, typer.Option(help="Which file is the root, where that is not plain.")] = None,
    min_chunk: MinChunk = None,
    max_chunk: MaxChunk = None,
    type_name: TypeName = None,
    as_json: Json = False,
) -> None:
    """Make a store of a model on a service. What the service has of it already is not sent.

    What broke off goes on where it was when it is pushed again.

    Example: protoslice push model.onnx --url http://127.0.0.1:8000 --tag resnet50:3
    """
    sizes = {"min_chunk": min_chunk, "max_chunk": max_chunk}
    given = {"type": type_name, "root": root, **{name: size and parse_size(size) for name, size in sizes.items()}}
    options = {name: value for name, value in given.items() if value is not None}
    with client_of(service_url(url)) as client, Progress("pushing") as progress:
        pushed = client.push(path, tags=tuple(tags or ()), progress=progress.up_to, **options)
        at = f"{client.url}/v1/stores/{pushed.store.id}"
    facts = {"created": pushed.created, "sent": pushed.sent, "copied": pushed.copied}
    if as_json:
        print_json({"store": store_facts(pushed.store), **facts})
        return
    say(at)
    copied = f", {format_size(pushed.copied)} taken from what was there" if pushed.copied else ""
    note(f"{format_size(pushed.sent)} sent{copied}" if pushed.created else "the service had this very store already")


def pull(
    store: Store,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A file, or the folder for a model of several.")] = Path(
        "."
    ),
    view: Annotated[
        str | None, typer.Option(help="Not its files but this: cpb, safetensors, chunks/3, files/vocab.txt …")
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Keep pieces here, so that another version is fetched in part.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Fetch the files of a store, each compared with its digest. What broke off goes on where it was.

    Example: protoslice pull http://127.0.0.1:8000/v1/stores/resnet50:3 resnet50
    """
    address = address_of(store)
    with client_of(address.service, cache) as client, Progress("pulling") as progress:
        got = client.download(address.ref, out, view=view, progress=progress.up_to)
    if as_json:
        print_json([{"path": str(each.path), "size": each.size, "fetched": each.fetched} for each in got])
        return
    for each in got:
        say(f"{each.path}: {format_size(each.size)}" + ("" if each.fetched else ", there already"))


def ls(
    url: Service = None,
    tag: Annotated[str | None, typer.Option(help="Only stores with a tag that begins so.")] = None,
    type_name: TypeName = None,
    as_json: Json = False,
) -> None:
    """The stores of a service, newest first.

    Example: protoslice ls --url http://127.0.0.1:8000 --tag resnet
    """
    with client_of(service_url(url)) as client:
        stores = list(client.stores(tag=tag, type=type_name))
    if as_json:
        print_json([store_facts(store) for store in stores])
        return
    print_table(["store", "size", "created", "type", "tags"], [_row(store) for store in stores], right=(1,))


def _row(store: Any) -> list[str]:
    created = store.created.strftime("%Y-%m-%d %H:%M")
    return [store.id[:12], format_size(store.size), created, store.type, " ".join(store.tags)]


def tag(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The tag, such as resnet50:3.")],
    store: Annotated[str | None, typer.Argument(metavar="STORE", help="What it is to point at.")] = None,
    new: Annotated[bool, typer.Option("--new", help="Only if there is no such tag yet.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Remove it; what it points at stays.")] = False,
    url: Service = None,
    as_json: Json = False,
) -> None:
    """Point a tag at a store, or remove it.

    Example: protoslice tag resnet50:latest @resnet50:3
    """
    if remove == (store is not None):
        raise InvalidInput("a tag is pointed at a STORE, or removed with --remove")
    if store is None:
        with client_of(service_url(url)) as client:
            client.untag(name)
        return
    address = address_of(store)
    with client_of(address.service) as client:
        made = client.tag(name, address.ref, create=new)
    if as_json:
        print_json({"name": made.name, "store": made.store})
    else:
        say(f"{made.name} → {made.store}")


def rm(store: Store) -> None:
    """Remove a store and its tags. Its objects are collected later (`gc`).

    Example: protoslice rm http://127.0.0.1:8000/v1/stores/resnet50:3
    """
    address = address_of(store)
    with client_of(address.service) as client:
        client.delete(address.ref)
