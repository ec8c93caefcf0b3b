"""Options that several verbs share."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

import typer

FileName = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A model: a path, a URI such as s3://BUCKET/KEY, - for standard input, or a store "
        "(http://HOST/v1/stores/TAG or @TAG).",
    ),
]
LocalName = Annotated[
    str, typer.Argument(metavar="FILE", help="A file or a directory: a path, a URI, or - for standard input.")
]
TypeName = Annotated[
    str | None,
    typer.Option("--type", metavar="TYPE", help="Message type, such as onnx.ModelProto, if it isn't detected."),
]
SchemaFile = Annotated[
    str | None,
    typer.Option(
        "--schema",
        metavar="FILE",
        help="Your own message types: a descriptor set (.binpb) or a .proto file.",
    ),
]
MetaGraphTags = Annotated[
    str | None,
    typer.Option("--tags", metavar="TAGS", help="Only the meta graph with exactly these tags, such as serve,gpu."),
]
ServiceUrl = Annotated[
    str | None,
    typer.Option(
        "--url", metavar="URL", help="URL of the service, such as http://HOST:PORT.", show_default="PROTOSLICE_URL"
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]
Out = Annotated[
    str | None,
    typer.Option(
        "--out", "-o", metavar="OUT", help="Output file, or - for standard output.", show_default="prints text"
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
MinChunk = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Fields of at least this size become chunks.", show_default="1MiB")
]
MaxChunk = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="Repeated fields are cut into chunks of at most this size.", show_default="1GiB"),
]
RulesFile = Annotated[
    str | None,
    typer.Option(
        "--rules",
        metavar="FILE",
        help="File of split rules, one per line, such as 'node: every 1000'; they take precedence over sizes.",
    ),
]
SplitterName = Annotated[
    str | None,
    typer.Option(
        "--splitter", metavar="NAME", help="Installed splitter to use; --rules take precedence over its rules."
    ),
]
StorageUri = Annotated[
    str | None,
    typer.Option(metavar="URI", help="Storage: a URI or a path.", show_default="a folder under your data folder"),
]
_FORMATS: Final = ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S%z"]
Since = Annotated[
    datetime | None, typer.Option(formats=_FORMATS, metavar="TIME", help="Only what is as new as this, or newer.")
]
Until = Annotated[datetime | None, typer.Option(formats=_FORMATS, metavar="TIME", help="Only what is older than this.")]
Limit = Annotated[int, typer.Option(metavar="N", help="Maximum number of lines; 0 for all.", min=0)]
