"""The verb `records`: a stream of protos, record by record."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from protoslice.cli.models.addresses import is_address
from protoslice.cli.models.files import errors_about, is_stream, spooled
from protoslice.cli.models.output import STDIO, write_content
from protoslice.cli.models.schema_files import root_type
from protoslice.cli.models.subjects import Content
from protoslice.cli.models.types import RootType
from protoslice.cli.options import Json, SchemaFile, TypeName
from protoslice.cli.terminal.progress import Progress
from protoslice.cli.terminal.show import escaped, print_json, print_pairs
from protoslice.errors import InvalidInput, NotFound, Unsupported
from protoslice.schema.rendering import render
from protoslice.sizes import format_size
from protoslice.streams import Records, open_records
from protoslice.streams.framing import FRAMINGS

_AT_ONCE: Final = 256
"""Records rendered at a time."""


def records(  # noqa: PLR0913 - each is an option
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file (- is standard input).")],
    number: Annotated[int | None, typer.Argument(metavar="N", help="The number of one record, from 0.")] = None,
    between: Annotated[
        str | None, typer.Option("--range", metavar="A:B", help="Records from number A up to B, as Python slices.")
    ] = None,
    count: Annotated[bool, typer.Option("--count", help="Print the number of records alone.")] = False,
    as_text: Annotated[bool, typer.Option("--text", help="Records in text format.")] = False,
    framing: Annotated[
        str | None,
        typer.Option(
            metavar="FRAMING",
            help=f"{', '.join(FRAMINGS[:-1])} or {FRAMINGS[-1]}, where it can't be detected.",
        ),
    ] = None,
    type_name: TypeName = None,
    schema_file: SchemaFile = None,
    as_json: Json = False,
) -> None:
    """Records of a stream: how many there are, one of them, or a range.

    A range comes as JSON lines with --json, and framed as in the file without.

    Example: protoslice records train.tfrecord 1000 --json
    """
    if number is not None and between is not None:
        raise InvalidInput("either one record is shown or a range of them: give N or --range")
    root = root_type(type_name, schema_file)
    with _opened(file, root, framing) as stream:
        if count:
            print(len(stream))
        elif number is None and between is None:
            _summarize(stream, as_json)
        else:
            form = "json" if as_json else "text" if as_text else None
            if form is None and sys.stdout.isatty():
                raise Unsupported("records are bytes, nothing for a terminal: take --json, --text or a pipe")
            with Progress("writing") as progress:
                write_content(_content(stream, number, between or ":", form, root), STDIO, progress, source=file)
        if stream.fault is not None and number is None:
            raise stream.fault


@contextmanager
def _opened(name: str, root: RootType, framing: str | None) -> Iterator[Records]:
    if is_address(name):
        raise Unsupported("records of a store are read by Client.records, or below /v1/stores/…/records")
    with ExitStack() as held:
        source = held.enter_context(spooled(name)) if is_stream(name) else name
        held.enter_context(errors_about(name))
        with Progress("indexing") as progress:
            stream = open_records(source, root.name, framing=framing, progress=progress.up_to)
        yield held.enter_context(stream)


def _slice(text: str) -> slice:
    start, colon, stop = text.partition(":")
    try:
        if colon:
            return slice(int(start) if start else None, int(stop) if stop else None)
    except ValueError:
        pass
    raise InvalidInput(f"{text!r} is no range: give it as 10:20, 10: or :20")


def _content(stream: Records, number: int | None, between: str, form: str | None, root: RootType) -> Content:
    """One record, or a range of them, as bytes or rendered in `form`."""
    if number is not None:
        if not 0 <= number < len(stream):
            raise NotFound(f"there is no record {number}: there are {len(stream)}")
        return stream.record(number) if form is None else _Rendered(stream[number : number + 1], form, root)
    part = stream[_slice(between)]
    return part.rope() if form is None else _Rendered(part, "jsonl" if form == "json" else "texts", root)


@dataclass(frozen=True, slots=True)
class _Rendered:
    """Records as JSON or in text format, rendered piece by piece."""

    records: Records
    form: str
    root: RootType

    @property
    def size(self) -> int:
        """Zero: the length is known when all is rendered."""
        return 0

    def read(self) -> bytes:
        """All records, rendered."""
        return b"".join(self.pieces())

    def pieces(self) -> Iterator[memoryview]:
        """The bytes, piece by piece, without what steers a terminal if one is written to."""
        if self.records.type is None:
            raise Unsupported("the type of the records is not known: name it by --type")
        for at in range(0, len(self.records), _AT_ONCE):
            shown = self._rendered(self.records.type, self.records[at : at + _AT_ONCE])
            if sys.stdout.isatty():
                shown = escaped(shown.decode("utf-8", "replace"), keep="\n\t").encode()
            yield memoryview(shown if self.form != "json" else shown + b"\n")

    def _rendered(self, type_name: str, some: Records) -> bytes:
        alone = self.form in {"json", "text"}
        try:
            return render(
                type_name,
                self.form,
                self.root.descriptor_set(type_name),
                some[0] if alone else bytes(some.rope("delimited")),
            )
        except ValueError as error:
            raise Unsupported(f"{error}; name another type by --type") from error


def _summarize(stream: Records, as_json: bool) -> None:
    facts = {"framing": stream.framing, "type": stream.type, "count": len(stream), "size": stream.core.end}
    if as_json:
        print_json(facts)
        return
    unknown = "unknown (name it with --type to see fields)"
    pairs = [("framing", stream.framing), ("type", stream.type or unknown), ("records", str(len(stream)))]
    print_pairs([*pairs, ("size", f"{format_size(stream.core.end)} ({stream.core.end} bytes)")])
