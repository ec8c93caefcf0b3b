"""The program: its verbs, and how it ends."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from protoslice.cli import extract, inspect, serve
from protoslice.cli.failures import one_line_errors

__all__ = ["app", "main"]

app = typer.Typer(
    name="protoslice",
    help="Look into protobufs of any size, take parts out, split them and put them together.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
_VERBS = (
    inspect.info,
    inspect.tree,
    inspect.chunks,
    extract.cat,
    extract.split,
    extract.merge,
    serve.serve,
    serve.config,
)
for verb in _VERBS:
    app.command()(verb)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"protoslice {version('protoslice')}")
        raise typer.Exit


@app.callback()
def _options(
    show: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the program that the arguments say."""
    with one_line_errors():
        app()
