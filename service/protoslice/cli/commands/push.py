"""The command `push`, which uploads a model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from protoslice.cli.hints import command_line
from protoslice.cli.models.files import errors_about, named_files, rules_in
from protoslice.cli.models.output import STDIO
from protoslice.cli.models.remote import connect
from protoslice.cli.models.source import RootType
from protoslice.cli.options import Json, MaxChunk, MinChunk, RulesFile, ServiceUrl, TypeName
from protoslice.cli.progress import Progress
from protoslice.cli.tables import counted, note, print_json, say
from protoslice.errors import InvalidInput, NotFound, UnsoundModel, Unsupported
from protoslice.references import Address, is_address, ref_on, service_url
from protoslice.sizes import format_size, parse_size
from protoslice.uris import is_uri, local_path

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


def push(  # noqa: PLR0913 - each is an option
    name: Annotated[str, typer.Argument(metavar="PATH", help="The path or URI of a file, or of a model's directory.")],
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
        _files_at(name) as (what, alone),
        _advised(advice if alone else None),
        connect(service) as client,
        errors_about(name),
        Progress("pushing") as progress,
    ):
        pushed = client.push(what, tags=tuple(tags or ()), progress=progress.up_to, **options)
    if as_json:
        print_json(pushed)
        return
    say(Address(client.url, pushed.store.id).page)
    for line in _report(pushed, advice if alone else None):
        note(line)


@contextmanager
def _advised(advice: str | None) -> Iterator[None]:
    """Add `advice` to `UnsoundModel` errors of the `with` block."""
    try:
        yield
    except UnsoundModel as error:
        if advice is not None:
            error.add_note(advice)
        raise


def _advice(name: str, url: str | None, tags: list[str] | None) -> str:
    """Return advice on how to push the other files in the folder of `name` too."""
    folder = os.path.dirname(name) or "."
    return f"To send the files next to it too, run: {command_line('push', folder, url=url, tag=tags)}"


@contextmanager
def _files_at(name: str) -> Iterator[tuple[Any, bool]]:
    """Yield the file or directory to push, and whether it is a single file.

    Raise `InvalidInput` for a store, `Unsupported` for standard input, and `NotFound` for a missing file.
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


def _report(pushed: Any, advice: str | None) -> Iterator[str]:
    """Yield lines about a push: the model's type and tensors, its faults, and the number of bytes sent.

    `advice` explains how to send missing files. It is None if a folder was pushed.
    """
    if pushed.report is not None:
        yield from _about(pushed.store, pushed.report)
        if pushed.report.missing and advice is not None:
            yield advice
    copied = f", {format_size(pushed.copied)} reused" if pushed.copied else ""
    yield f"{format_size(pushed.sent)} sent{copied}" if pushed.created else "this store is already on the service"


def _about(store: Any, report: Any) -> Iterator[str]:
    yield _kind(store) if store.root is None else f"{_kind(store)}, {_tensors(report.tensors)}"
    more = "" if report.complete else " and more"
    if report.missing:
        yield f"missing files: the model refers to {', '.join(report.missing)}{more}, but they were not sent"
    for damage in report.damaged:
        yield f"damaged: {damage.part}: {damage.error}"
    if report.duplicates:
        yield f"Duplicate tensor names: {', '.join(report.duplicates)}{more}"


def _kind(store: Any) -> str:
    if store.root is None:
        return f"stored as plain files: {store.why or 'no root proto was found'}"
    return f"{store.root}: {store.type}" if store.type != "unknown" else f"{store.root}: protobuf of unknown type"


def _tensors(count: int | None) -> str:
    return "no tensors in a known format" if count is None else counted(count, "tensor")
