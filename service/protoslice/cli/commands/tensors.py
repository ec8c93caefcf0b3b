"""The commands `tensor`, which lists, prints and writes tensors, and `stats`, which computes their statistics."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from math import prod
from typing import Annotated, Any, Final

import typer

from protoslice.cli.arrays import array_lines, reader_of
from protoslice.cli.models.output import BINARY, STDIO, write_content
from protoslice.cli.models.remote import open_source
from protoslice.cli.models.schema_files import root_type
from protoslice.cli.models.source import Content, ModelSource
from protoslice.cli.options import FileName, Force, Json, Limit, MetaGraphTags, Out, SchemaFile, TypeName
from protoslice.cli.progress import Progress
from protoslice.cli.tables import note, print_items, print_json, print_pairs, print_table, say, shape_text
from protoslice.errors import Conflict, InvalidInput, NotFound, ProtosliceError, Unsupported
from protoslice.facts import Histogram, TensorEntry, TensorStatistics
from protoslice.sizes import format_size
from protoslice.tensors.listing import did_you_mean, natural, tags_of
from protoslice.tensors.omitted import Omitted
from protoslice.tensors.slices import parsed_slice, whole

_MOST_PRINTED: Final = 1 << 20
"""Maximum number of elements in a slice that is printed."""
_SAMPLE: Final = 1 << 20
"""Maximum number of elements that are read for the statistics below a printed tensor."""

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
    out: Out = None,
    force: Force = False,
    dtype: Annotated[str | None, typer.Option(metavar="DTYPE", help="List only tensors of this type.")] = None,
    name_filter: Annotated[
        str | None, typer.Option("--filter", metavar="PATTERN", help="List only these names; `*` matches anything.")
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Sort the list by size (largest first), name, dtype or shape."),
    ] = None,
    limit: Limit = 0,
    strict: Strict = False,
    tags: MetaGraphTags = None,
    type_name: TypeName = None,
    schema_file: SchemaFile = None,
    as_json: Json = False,
) -> None:
    """List the tensors of a model, or print or write one.

    With NAME, the command prints the tensor's numbers and statistics, or writes the tensor with -o OUT. Without NAME,
    -o OUT.safetensors writes all tensors to one file.

    Example: protoslice tensor model.onnx conv1.weight --slice 0:8 -o part.npy
    """
    key = _key(sort)
    if name_filter is not None and name is not None:
        raise InvalidInput("Use NAME or --filter, not both")
    name = name_filter if name is None else name
    with open_source(file, root_type(type_name, schema_file), tags=tags_of(tags)) as source:
        as_safetensors = out is not None and out.endswith(".safetensors")
        if out is not None and as_safetensors and slice_ is None and form is None and dtype is None:
            with Progress("writing") as progress:
                content, omitted = source.safetensors(name, strict=strict)
                write_content(content.pieces(), out, progress, force=force)
            _warn(omitted)
            return
        if as_safetensors and form is None:
            raise InvalidInput("A safetensors file holds whole tensors: leave out --slice and --dtype, or set --format")
        if name is not None and name_filter is None and "*" not in name:
            with _suggesting(source, name):
                if form is None and out is None and not as_json:
                    _print_tensor(source, name, slice_)
                    return
                form = form or ("json" if as_json else "npy" if (out or "").endswith(".npy") else "raw")
                content = source.tensor(name, slice_, form)
            _take(content, form, out, force=force)
            return
        _check_list(slice_, out)
        rows = list(source.tensors(name, dtype))
    if key is not None:
        rows.sort(key=key)
    damaged = [row.name for row in rows if row.problem is not None]
    if strict and damaged:
        raise Unsupported(f"cannot read all tensors, as --strict requires: {Omitted.of(len(damaged), damaged)}")
    shown = rows[: limit or None]
    _list(shown, as_json=as_json)
    if len(shown) < len(rows):
        note(f"only the first {limit} of {len(rows)} are shown; use --limit 0 for all")


def _check_list(slice_: str | None, out: str | None) -> None:
    """Raise `InvalidInput` if an option is set that needs a single tensor."""
    if out is not None:
        raise InvalidInput(
            f"Cannot write several tensors to {out}: use -o OUT.safetensors, or name one tensor "
            "(protoslice tensor MODEL lists them)"
        )
    if slice_ is not None:
        raise InvalidInput("No tensor given: name the one to slice (protoslice tensor MODEL lists them)")


def _key(sort: str | None) -> Callable[[TensorEntry], Any] | None:
    """Return the key function that sorts rows by the column `sort`, or None if `sort` is None."""
    keys: dict[str, Callable[[TensorEntry], Any]] = {
        "size": lambda row: -(row.size or 0),
        "name": lambda row: natural(row.name),
        "dtype": lambda row: row.dtype or "",
        "shape": lambda row: -prod(row.shape or (0,)),
    }
    if sort is not None and sort not in keys:
        raise InvalidInput(f"Unknown sort column {sort!r}: use one of {', '.join(keys)}")
    return None if sort is None else keys[sort]


@contextmanager
def _suggesting(source: ModelSource, name: str) -> Iterator[None]:
    """Add similar names to the error for an unknown tensor, and report an ambiguous name as invalid input."""
    try:
        yield
    except Conflict as error:
        raise InvalidInput(str(error)) from None
    except NotFound as error:
        with suppress(ProtosliceError):
            if (hint := did_you_mean(name, (row.name for row in source.tensors(None, None)))) is not None:
                error.add_note(hint)
        raise


def _print_tensor(source: ModelSource, name: str, slice_: str | None) -> None:
    """Print the elements and statistics of a tensor or of a slice. Of many elements, only some are printed."""
    entry: dict[str, Any] = json.loads(source.tensor(name, None, "json").read())
    dtype, shape = entry["dtype"], entry["shape"]
    if dtype == "STRING":
        _take(source.tensor(name, slice_, "json"), "json", None, force=False)
        return
    chosen = whole(shape) if slice_ is None else parsed_slice(slice_, shape)
    if slice_ is not None and chosen.count > _MOST_PRINTED:
        raise InvalidInput(
            f"The slice has {chosen.count} elements, but at most {_MOST_PRINTED} are printed: "
            "choose fewer, or use -o FILE"
        )
    size = shape_text(chosen.shape)
    say(f"{entry['name']}{'' if slice_ is None else f'[{slice_}]'}  {dtype} {size}")
    if slice_ is None:
        lines = array_lines(dtype, shape, lambda text: source.tensor(name, text or None, "raw").read())
    else:
        data = source.tensor(name, slice_, "raw").read()
        lines = array_lines(dtype, chosen.shape, reader_of(data, chosen.shape))
    for line in lines:
        say(line)
    found = source.statistics(name, slice_, _SAMPLE)
    sampled = "" if found.looked_at == found.elements else f"  ({found.looked_at} of {found.elements} elements)"
    figures = {"min": found.min, "max": found.max, "mean": found.mean, "std": found.deviation}
    said = [f"{what} {_figure(value)}" for what, value in figures.items() if value is not None]
    said += [f"zeros {_share(found.zeros, found.looked_at)}"]
    said += [f"NaN {found.nans}"] if found.nans else []
    say("  ".join(said) + sampled)


def _warn(omitted: Omitted | None) -> None:
    """Print a warning about tensors that were left out, if there are any."""
    if omitted is not None:
        note(f"warning: {omitted} (use --strict to fail instead)")


def _take(content: Content, form: str, out: str | None, *, force: bool) -> None:
    if out is None and form not in {"json", "lod"}:
        raise Unsupported(f"Won't print {format_size(content.size)} of binary numbers: {BINARY}")
    with Progress("writing", content.size) as progress:
        write_content(content.pieces(), out or STDIO, progress, force=force)


def _list(rows: list[TensorEntry], *, as_json: bool) -> None:
    """Print a list of tensors. A tensor whose name is not unique is shown with its address.

    If a tensor cannot be read, the error is printed on standard error.
    """
    counts = Counter(row.name for row in rows)
    columns: dict[str, Callable[[TensorEntry], object]] = {
        "dtype": lambda row: row.dtype or "?",
        "shape": lambda row: shape_text(row.shape),
        "size": lambda row: None if row.size is None else format_size(row.size),
        "name": lambda row: row.name if counts[row.name] == 1 else f"{row.name} ({row.address})",
    }
    print_items(rows, columns, as_json=as_json, right=(2,))
    for row in rows if not as_json else ():
        if row.problem is not None:
            say(f"{row.name}: {row.problem}", sys.stderr)


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
    """Show statistics of tensors: minimum, mean, zeros, NaN.

    For a single tensor, the command also shows a histogram.

    Example: protoslice stats model.onnx conv1.weight
    """
    with open_source(file, root_type(type_name, schema_file), tags=tags_of(tags)) as source:
        several = "*" in name
        rows = list(source.tensors(name, None)) if several else []
        found, without = _all_statistics(source, rows, slice_, sample)
        if strict and without is not None:
            raise Unsupported(f"cannot compute statistics of all tensors, as --strict requires: {without}")
        with _suggesting(source, name):
            found = found if several else [source.statistics(name, slice_, sample)]
    if several:
        print_items(found, _STATISTICS, as_json=as_json, right=range(6))
    elif as_json:
        print_json(found[0])
    else:
        _show_statistics(found[0])
    _warn(without)


def _all_statistics(
    source: ModelSource, rows: Sequence[TensorEntry], slice_: str | None, sample: int | None
) -> tuple[list[TensorStatistics], Omitted | None]:
    """Return the statistics of all tensors, and the names of tensors that are left out.

    Tensors of strings, and tensors that cannot be read, are left out.
    """
    found, without = list[TensorStatistics](), list[str]()
    for row in rows:
        if row.size is None or row.problem is not None:
            without.append(row.name)
            continue
        try:
            found.append(source.statistics(row.address, slice_, sample))
        except Unsupported:
            without.append(row.name)
    return found, Omitted.of(len(without), without)


def _show_statistics(found: TensorStatistics) -> None:
    whole = found.looked_at == found.elements
    looked_at = "all" if whole else f"{found.looked_at} evenly spread (--sample 0 for all)"
    print_pairs(
        [
            ("tensor", found.name),
            ("type", f"{found.dtype} {shape_text(found.shape)}"),
            ("elements", f"{found.elements}, {looked_at} examined"),
            ("min", _figure(found.min)),
            ("max", _figure(found.max)),
            ("mean", _figure(found.mean)),
            ("std", _figure(found.deviation)),
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


def _share_of_zeros(found: TensorStatistics) -> str:
    """Return the share of zeros as text. A `~` in front means that only a sample was read."""
    mark = "" if found.looked_at == found.elements else "~"
    return mark + _share(found.zeros, found.looked_at)


_STATISTICS: Final[Mapping[str, Callable[[TensorStatistics], object]]] = {
    "min": lambda each: _figure(each.min),
    "max": lambda each: _figure(each.max),
    "mean": lambda each: _figure(each.mean),
    "std": lambda each: _figure(each.deviation),
    "zeros": _share_of_zeros,
    "not finite": lambda each: each.nans + each.infinities,
    "name": lambda each: each.name,
}
"""The columns of the table of statistics for several tensors."""
