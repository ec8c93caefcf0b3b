"""The program: its verbs, and how it ends."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Annotated

import typer

import protoslice
from protoslice.cli.failures import end_on_signals, one_line_errors, warnings_in_lines
from protoslice.cli.streams import open_standard_streams
from protoslice.cli.verbs import (
    access,
    auth,
    database,
    diff,
    doctor,
    extract,
    graph,
    inspect,
    login,
    records,
    removal,
    schemas,
    serve,
    tensors,
    transfer,
    upkeep,
    verify,
    webhooks,
)

app = typer.Typer(
    name="protoslice",
    help="Inspect, split, merge and share protobuf files of any size.",
    epilog="Start with `protoslice info MODEL`. Run `protoslice COMMAND --help` for an example of each command.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
_VERBS = (
    inspect.info,
    inspect.tree,
    graph.graph,
    inspect.chunks,
    extract.cat,
    extract.split,
    extract.merge,
    tensors.tensor,
    tensors.stats,
    records.records,
    verify.verify,
    diff.diff,
    transfer.push,
    transfer.pull,
    transfer.ls,
    transfer.tag,
    access.sign,
    removal.rm,
    removal.restore,
    login.login,
    login.logout,
    doctor.doctor,
    serve.serve,
    serve.config,
    upkeep.gc,
)
_SCHEMA_VERBS = (schemas.put, schemas.ls, schemas.show, schemas.rm)
_STORAGE_VERBS = (upkeep.check, upkeep.schemes, upkeep.upgrade, upkeep.usage)
_TOKEN_VERBS: dict[str, Callable[..., None]] = {
    "create": access.create_token,
    "ls": access.ls_tokens,
    "revoke": access.revoke_token,
}
_WEBHOOK_VERBS: dict[str, Callable[..., None]] = {
    "put": webhooks.put,
    "ls": webhooks.ls,
    "letters": webhooks.letters,
    "redeliver": webhooks.redeliver,
    "rm": webhooks.rm,
}
_DATABASE_VERBS: dict[str, Callable[..., None]] = {"upgrade": database.upgrade, "copy": database.copy}
_SPACE_VERBS: dict[str, Callable[..., None]] = {
    "create": access.create_space,
    "set": access.set_space,
    "ls": access.ls_spaces,
}


def _ending_well(verb: Callable[..., None]) -> Callable[..., None]:
    """`verb`, whose errors become a line and a code before the parser of the command line sees them."""

    @wraps(verb)
    def run(*args: object, **options: object) -> None:
        with one_line_errors():
            verb(*args, **options)

    return run


storage = typer.Typer(help="Manage the storage of a service.", no_args_is_help=True, rich_markup_mode=None)
schema = typer.Typer(help="Manage the message types of a service.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(schema, name="schema")
app.add_typer(storage, name="storage")
for group, verbs in ((app, _VERBS), (schema, _SCHEMA_VERBS), (storage, _STORAGE_VERBS)):
    for verb in verbs:
        group.command()(_ending_well(verb))

token = typer.Typer(help="Manage access tokens.", no_args_is_help=True, rich_markup_mode=None)
space = typer.Typer(help="Manage spaces: isolated tenants of one service.", no_args_is_help=True, rich_markup_mode=None)
webhook = typer.Typer(
    help="Send events to other systems when a space changes.", no_args_is_help=True, rich_markup_mode=None
)
catalogue = typer.Typer(help="Manage the database of a service.", no_args_is_help=True, rich_markup_mode=None)
trust = typer.Typer(help="Explain why a request is allowed or refused.", no_args_is_help=True, rich_markup_mode=None)
_AUTH_VERBS: dict[str, Callable[..., None]] = {"explain": auth.explain}
for group, named, what in (
    (token, _TOKEN_VERBS, "token"),
    (space, _SPACE_VERBS, "space"),
    (webhook, _WEBHOOK_VERBS, "webhook"),
    (trust, _AUTH_VERBS, "auth"),
    (catalogue, _DATABASE_VERBS, "database"),
):
    app.add_typer(group, name=what)
    for word, call in named.items():
        group.command(word)(_ending_well(call))


def _version(wanted: bool) -> None:
    if wanted:
        print(f"protoslice {protoslice.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    show: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


def run() -> None:
    """Run the program that the arguments say."""
    open_standard_streams()
    end_on_signals()
    warnings_in_lines()
    out = sys.stdout
    with one_line_errors():
        try:
            app()
        finally:
            if sys.stdout is not out:  # the parser of the command line mutes it when nobody reads on
                sys.stdout = out
                raise BrokenPipeError
            sys.stdout.flush()
