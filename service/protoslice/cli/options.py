"""Options that several verbs share."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["ChunkSize", "FileName", "Json", "StorageUri", "TypeName"]

FileName = Annotated[str, typer.Argument(metavar="FILE", help="A serialized or chunked proto; - is standard input.")]
TypeName = Annotated[
    str | None, typer.Option("--type", help="The message type, such as onnx.ModelProto, where it can't be detected.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, for programs.")]
ChunkSize = Annotated[str, typer.Option(help="A size: bytes, or with a unit such as 64KiB.")]
StorageUri = Annotated[
    str | None, typer.Option(help="Where all state is kept, as a URI.", show_default="a folder under your data folder")
]
