"""The verb `diff`: in what two models differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Final

import typer

from protoslice.cli.comparing.sides import both_sides, differences
from protoslice.cli.models.addresses import address_of, is_address
from protoslice.cli.models.remote import client_of
from protoslice.cli.models.schema_files import root_type
from protoslice.cli.models.types import RootType
from protoslice.cli.options import FileName, Json, SchemaFile, TypeName
from protoslice.cli.terminal.show import Colour, print_json, print_table, say
from protoslice.errors import Unsupported
from protoslice.facts import Difference
from protoslice.sizes import format_size

DIFFERENT: Final = 8
COLOURS: Final[Mapping[str, Colour]] = {"added": "green", "removed": "red", "changed": "yellow"}


def diff(
    before: FileName,
    after: Annotated[str, typer.Argument(metavar="OTHER", help="Another file, directory or store.")],
    limit: Annotated[int, typer.Option(metavar="N", help="Maximum number of differences to show.", min=1)] = 50,
    type_name: TypeName = None,
    schema_file: SchemaFile = None,
    as_json: Json = False,
) -> None:
    """Compare two models: files, tensors and other parts.

    Parts with equal checksums are not downloaded. Exits with 0 if the models are equal, and with 8 if they differ.

    Example: protoslice diff model.onnx http://127.0.0.1:8000/v1/stores/resnet50:3
    """
    root = root_type(type_name, schema_file)
    if root.given and is_address(before) and is_address(after):
        raise Unsupported("--type and --schema are only for files: the type of a store is fixed when it is created")
    found = _found(before, after, root)
    if as_json:
        print_json({"equal": not found, "differences": [asdict(each) for each in found]})
    elif found:
        _show(found, limit)
    if found:
        raise typer.Exit(DIFFERENT)


def _found(before: str, after: str, root: RootType) -> list[Difference]:
    """The differences: two stores of one service are compared there."""
    if is_address(before) and is_address(after):
        one, other = address_of(before), address_of(after)
        if one.service == other.service:
            with client_of(one.service) as client:
                return [*client.diff(one.ref, other.ref)]
    with both_sides((before, after), root) as sides:
        return [*differences(*sides)]


def _show(found: list[Difference], limit: int) -> None:
    shown = found[:limit]
    titles = ["change", "what", "before", "after", "path"]
    print_table(titles, [_row(each) for each in shown], right=(2, 3), colours=COLOURS)
    if len(found) > 1:
        counts = Counter((each.what, each.change) for each in found)
        told = ", ".join(
            f"{count} {what}{'' if count == 1 else 's'} {change}" for (what, change), count in counts.items()
        )
        more = f"… {len(found) - limit} more (--limit shows more, --json all); in total: " if len(found) > limit else ""
        say()
        say(f"{more}{told}")


def _row(each: Difference) -> list[str]:
    before, after = ("" if size is None else format_size(size) for size in (each.before, each.after))
    path = each.path or "(the root)"
    return [each.change, each.what, before, after, f"{path}  {each.detail}" if each.detail else path]
