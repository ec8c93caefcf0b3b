"""The verb `diff`: in what two models differ."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from protoslice.cli.addresses import is_address
from protoslice.cli.differences import Difference, differences
from protoslice.cli.options import FileName, Json, TypeName
from protoslice.cli.show import print_json, print_table
from protoslice.cli.subjects import looking_at
from protoslice.sizes import format_size

__all__ = ["diff"]

DIFFERENT = 8


def diff(
    before: FileName,
    after: Annotated[str, typer.Argument(metavar="OTHER", help="Another file, directory or store.")],
    type_name: TypeName = None,
    as_json: Json = False,
) -> None:
    """Which parts of two models differ: files, tensors, chunks, fields. What digests show to be equal is not read.

    Ends with 0 when both are the same, and with 8 when they differ.

    Example: protoslice diff model.onnx http://127.0.0.1:8000/v1/stores/resnet50:3
    """
    with looking_at(before, _type_for(before, type_name)) as one, looking_at(after, _type_for(after, type_name)) as two:
        found = differences(one, two)
    if as_json:
        print_json({"equal": not found, "differences": [asdict(each) for each in found]})
    elif found:
        print_table(["change", "what", "before", "after", "path"], [_row(each) for each in found], right=(2, 3))
    if found:
        raise typer.Exit(DIFFERENT)


def _type_for(name: str, type_name: str | None) -> str | None:
    """A store has its type."""
    return None if is_address(name) else type_name


def _row(each: Difference) -> list[str]:
    before, after = ("" if size is None else format_size(size) for size in (each.before, each.after))
    path = each.path or "(the base)"
    return [each.change, each.what, before, after, f"{path}  {each.detail}" if each.detail else path]
