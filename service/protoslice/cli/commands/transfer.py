"""The verbs that move models to a service and back: `push`, `pull`, `ls`, `tag`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from warnings import catch_warnings, simplefilter

import typer

from protoslice.cli.hints import command_line
from protoslice.cli.models.files import errors_about, named_files
from protoslice.cli.models.output import STDIO
from protoslice.cli.models.parts import pull_parts
from protoslice.cli.models.pull_targets import target_of
from protoslice.cli.models.remote import client_of, first_of, names_of, store_facts
from protoslice.cli.models.reports import report_lines
from protoslice.cli.models.rules import rules_in
from protoslice.cli.models.types import RootType
from protoslice.cli.options import Json, Limit, MaxChunk, MinChunk, RulesFile, ServiceUrl, Since, TypeName, Until
from protoslice.cli.progress import Progress
from protoslice.cli.tables import note, print_json, print_table, say, utc
from protoslice.defaults import CONNECTIONS
from protoslice.errors import InvalidInput, NotFound, UnsoundModel, Unsupported
from protoslice.references import Address, is_address, ref_on, service_url, store_of
from protoslice.sizes import format_size, parse_size
from protoslice.uris import is_uri, local_path

if TYPE_CHECKING:
    from protoslice.client.searches import StoreSearch

Tags = Annotated[list[str] | None, typer.Option("--tag", metavar="TAG", help="Tag to point at the store; repeatable.")]
Root = Annotated[str | None, typer.Option(metavar="FILE", help="Root file of the model, if it isn't detected.")]
Bases = Annotated[
    list[str] | None,
    typer.Option(
        metavar="STORE",
        help="Store of a similar model: only data that it lacks is sent; repeatable.",
        show_default="the store that TAG points at",
    ),
]
Plan = Annotated[
    str | None,
    typer.Option(
        metavar="PLAN",
        help="`policy` splits a chunked file again, by --min-chunk and --max-chunk.",
        show_default="keep the chunks of a chunked file",
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="Reject a model with missing files or wrong checksums.")]
Store = Annotated[str, typer.Argument(metavar="STORE", help="http://HOST/v1/stores/TAG, or @TAG with PROTOSLICE_URL.")]


def push(  # noqa: PLR0913 - each is an option
    name: Annotated[str, typer.Argument(metavar="PATH", help="A file or the directory of a model: a path or a URI.")],
    url: ServiceUrl = None,
    tags: Tags = None,
    root: Root = None,
    base: Bases = None,
    min_chunk: MinChunk = None,
    max_chunk: MaxChunk = None,
    plan: Plan = None,
    rules: RulesFile = None,
    type_name: TypeName = None,
    strict: Strict = False,
    as_json: Json = False,
) -> None:
    """Upload a model to a service, as a new store.

    Data that the service already has is not sent. To resume an interrupted push, run it again.

    Example: protoslice push model.onnx --url http://127.0.0.1:8000 --tag resnet50:3
    """
    sizes = {"min_chunk": min_chunk, "max_chunk": max_chunk}
    service = service_url(url)
    bases = [ref_on(service, each) for each in base] if base else None
    given = {
        "type": type_name,
        "root": root,
        "base": bases,
        "strict": strict,
        "plan": plan,
        "rules": rules_in(rules) if rules is not None else None,
        **{name: size and parse_size(size) for name, size in sizes.items()},
    }
    options = {name: value for name, value in given.items() if value is not None}
    advice = _advice(name, url, tags)
    with (
        _there(name) as (what, alone),
        _advised(advice if alone else None),
        client_of(service) as client,
        errors_about(name),
        Progress("pushing") as progress,
    ):
        pushed = client.push(what, tags=tuple(tags or ()), progress=progress.up_to, **options)
    if as_json:
        facts = {"created": pushed.created, "sent": pushed.sent, "copied": pushed.copied}
        print_json({"store": store_facts(pushed.store), **facts, "report": pushed.report and asdict(pushed.report)})
        return
    say(Address(client.url, pushed.store.id).page)
    for line in report_lines(pushed, advice if alone else None):
        note(line)


@contextmanager
def _advised(advice: str | None) -> Iterator[None]:
    """Errors inside say how to send the files that a model lacks."""
    try:
        yield
    except UnsoundModel as error:
        if advice is not None:
            error.add_note(advice)
        raise


def _advice(name: str, url: str | None, tags: list[str] | None) -> str:
    """Say how to send the other files in the folder of `name`."""
    folder = os.path.dirname(name) or "."
    return f"To send the files next to it too, run: {command_line('push', folder, url=url, tag=tags)}"


@contextmanager
def _there(name: str) -> Iterator[tuple[Any, bool]]:
    """The file or directory to push, and True for a file alone.

    `InvalidInput`, `Unsupported`, `NotFound` for anything else.
    """
    if is_address(name):
        raise InvalidInput(f"{name} is already a store: push takes a file or a directory")
    if name == STDIO:
        raise Unsupported("Cannot resume an upload from standard input: push a file")
    path = local_path(name) if is_uri(name) else name
    if path is None:
        with named_files(name, RootType()) as place:
            files = place.files
            yield files if place.named is None else {place.named: files[place.named]}, place.named is not None
        return
    if not os.path.exists(path):
        raise NotFound(f"{name} {'is a link to nothing' if os.path.islink(path) else 'does not exist'}")
    yield Path(path), os.path.isfile(path)


def pull(  # noqa: PLR0913 - each is an option
    store: Store,
    out: Annotated[
        str | None,
        typer.Argument(
            metavar="OUT",
            help="Output file or folder; end a new folder's name with /.",
            show_default="named after the file; with several files, a new folder named after the store",
        ),
    ] = None,
    view: Annotated[
        str | None,
        typer.Option(
            metavar="VIEW",
            help="View to pull instead of the files: cpb, onnx, safetensors, chunks/3, files/vocab.txt …",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="VIEW",
            help="Write just this view into the folder OUT: chunks/3, tensors/NAME, merge?path=graph …; repeatable.",
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Without OUT or with --only: replace files that exist. Allow names that start with '.', '-' or '~'.",
        ),
    ] = False,
    align: Annotated[
        int | None,
        typer.Option(metavar="BYTES", help="Alignment of tensors in the safetensors and onnx views: a power of two."),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(metavar="TYPE", help="Convert floats of the safetensors view: F32, F16, BF16 or F64."),
    ] = None,
    shards: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Write the safetensors view into a folder, as files with elements of at most this size.",
        ),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail if the safetensors view leaves out tensors.")] = False,
    cache: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Keep downloaded data in this folder, so that pulls of later versions transfer less."
        ),
    ] = None,
    parallel: Annotated[
        int, typer.Option(metavar="N", help="Maximum number of parallel requests.", min=1, max=64)
    ] = CONNECTIONS,
    url: ServiceUrl = None,
    as_json: Json = False,
) -> None:
    """Download the files of a store, and verify their checksums.

    To resume an interrupted pull, run it again.

    Example: protoslice pull http://127.0.0.1:8000/v1/stores/resnet50:3 resnet50
    """
    address = store_of(store, url)
    if only:
        if out is None or view is not None:
            raise InvalidInput("--only needs a folder as OUT, and no --view")
        with client_of(address.service, cache, parallel) as client:
            _list_written(pull_parts(client, address.ref, only, Path(out), force=force), as_json=as_json)
        return
    with (
        catch_warnings(record=True) as warned,
        client_of(address.service, cache, parallel) as client,
        Progress("pulling") as progress,
    ):
        simplefilter("always")
        found = client.store(address.ref, names=False) if out is None or view is not None else None
        try:
            params = _layout(view, align, dtype, shards, strict=strict)
            folder = view == "onnx" or shards is not None
            target = target_of(found, address.ref, out, view, force=force, folder=folder)
            got = client.download(address.ref, target, view=view, params=params, progress=progress.up_to)
        except BaseException as error:
            if not isinstance(error, Exception):  # somebody wants us to end
                error.add_note("Partial download kept; run the same command again to resume")
            raise
    if as_json:
        print_json([_told(each) for each in got])
    for each in got if not as_json else ():
        say(f"{each.path}: {format_size(each.size)}" + ("" if each.fetched else ", unchanged"))
    for warning in warned:
        note(f"warning: {warning.message}")
    for each in got:
        if each.omitted is not None:
            advice = " (use --strict to fail instead)" if each.omitted.what == "tensor" else ""
            note(f"warning: {each.path}: {each.omitted}{advice}")


def _list_written(written: Sequence[tuple[Path, int]], *, as_json: bool) -> None:
    """Show files that were written."""
    if as_json:
        print_json([{"path": str(path), "size": size} for path, size in written])
    for path, size in written if not as_json else ():
        say(f"{path}: {format_size(size)}")


def _layout(
    view: str | None, align: int | None, dtype: str | None, shards: str | None, *, strict: bool
) -> list[tuple[str, str]]:
    """Parameters of a view; `InvalidInput` for options that it does not have."""
    given = {"align": align, "dtype": dtype, "shards": None if shards is None else parse_size(shards)}
    wanted = [(name, str(value)) for name, value in given.items() if value is not None]
    known = {"safetensors": set(given), "onnx": {"align"}}.get(view or "", set())
    for name, _ in wanted:
        if name not in known:
            raise InvalidInput(f"--{name} needs --view safetensors" + (" or onnx" if name == "align" else ""))
    return [*wanted, ("strict", "true")] if strict and view == "safetensors" else wanted


def _told(got: Any) -> dict[str, object]:
    """One download, as `pull --json` shows it."""
    told: dict[str, object] = {"path": str(got.path), "size": got.size, "fetched": got.fetched}
    return told if got.omitted is None else told | {"omitted": {"count": got.omitted.count, "names": got.omitted.names}}


def ls(  # noqa: PLR0913 - each is an option
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Only stores with this in a name or a file's path.")
    ] = None,
    url: ServiceUrl = None,
    type_name: Annotated[
        str | None,
        typer.Option("--type", metavar="TYPE", help="Only stores of this message type, such as onnx.ModelProto."),
    ] = None,
    uploader: Annotated[
        str | None, typer.Option(metavar="WHO", help="Only stores that this token or account created.")
    ] = None,
    min_size: Annotated[str | None, typer.Option(metavar="SIZE", help="Only stores of this size or more.")] = None,
    max_size: Annotated[str | None, typer.Option(metavar="SIZE", help="Only stores of this size or less.")] = None,
    since: Since = None,
    until: Until = None,
    sort: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="created, size, name, type or uploader; with - in front, descending.",
            show_default="-created",
        ),
    ] = None,
    tag: Annotated[
        str | None, typer.Option(metavar="TAG", help="Only stores with a tag that starts with this, sorted by tag.")
    ] = None,
    nameless: Annotated[
        bool, typer.Option("--nameless", help="Only stores without a tag and without a name in a registry.")
    ] = False,
    limit: Limit = 100,
    repositories: Annotated[
        bool, typer.Option("--repositories", help="List repositories of model registries instead.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List and search stores, newest first.

    Example: protoslice ls resnet --min-size 1GiB --sort -size
    """
    search: StoreSearch = {
        "name": name, "type": type_name, "uploader": uploader, "min_size": min_size, "max_size": max_size,
        "since": since, "until": until, "tag": tag, "sort": sort, "nameless": nameless or None,
    }  # fmt: skip
    if tag is not None and sort is not None:
        raise InvalidInput("--tag sorts by tag: leave out --sort, or search by NAME in place of --tag")
    if repositories:
        if any(value is not None for value in search.values()):
            raise InvalidInput("Repositories are listed without a search: leave out the other options")
        _ls_repositories(url, as_json)
        return
    with client_of(service_url(url)) as client:
        stores, more = first_of(client.stores(**search), limit)
    if as_json:
        print_json([store_facts(store) for store in stores])
    else:
        print_table(["store", "size", "created", "type", "names"], [_row(store) for store in stores], right=(1,))
    if more:
        note(f"only the first {limit} are shown; use --limit 0 for all")


def _ls_repositories(url: str | None, as_json: bool) -> None:
    with client_of(service_url(url)) as client:
        found = list(client.repositories())
    if as_json:
        print_json([asdict(each) | {"updated": utc(each.updated)} for each in found])
        return
    rows = [
        [each.name, "" if each.size is None else format_size(each.size), f"{each.updated:%Y-%m-%d %H:%M}",
         each.type or "", each.protocol]
        for each in found
    ]  # fmt: skip
    print_table(["repository", "size", "updated", "type", "protocol"], rows, right=(1,))


def _row(store: Any) -> list[str]:
    created = store.created.strftime("%Y-%m-%d %H:%M")
    names = " ".join(names_of(store)) or f"({store.root or next((file.path for file in store.files), 'no files')})"
    return [store.id[:12], format_size(store.size), created, store.type or "files only", names]


def tag(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The tag, such as resnet50:3.")],
    store: Annotated[str | None, typer.Argument(metavar="STORE", help="Store to point the tag at.")] = None,
    new: Annotated[bool, typer.Option("--new", help="Fail if the tag already exists.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the tag; its store is kept.")] = False,
    url: ServiceUrl = None,
    as_json: Json = False,
) -> None:
    """Point a tag at a store, or remove a tag.

    Example: protoslice tag resnet50:latest @resnet50:3
    """
    if remove == (store is not None):
        raise InvalidInput("Give the STORE to point the tag at, or --remove")
    if store is None:
        with client_of(service_url(url)) as client:
            client.untag(name)
        return
    address = store_of(store, url)
    with client_of(address.service) as client:
        made = client.tag(name, address.ref, create=new)
    if as_json:
        print_json({"name": made.name, "store": made.store})
    else:
        say(f"{made.name} → {made.store}")
