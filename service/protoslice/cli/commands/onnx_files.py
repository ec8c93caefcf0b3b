"""The verb that writes ONNX models as other files: `extract`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Final

import typer

from protoslice.cli.models.files import opened_model
from protoslice.cli.models.output import check_output, write_content
from protoslice.cli.models.remote import client_of
from protoslice.cli.models.schema_files import root_type
from protoslice.cli.options import FileName, Force, Json
from protoslice.cli.progress import Progress
from protoslice.cli.tables import print_files
from protoslice.errors import NotFound
from protoslice.formats.onnx_external import (
    ALIGNMENT,
    WEIGHTS,
    check_alignment,
    in_one_file,
    with_external_data,
)
from protoslice.formats.onnx_extraction import SubModel
from protoslice.formats.onnx_messages import OnnxProto
from protoslice.references import address_of, is_address

_ENDING: Final = ".onnx"


def extract(
    file: FileName,
    out: Annotated[
        str,
        typer.Argument(metavar="OUT", help="A file that ends in .onnx, or a folder for model.onnx and weights.bin."),
    ],
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input", metavar="NAME", help="Value that becomes an input, or node whose inputs do; repeatable."
        ),
    ] = None,
    outputs: Annotated[
        list[str] | None,
        typer.Option(
            "--output", metavar="NAME", help="Value that becomes an output, or node whose outputs do; repeatable."
        ),
    ] = None,
    align: Annotated[
        int, typer.Option(metavar="BYTES", help="Alignment of weights in weights.bin: a power of two.")
    ] = ALIGNMENT,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write an ONNX model, or a part of it, as runnable files.

    A folder gets a small model and its weights, which runtimes load at any size. Without names, it is the whole model.

    Example: protoslice extract model.onnx encoder/ --output encoder.out
    """
    part = SubModel(tuple(inputs or ()), tuple(outputs or ()))
    check_alignment(align)
    print_files((_pulled if is_address(file) else _written)(file, out, part, align, force), as_json=as_json)


def _written(file: str, out: str, part: SubModel, align: int, force: bool) -> list[tuple[str, int]]:
    """Write files of a local model; their paths and sizes."""
    with opened_model(file, root_type(None, None)) as model:
        proto = OnnxProto(model.model)
        chosen = part if part.inputs or part.outputs else None
        if out.endswith(_ENDING):
            files = {out: in_one_file(proto, chosen)}
        else:
            made = with_external_data(proto, chosen, align)
            folder = _folder(out)
            # The weights first: a model without them is of no use.
            files = {str(folder / WEIGHTS): made.weights, str(folder / "model.onnx"): made.model}
        for path in files:
            check_output(path, force=force, source=file)
        with Progress("writing", sum(data.size for data in files.values())) as progress:
            for path, data in files.items():
                write_content(data, path, progress, force=force, source=file, quiet=True)
        return [(path, data.size) for path, data in files.items()]


def _pulled(file: str, out: str, part: SubModel, align: int, force: bool) -> list[tuple[str, int]]:
    """Download files of a store; their paths and sizes."""
    address = address_of(file)
    params = [*(("inputs", name) for name in part.inputs), *(("outputs", name) for name in part.outputs)]
    params.append(("align", str(align)))
    single = out.endswith(_ENDING)
    for path in (out,) if single else (os.path.join(out, WEIGHTS), os.path.join(out, "model.onnx")):
        check_output(path, force=force)
    with client_of(address.service) as client, Progress("pulling") as progress:
        view, target = ("onnx/single.onnx", Path(out)) if single else ("onnx", _folder(out))
        got = client.download(address.ref, target, view=view, params=params, progress=progress.up_to)
    return [(str(each.path), each.size) for each in got]


def _folder(out: str) -> Path:
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise NotFound(f"{out} is not a folder: end the name of a single file in {_ENDING}")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
