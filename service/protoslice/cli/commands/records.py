"""The command `records`, which shows a stream of records."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated, Final

import typer

from protoslice.cli.models.output import BINARY, STDIO, write_content
from protoslice.cli.models.records import Stream, delimited_runs, open_stream
from protoslice.cli.models.schema_files import root_type
from protoslice.cli.models.source import RootType
from protoslice.cli.options import Force, Json, Out, SchemaFile, TypeName
from protoslice.cli.progress import Progress
from protoslice.cli.tables import escaped, exact_size, print_json, print_pairs
from protoslice.errors import CorruptModel, InvalidInput, Unsupported
from protoslice.facts import RecordsSummary
from protoslice.schema.rendering import render
from protoslice.streams.framing import FRAMINGS
from protoslice.streams.selection import WHOLE, RecordChoice, RecordPart

_AT_ONCE: Final = 1 << 18
"""Approximate number of bytes of records that are rendered at a time."""


def records(  # noqa: PLR0913 - each is an option
    stream: Annotated[
        str, typer.Argument(metavar="STREAM", help="A file, a folder of shards, - for standard input, or a store.")
    ],
    number: Annotated[int | None, typer.Argument(metavar="N", help="Index of one record, starting at 0.")] = None,
    between: Annotated[
        str | None, typer.Option("--range", metavar="A:B", help="Records from A up to B, as in Python slices.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="Path of a field; select the records where it has a value given with --value."
        ),
    ] = None,
    value: Annotated[
        list[str] | None,
        typer.Option(metavar="VALUE", help="Select records whose --key field has this value; repeatable."),
    ] = None,
    sample: Annotated[int | None, typer.Option(metavar="N", help="Number of records to draw at random.", min=0)] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Random seed of the sample.", min=0)] = 0,
    path: Annotated[str, typer.Option(metavar="PATH", help="Show only the part of each record at this path.")] = "",
    fields: Annotated[
        list[str] | None, typer.Option(metavar="PATH", help="Keep only this path of each record (repeatable).")
    ] = None,
    count: Annotated[bool, typer.Option("--count", help="Print only the number of records.")] = False,
    as_text: Annotated[bool, typer.Option("--text", help="Print records in text format.")] = False,
    framing: Annotated[
        str | None,
        typer.Option(
            metavar="FRAMING",
            help=f"{', '.join(FRAMINGS[:-1])} or {FRAMINGS[-1]}, if it isn't detected.",
        ),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Path of the stream, if there are several; for shards, their common name, such as train@8.",
        ),
    ] = None,
    out: Out = None,
    force: Force = False,
    type_name: TypeName = None,
    schema_file: SchemaFile = None,
    as_json: Json = False,
) -> None:
    """Show the number of records in a stream, or some records.

    Records are printed as JSON lines with --json, and as text with --text. With -o OUT, they are written in the framing
    of the stream.

    Example: protoslice records train.tfrecord 1000 --json
    """
    if number is not None and (between is not None or key is not None or sample is not None):
        raise InvalidInput("Pass either N, or one of --range, --key and --sample")
    root = root_type(type_name, schema_file)
    with open_stream(stream, file, framing, root) as found:
        summary = found.summary()
        part = RecordPart(path, tuple(fields or ()))
        choice = RecordChoice(_from_start(between, summary.count), (), key, tuple(value or ()), sample, seed)
        if count:
            print(summary.count)
        elif number is None and choice == RecordChoice() and part == WHOLE and not as_text:
            _summarize(summary, as_json)
        else:
            form = "json" if as_json else "text" if as_text else None
            if form is None and out is None:
                raise Unsupported(f"Won't print binary records: use --json or --text, or {BINARY.removeprefix('use ')}")
            pieces = (
                _several(found, choice, part, form, root) if number is None else _one(found, number, part, form, root)
            )
            with Progress("writing") as progress:
                write_content(pieces, out or STDIO, progress, force=force, source=stream)
        if summary.fault is not None and number is None:
            raise CorruptModel(summary.fault)


def _from_start(between: str | None, count: int) -> str | None:
    """Convert the text of `--range` to a range such as `10:20`, in which both numbers count from the start.

    Return None for None. Raise `InvalidInput` for a text that is not a range.
    """
    start, colon, stop = (between or "").partition(":")
    if between is None:
        return None
    try:
        if colon:
            first, last, _ = slice(int(start) if start else None, int(stop) if stop else None).indices(count)
            return f"{first}:{last}"
    except ValueError:
        pass
    raise InvalidInput(f"Invalid range {between!r}: use 10:20, 10: or :20")


def _one(stream: Stream, number: int, part: RecordPart, form: str | None, root: RootType) -> Iterator[memoryview]:
    """Return the bytes of one record, or of a part of it, rendered in `form` unless `form` is None."""
    if part == WHOLE:
        found = stream.one(number)
        pieces = found.content.pieces()
    else:
        found = stream.chosen(RecordChoice(numbers=(number,)), part, "delimited")
        pieces = _without_length(found.content.pieces())
    # Copy each piece, because it is valid only until the next piece is requested.
    return pieces if form is None else _rendered(iter([b"".join(map(bytes, pieces))]), found.type, form, root)


def _several(
    stream: Stream, choice: RecordChoice, part: RecordPart, form: str | None, root: RootType
) -> Iterator[memoryview]:
    """Return the bytes of the selected records, rendered in `form`, or in the stream's framing if `form` is None."""
    if form is None:
        return stream.chosen(choice, part, None).content.pieces()
    found = stream.chosen(choice, part, "delimited")
    lines = "jsonl" if form == "json" else "texts"
    return _rendered(delimited_runs(found.content, _AT_ONCE), found.type, lines, root)


def _without_length(pieces: Iterator[memoryview]) -> Iterator[memoryview]:
    """Yield the bytes of a delimited stream's only record, without the length in front."""
    first = b""
    while not any(byte < 0x80 for byte in first) and (more := next(pieces, None)) is not None:
        first += more
    length = next((at for at, byte in enumerate(first, 1) if byte < 0x80), len(first))
    yield memoryview(first)[length:]
    yield from pieces


def _rendered(runs: Iterator[bytes], type_name: str | None, form: str, root: RootType) -> Iterator[memoryview]:
    """Render runs of records as JSON or text, and yield the result of each run.

    Characters that could control a terminal are escaped if standard output is a terminal.
    """
    if type_name is None:
        raise Unsupported("Unknown record type: pass --type")
    for number, run in enumerate(runs):
        try:
            shown = render(type_name, form, root.descriptor_set(type_name), run)
        except ValueError as error:
            raise Unsupported(f"{error}; pass another type with --type") from error
        shown = b"\n" + shown if number and form == "texts" else shown
        if sys.stdout.isatty():
            shown = escaped(shown.decode("utf-8", "replace"), keep="\n\t").encode()
        yield memoryview(shown if form != "json" else shown + b"\n")


def _summarize(summary: RecordsSummary, as_json: bool) -> None:
    facts = {"framing": summary.framing, "type": summary.type, "count": summary.count, "size": summary.size}
    if as_json:
        print_json(facts)
        return
    unknown = "unknown (use --type to see fields)"
    pairs = [("framing", summary.framing), ("type", summary.type or unknown), ("records", str(summary.count))]
    print_pairs([*pairs, ("size", exact_size(summary.size))])
