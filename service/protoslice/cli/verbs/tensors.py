"""The verbs for tensors: `tensor` lists them, or takes one out; `stats` sums them up."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from protoslice.cli.models.opening import opened_subject
from protoslice.cli.models.output import STDIO, write_content
from protoslice.cli.models.schema_files import root_type
from protoslice.cli.models.subjects import Subject
from protoslice.cli.options import FileName, Json, MetaGraphTags, SchemaFile, TypeName
from protoslice.cli.terminal.progress import Progress
from protoslice.cli.terminal.show import note, print_json, print_pairs, print_table, say
from protoslice.errors import InvalidInput, Unsupported
from protoslice.facts import Histogram, TensorEntry, TensorStatistics
from protoslice.formats.outputs.omitted import Omitted
from protoslice.formats.selection import tags_of
from protoslice.sizes import format_size

Strict = Annotated[
    bool, typer.Option("--strict", help="Fail if tensors have to be left out, instead of only warning about them.")
]


def tensor(  # noqa: PLR0913 - each is an option
    file: FileName,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Name of a tensor, or its address if the name isn't unique; `*` matches anything. Default: list all.",
        ),
    ] = None,
    slice_: Annotated[
        str | None, typer.Option("--slice", metavar="SLICE", help="Slice as in NumPy, such as 0:128,:,-3,::2.")
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="raw, npy, packed (narrow types as bits), json (metadata and strings) or lod (levels of detail).",
            show_default="npy for OUT.npy, else raw",
        ),
    ] = None,
    out: Annotated[
        str, typer.Option("--out", "-o", metavar="OUT", help="Where to write it; - is standard output.")
    ] = STDIO,
    dtype: Annotated[str | None, typer.Option(metavar="DTYPE", help="List only tensors of this type.")] = None,
    strict: Strict = False,
    tags: MetaGraphTags = None,
    type_name: TypeName = None,
    schema_file: SchemaFile = None,
    as_json: Json = False,
) -> None:
    """List the tensors of a model, or extract one of them.

    Use -o OUT.safetensors to write all of them to one file.

    Example: protoslice tensor model.onnx conv1.weight --slice 0:8 -o part.npy
    """
    with opened_subject(file, root_type(type_name, schema_file), tags=tags_of(tags)) as subject:
        if out.endswith(".safetensors") and slice_ is None and form is None and dtype is None:
            with Progress("writing") as progress:
                content, omitted = subject.safetensors(name, strict=strict)
                write_content(content, out, progress)
            _warn(omitted)
            return
        if out.endswith(".safetensors") and form is None:
            raise InvalidInput("A safetensors file holds whole tensors: leave out --slice and --dtype, or set --format")
        if name is not None and "*" not in name:
            _take(subject, name, slice_, form or ("json" if as_json else "npy" if out.endswith(".npy") else "raw"), out)
            return
        if slice_ is not None or out != STDIO:
            raise InvalidInput("No tensor given: name the one to write (protoslice tensor MODEL lists them)")
        rows = list(subject.tensors(name, dtype))
    damaged = [row.name for row in rows if row.problem is not None]
    if strict and damaged:
        raise Unsupported(f"cannot read all tensors, as --strict requires: {Omitted.of(len(damaged), damaged)}")
    if as_json:
        print_json([asdict(row) for row in rows])
    else:
        _show(rows)


def _warn(omitted: Omitted | None) -> None:
    """Name on standard error what an output lacks."""
    if omitted is not None:
        note(f"warning: {omitted} (use --strict to fail instead)")


def _take(subject: Subject, name: str, slice_: str | None, form: str, out: str) -> None:
    content = subject.tensor(name, slice_, form)
    if out == STDIO and form not in {"json", "lod"} and sys.stdout.isatty():
        what = format_size(content.size)
        raise Unsupported(f"Won't print {what} of binary numbers to the terminal: use -o FILE or a pipe")
    with Progress("writing", content.size) as progress:
        write_content(content, out, progress)


def _show(rows: list[TensorEntry]) -> None:
    table = [
        [row.dtype or "?", _shape(row), "" if row.size is None else format_size(row.size), row.name] for row in rows
    ]
    print_table(["dtype", "shape", "size", "name"], table, right=(2,))
    for row in rows:
        if row.problem is not None:
            say(f"{row.name}: {row.problem}", sys.stderr)


def _shape(row: TensorEntry) -> str:
    return "?" if row.shape is None else "×".join(map(str, row.shape)) or "scalar"


def stats(  # noqa: PLR0913 - each is an option
    file: FileName,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="Name of a tensor, or its address if the name isn't unique; `*` matches anything."
        ),
    ] = "*",
    slice_: Annotated[
        str | None, typer.Option("--slice", metavar="SLICE", help="Slice as in NumPy, such as 0:128,:,-3,::2.")
    ] = None,
    strict: Strict = False,
    sample: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Number of elements to examine; 0 for all.", show_default="16 777 216 of each tensor"
        ),
    ] = None,
    tags: MetaGraphTags = None,
    type_name: TypeName = None,
    schema_file: SchemaFile = None,
    as_json: Json = False,
) -> None:
    """Show statistics of tensors: minimum, maximum, mean, zeros, NaN.

    For a single tensor also the standard deviation and a histogram.

    Example: protoslice stats model.onnx conv1.weight
    """
    with opened_subject(file, root_type(type_name, schema_file), tags=tags_of(tags)) as subject:
        several = "*" in name
        rows = list(subject.tensors(name, None)) if several else []
        found, without = _all_statistics(subject, rows, slice_, sample)
        if strict and without is not None:
            raise Unsupported(f"cannot compute statistics of all tensors, as --strict requires: {without}")
        found = found if several else [subject.statistics(name, slice_, sample)]
    if as_json:
        print_json([asdict(each) for each in found] if several else asdict(found[0]))
    elif several:
        titles = ["min", "max", "mean", "deviation", "zeros", "NaN", "name"]
        print_table(titles, [_summed_up(each) for each in found], right=range(6))
    else:
        _show_statistics(found[0])
    _warn(without)


def _all_statistics(
    subject: Subject, rows: Sequence[TensorEntry], slice_: str | None, sample: int | None
) -> tuple[list[TensorStatistics], Omitted | None]:
    """Statistics of the tensors that have any; the others have strings, or cannot be read."""
    found, without = list[TensorStatistics](), list[str]()
    for row in rows:
        if row.size is None or row.problem is not None:
            without.append(row.name)
            continue
        try:
            found.append(subject.statistics(row.address, slice_, sample))
        except Unsupported:
            without.append(row.name)
    return found, Omitted.of(len(without), without)


def _summed_up(found: TensorStatistics) -> list[str]:
    """A row of the table of several tensors; a share of zeros among sampled elements is marked by `~`."""
    figures = [_figure(each) for each in (found.min, found.max, found.mean, found.deviation)]
    mark = "" if found.looked_at == found.elements else "~"
    return [*figures, mark + _share(found.zeros, found.looked_at), str(found.nans + found.infinities), found.name]


def _show_statistics(found: TensorStatistics) -> None:
    whole = found.looked_at == found.elements
    looked_at = "all" if whole else f"{found.looked_at} evenly spread (--sample 0 for all)"
    print_pairs(
        [
            ("tensor", found.name),
            ("type", f"{found.dtype} {'×'.join(map(str, found.shape)) or 'scalar'}"),
            ("elements", f"{found.elements}, {looked_at} examined"),
            ("minimum", _figure(found.min)),
            ("maximum", _figure(found.max)),
            ("mean", _figure(found.mean)),
            ("std deviation", _figure(found.deviation)),
            ("zeros", f"{found.zeros} ({_share(found.zeros, found.looked_at)})"),
            ("NaN", str(found.nans)),
            ("infinite", str(found.infinities)),
        ]
    )
    if found.histogram is not None:
        say()
        _show_histogram(found.histogram)


def _show_histogram(histogram: Histogram) -> None:
    most = max(histogram.counts)
    rows = [
        [_figure(histogram.start + histogram.width * number), str(count), "█" * -(-40 * count // most)]
        for number, count in enumerate(histogram.counts)
    ]
    print_table(["from", "elements", ""], rows, right=(0, 1))


def _figure(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / max(whole, 1):.1f} %"
