"""The commands `cat`, `split`, `merge` and `extract`, which write parts or other forms of a model."""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final

import typer

from protoslice.cli.hints import command_line
from protoslice.cli.models.files import opened, opened_model, rules_in
from protoslice.cli.models.output import BINARY, STDIO, check_output, write_content
from protoslice.cli.models.remote import connect, open_source
from protoslice.cli.models.schema_files import root_type
from protoslice.cli.models.source import ModelSource, PathContent, RootType
from protoslice.cli.options import (
    FileName,
    Force,
    Json,
    LocalName,
    MaxChunk,
    MinChunk,
    Out,
    RulesFile,
    SchemaFile,
    SplitterName,
    TypeName,
)
from protoslice.cli.progress import Progress
from protoslice.cli.tables import counted, escaped, note, print_files, print_json, say
from protoslice.concurrency import finish
from protoslice.defaults import LARGEST_MESSAGE
from protoslice.errors import NotFound, ProtosliceError, Unsupported
from protoslice.formats.onnx_external import ALIGNMENT, WEIGHTS, check_alignment, in_one_file, with_external_data
from protoslice.formats.onnx_extraction import SubModel
from protoslice.formats.onnx_messages import OnnxProto
from protoslice.formats.report import report_job
from protoslice.library.proto import LargeChunkWarning
from protoslice.references import address_of, is_address
from protoslice.sizes import format_size, parse_size
from protoslice.sources.ropes import Rope
from protoslice.splitters import splitter_named

_SAVED_MODEL: Final = "tensorflow.SavedModel"

_LONGEST_SHOWN: Final = 1024
"""Maximum number of bytes of a field that is shown on a terminal."""
_BINARY: Final = frozenset({"message", "bytes", "unknown", "repeated"})
"""The kinds of values that are not text."""
_ONNX: Final = ".onnx"
_MOST_RENDERED: Final = 16 << 20
_LONGEST_HINT: Final = 4096
"""Maximum number of bytes in a name that a hint repeats."""
_NAMED: Final = 5
"""Maximum number of files that a note names."""


def cat(
    file: FileName,
    path: Annotated[str, typer.Argument(metavar="PATH", help='Path of the field, such as graph.node[name="conv1"].')],
    out: Out = None,
    force: Force = False,
    type_name: TypeName = None,
    schema_file: SchemaFile = None,
    as_json: Json = False,
) -> None:
    """Print a message or a field as text, or write its bytes.

    Binary fields, repeated fields and messages of unknown types are not printed. To write their bytes, use -o FILE, or
    -o - for standard output.

    Example: protoslice cat model.onnx graph.initializer[0].raw_data -o weights.bin
    """
    root = root_type(type_name, schema_file)
    with open_source(file, root) as source:
        try:
            part = source.part(path)
        except NotFound as error:
            if hint := _external(source, file, path):
                error.add_note(hint)
            raise
        if as_json:
            _print_message(part, "json", root)
            return
        if out is None and part.kind == "message" and part.type is not None:
            _print_message(_shortened(source, path, part), "text", root)
        elif out is None and (sys.stdout.isatty() or part.kind in _BINARY):
            _show(part)
        else:
            with Progress("writing", part.content.size) as progress:
                write_content(part.content.pieces(), out or STDIO, progress, force=force, source=file)


def _external(source: ModelSource, file: str, path: str) -> str | None:
    """Return a hint if `path` is the `raw_data` of a tensor whose elements are in another file, or None otherwise."""
    parent, _, field = path.rpartition(".")
    if field != "raw_data":
        return None

    def text(below: str) -> str:
        content = source.part(f"{parent}.{below}").content
        return content.read().decode("utf-8", "backslashreplace") if content.size <= _LONGEST_HINT else ""

    try:
        location = text('external_data[key="location"].value')
        names = (f"path:{parent}", text("name"))
        known = next(each for each in names if any(True for _ in source.tensors(each, None)))
    except (ProtosliceError, StopIteration):
        return None
    offset = "0"
    with suppress(ProtosliceError):
        offset = text('external_data[key="offset"].value')
    run = command_line("tensor", file, known, out="raw_data.bin")
    return f"the elements are in file {location!r} from byte {offset}; to write them, run: {run}"


def _shortened(source: ModelSource, path: str, part: PathContent) -> PathContent:
    """If the message is shown on a terminal, return it without large fields, and print a note about these fields.

    In a pipe, return the message unchanged.
    """
    if part.content.size <= _LONGEST_SHOWN or not sys.stdout.isatty():
        return part
    note(f"fields larger than {format_size(_LONGEST_SHOWN)} are left out: use --json, -o FILE or a pipe for all of it")
    return source.part(path, omit_larger_than=_LONGEST_SHOWN)


def _print_message(part: PathContent, form: str, root: RootType) -> None:
    """Print a message as JSON or in text format.

    Raise `Unsupported` for a value that is not a message, for a message of unknown type, and for a large message.
    """
    if part.kind != "message" or part.type is None:
        raise Unsupported(f"Only messages of known types have a JSON form, but this part is {part.kind}: pass --type")
    if part.content.size > _MOST_RENDERED:
        raise Unsupported(
            f"Won't print a message of {format_size(part.content.size)}: at most {format_size(_MOST_RENDERED)} are "
            "printed. Use merge --omit-larger-than, or choose a part of it"
        )
    from protoslice.schema.rendering import render

    try:
        shown = render(part.type, form, root.descriptor_set(part.type), part.content.read())
    except ValueError as error:
        raise Unsupported(str(error)) from error
    text = shown.decode("utf-8", "replace").rstrip("\n")
    print(escaped(text, keep="\n\t") if sys.stdout.isatty() else text)


def _show(part: PathContent) -> None:
    """Print a value as text; raise `Unsupported` for binary data and for more than a mebibyte."""
    if part.content.size > 1 << 20 or part.kind in _BINARY:
        raise Unsupported(f"Won't print {format_size(part.content.size)} of binary data: {BINARY}")
    print(escaped(part.content.read().decode("utf-8", "backslashreplace"), keep="\n\t"))


def split(  # noqa: PLR0913 - each is an option
    file: LocalName,
    out_prefix: Annotated[str, typer.Argument(metavar="OUT_PREFIX", help="Path of the output without its extension.")],
    min_chunk: MinChunk = None,
    max_chunk: MaxChunk = None,
    rules: RulesFile = None,
    splitter: SplitterName = None,
    force: Force = False,
    type_name: TypeName = None,
    schema_file: SchemaFile = None,
    as_json: Json = False,
) -> None:
    """Split a proto into chunks in OUT_PREFIX.cpb.

    If nothing has to be split, the command writes OUT_PREFIX.pb. In a directory, it splits the root file. A chunked
    file keeps its chunks, unless you pass a size, rules or a splitter.

    Example: protoslice split model.onnx model
    """
    if is_address(file):
        raise Unsupported(
            "The store is already split; to get the chunked file, run: "
            f"{command_line('pull', file, f'{out_prefix}.cpb', view='cpb')}"
        )
    with opened(file, root_type(type_name, schema_file)) as proto:
        parts = proto.chunks
        if (min_chunk, max_chunk, rules, splitter) != (None,) * 4:
            by_name = splitter_named(splitter) if splitter is not None else None
            least, most = parse_size(min_chunk or "1MiB"), parse_size(max_chunk or "1GiB")
            parts = proto.split(min_chunk=least, max_chunk=most, rules=rules_in(rules), splitter=by_name)
        whole = len(parts) == 1 and not parts[0].path
        out = out_prefix + (".pb" if whole else ".cpb")
        if parts.problem is not None:
            note(f"note: {parts.problem}")
        _name_external(file, root_type(type_name, schema_file))
        with Progress("splitting", (1 if whole else 2) * proto.size) as progress, warnings.catch_warnings():
            warnings.simplefilter("ignore", LargeChunkWarning)  # the note above already reports large chunks
            rope: Rope = parts[0].rope if whole else parts.cpb(progress.advance)
            write_content(rope.pieces(), out, progress, force=force, source=file, quiet=True)
        _note_earlier(out_prefix + (".cpb" if whole else ".pb"), file)
        if proto.type == _SAVED_MODEL and not whole:
            note(f"note: TensorFlow cannot load {out}: keep saved_model.pb, or merge it again (protoslice merge)")
        if as_json:
            print_json({"file": out, "size": rope.size, "chunks": len(parts)})
        else:
            say(f"{out}: {format_size(rope.size)} in {counted(len(parts), 'chunk')}")


def _name_external(file: str, root: RootType) -> None:
    """Print a note that names the other files with tensors of the model. The output does not contain these tensors."""
    if file == STDIO or is_address(file):
        return
    with suppress(ProtosliceError), opened_model(file, root) as model:
        report = finish(report_job(model.model, most=None))
        if others := [*report.files, *report.missing]:
            shown = ", ".join(escaped(each) for each in others[:_NAMED])
            more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
            note(f"note: tensors stay in {shown}{more}; keep these files next to the output")


def _note_earlier(other: str, file: str) -> None:
    """Warn about a `.cpb` file of an earlier split. Readers would open that file instead of the new `.pb` file."""
    if other.endswith(".cpb") and os.path.exists(other) and not (file != STDIO and os.path.samefile(other, file)):
        note(f"note: {other} is from an earlier split, and readers of this prefix open it first: delete it")


def merge(  # noqa: PLR0913 - each is an option
    file: FileName,
    out: Annotated[str, typer.Argument(metavar="OUT", help="Output file, or - for standard output.")],
    path: Annotated[str, typer.Option(metavar="PATH", help="Path of the part to merge.")] = "",
    fields: Annotated[
        list[str] | None, typer.Option(metavar="PATH", help="Keep only this field below the path; repeatable.")
    ] = None,
    omit: Annotated[
        list[str] | None, typer.Option(metavar="PATH", help="Leave out this field below the path; repeatable.")
    ] = None,
    omit_larger_than: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Leave out fields larger than this size.")
    ] = None,
    force: Force = False,
    type_name: TypeName = None,
    schema_file: SchemaFile = None,
) -> None:
    """Write a model, or the part at a path, as one message.

    Example: protoslice merge model.cpb model.onnx
    """
    with open_source(file, root_type(type_name, schema_file)) as source:
        limit = None if omit_larger_than is None else parse_size(omit_larger_than)
        part = source.part(path, fields, limit, omit or ())
        size = part.content.size
        if not path and not fields:
            _name_external(file, root_type(type_name, schema_file))
        if part.kind == "message" and size > LARGEST_MESSAGE:
            note(f"note: {format_size(size)} is more than protobuf's own parsers accept (2 GiB)")
        if limit is not None and size == source.part(path, fields, None, omit or ()).content.size:
            note(f"note: nothing was left out: no field is larger than {format_size(limit)}")
        with Progress("merging", size) as progress:
            write_content(part.content.pieces(), out, progress, force=force, source=file)


def extract(
    file: FileName,
    out: Annotated[
        str,
        typer.Argument(metavar="OUT", help="A file that ends in .onnx, or a folder for model.onnx and weights.bin."),
    ],
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="NAME",
            help="Value that becomes an input, or node whose inputs become inputs; repeatable.",
        ),
    ] = None,
    outputs: Annotated[
        list[str] | None,
        typer.Option(
            "--output",
            metavar="NAME",
            help="Value that becomes an output, or node whose outputs become outputs; repeatable.",
        ),
    ] = None,
    align: Annotated[
        int, typer.Option(metavar="BYTES", help="Alignment of weights in weights.bin: a power of two.")
    ] = ALIGNMENT,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write an ONNX model, or a part of it, as runnable files.

    With a folder as OUT, the command writes a small model.onnx and its weights.bin, which runtimes can load at any
    size. Without --input and --output, it writes the whole model.

    Example: protoslice extract model.onnx encoder/ --output encoder.out
    """
    part = SubModel(tuple(inputs or ()), tuple(outputs or ()))
    check_alignment(align)
    print_files((_pull_onnx if is_address(file) else _write_onnx)(file, out, part, align, force), as_json=as_json)


def _write_onnx(file: str, out: str, part: SubModel, align: int, force: bool) -> list[tuple[str, int]]:
    """Write the files of a local model, or of a part of it, and return their paths and sizes."""
    with opened_model(file, root_type(None, None)) as model:
        proto = OnnxProto(model.model)
        chosen = part if part.inputs or part.outputs else None
        if out.endswith(_ONNX):
            files = {out: in_one_file(proto, chosen)}
        else:
            made = with_external_data(proto, chosen, align)
            folder = _onnx_folder(out)
            # The weights are written first, because a model without its weights is useless.
            files = {str(folder / WEIGHTS): made.weights, str(folder / "model.onnx"): made.model}
        for path in files:
            check_output(path, force=force, source=file)
        with Progress("writing", sum(data.size for data in files.values())) as progress:
            for path, data in files.items():
                write_content(data.pieces(), path, progress, force=force, source=file, quiet=True)
        return [(path, data.size) for path, data in files.items()]


def _pull_onnx(file: str, out: str, part: SubModel, align: int, force: bool) -> list[tuple[str, int]]:
    """Download the files of a store's model, or of a part of it, and return their paths and sizes."""
    address = address_of(file)
    params = [*(("inputs", name) for name in part.inputs), *(("outputs", name) for name in part.outputs)]
    params.append(("align", str(align)))
    single = out.endswith(_ONNX)
    for path in (out,) if single else (os.path.join(out, WEIGHTS), os.path.join(out, "model.onnx")):
        check_output(path, force=force)
    with connect(address.service) as client, Progress("pulling") as progress:
        view, target = ("onnx/single.onnx", Path(out)) if single else ("onnx", _onnx_folder(out))
        got = client.download(address.ref, target, view=view, params=params, progress=progress.up_to)
    return [(str(each.path), each.size) for each in got]


def _onnx_folder(out: str) -> Path:
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise NotFound(f"{out} is not a folder: to write a single file, pass a name that ends in {_ONNX}")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
