"""Options that several verbs share."""

from __future__ import annotations

from typing import Annotated

import typer

FileName = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A file or a directory, by path or URI such as s3://BUCKET/KEY (- is standard input), or a store: "
        "http://HOST/v1/stores/TAG, @TAG.",
    ),
]
LocalName = Annotated[
    str, typer.Argument(metavar="FILE", help="A file or a directory, by path or URI (- is standard input).")
]
TypeName = Annotated[
    str | None,
    typer.Option(
        "--type", metavar="TYPE", help="The message type, such as onnx.ModelProto, where it can't be detected."
    ),
]
SchemaFile = Annotated[
    str | None,
    typer.Option(
        "--schema",
        metavar="FILE",
        help="Message types of your own: a descriptor set (.binpb), or a .proto file.",
    ),
]
MetaGraphTags = Annotated[
    str | None,
    typer.Option("--tags", metavar="TAGS", help="Only of the meta graph with exactly these tags: serve,gpu."),
]
ServiceUrl = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="The service, as http://HOST:PORT.", show_default="PROTOSLICE_URL"),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, for programs.")]
MinChunk = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Fields of at least this size become chunks.", show_default="1MiB")
]
MaxChunk = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Runs of elements are cut at this size.", show_default="1GiB")
]
RulesFile = Annotated[
    str | None,
    typer.Option(
        "--rules", metavar="FILE", help="Rules that go before the sizes, one a line, such as node: every 1000."
    ),
]
SplitterName = Annotated[
    str | None, typer.Option("--splitter", metavar="NAME", help="An installed splitter, whose rules come first.")
]
StorageUri = Annotated[
    str | None,
    typer.Option(
        metavar="URI", help="Where all state is kept, as a URI.", show_default="a folder under your data folder"
    ),
]
