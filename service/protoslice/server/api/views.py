"""The views of a store. Each view is a function that selects bytes, and a route with access rule and OpenAPI facts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final, TypeVar, get_type_hints

from fastapi import Depends, Path
from pydantic import WithJsonSchema
from starlette.responses import Response

from protoslice.errors import InvalidInput, NotFound
from protoslice.facts import RecordsSummary, TensorEntry, TensorStatistics
from protoslice.server.api.encoding import records_summary_text
from protoslice.server.api.parameters import (
    MergeQuery,
    NoQuery,
    OnnxQuery,
    Parameters,
    PlanQuery,
    RecordsQuery,
    ShardsQuery,
    StreamQuery,
    TensorQuery,
    TensorsQuery,
    Viewed,
)
from protoslice.server.auth.permissions import READ_SIGNED, Rule
from protoslice.server.http.query import QueryNames, number_of
from protoslice.server.routing import Route
from protoslice.serving import OpenStore, Representation
from protoslice.streams.selection import RecordChoice, RecordPart
from protoslice.tensors.listing import tags_of
from protoslice.tensors.safetensors_file import INDEX, WHOLE, may_be_shard
from protoslice.views import chunks, documents, models, records, tensors

PREFIX: Final = "/v1/stores/{ref}"

Select = Callable[..., Awaitable[Representation]]
Selected = TypeVar("Selected", bound=Select)


class View(Route):
    """The route of a view, whose function selects the bytes.

    FastAPI describes the function in OpenAPI. `ViewRoutes` calls it without dependency injection.
    """

    def __init__(  # noqa: PLR0913 - the columns of a row
        self,
        path: str,
        select: Select,
        *,
        summary: str,
        media_types: tuple[str, ...],
        rule: Rule = READ_SIGNED,
        select_sync: Callable[..., Representation] | None = None,
        etag: Callable[..., str | None] | None = None,
        experimental: bool = False,
        versioned: bool = False,
        rendered: bool = False,
        json: tuple[Any, ...] = (),
    ) -> None:
        """Declare a view at `path` below the store. The path is a name, which one parameter may follow.

        `select` takes the store. It may have two more parameters: the text of the path's parameter, and `query`, a
        dataclass of query parameters. `select_sync` does the same without waiting, for views that need neither planning
        nor a query.

        `etag` takes the arguments of `select` and returns the entity tag of a view that is costly to make. `etag`
        returns None if only the finished view determines the tag. `versioned` says that a later release may change the
        bytes, and then also the entity tag. `rendered` says that messages are also returned as JSON and text. `json`
        lists the classes of objects that are returned as `application/json`.
        """
        self.segment, _, template = path.partition("/")
        self.rest: Final = template.strip("{}").partition(":")[0] or None
        """The name of the path's parameter; None if the path has no parameter."""
        self.select, self.select_sync, self.etag = select, select_sync, etag
        self.media_types, self.versioned, self.rendered, self.json = media_types, versioned, rendered, json
        self.parameters: Final = Parameters(get_type_hints(select).get("query", NoQuery))
        super().__init__(
            f"{PREFIX}/{path}",
            select,
            rule=rule,
            methods=["GET"],
            fails=(409, 413, 416),
            cached=True,
            tags=["views"],
            summary=summary,
            operation_id=select.__name__,
            response_class=Response,
            openapi_extra={"x-stability": "experimental"} if experimental else None,
        )

    @property
    def query(self) -> QueryNames:
        """The names of the query parameters."""
        return self.parameters.names

    def arguments(self, store: OpenStore, rest: str, query: object) -> tuple[Any, ...]:
        """Return the arguments of `select` and `etag`."""
        return (store, *((rest,) if self.rest else ()), *((query,) if self.parameters.names.known else ()))


FilePath = Annotated[str, Path(description="Path of the file; may contain slashes.", examples=["model.onnx"])]
TensorName = Annotated[
    str, Path(description="Name or address of the tensor; may contain slashes.", examples=["conv1.weight"])
]
Number = Annotated[
    str,
    WithJsonSchema({"type": "integer", "minimum": 0, "examples": [0]}),
    Path(description="Index, starting at 0.", examples=[0]),
]
Shard = Annotated[str, Path(description="Name of the file.", examples=["model-00001-of-00003.safetensors"])]
OnnxFile = Annotated[
    str,
    WithJsonSchema(
        {"type": "string", "enum": ["model.onnx", "weights.bin", "single.onnx"], "examples": ["model.onnx"]}
    ),
    Path(description="File to compose.", examples=["model.onnx"]),
]

_MESSAGE: Final = "application/protobuf"
_BYTES: Final = "application/octet-stream"
_TEXT: Final = "text/plain"
_JSON: Final = ("application/protobuf+json", "application/json")
_RENDERED: Final = (_MESSAGE, _BYTES, *_JSON, _TEXT)

VIEWS: Final[list[View]] = []
"""All views that return bytes."""


def view(path: str, **options: Any) -> Callable[[Selected], Selected]:
    """Make the decorated function a view. `options` are the options of `View`."""

    def add(select: Selected) -> Selected:
        VIEWS.append(View(path, select, **options))
        return select

    return add


@view("files/{path:path}", summary="Get a file", select_sync=OpenStore.file, media_types=(_BYTES,))
async def get_file(store: Viewed, path: FilePath) -> Representation:
    """Return the file as uploaded, with ranges, validators and digests.

    `path` is a path from the store's list of files.
    """
    return store.file(path)


@view("archive.tar", summary="Get all files as a tar archive", versioned=True, media_types=("application/x-tar",))
async def get_archive(store: Viewed) -> Representation:
    """Return all files as uploaded, in one tar archive that supports ranges.

    Programs such as KServe load models from the URL of such an archive.
    """
    return await models.archive(store)


@view(
    "metadata",
    summary="Get the ChunkMetadata of the store",
    media_types=(_MESSAGE, *_JSON, _TEXT),
    rendered=True,
)
async def get_metadata(store: Viewed, query: Annotated[PlanQuery, Depends()]) -> Representation:
    """Return a description of the message's chunks in TensorFlow's proto_splitter schema."""
    return await chunks.metadata(store, query.plan)


def _planned_chunk(store: OpenStore, rest: str) -> Representation:
    return chunks.own_chunks(store).one(number_of("chunk", rest))


@view(
    "chunks/{n}",
    summary="Get a chunk",
    select_sync=_planned_chunk,
    media_types=_RENDERED,
    rendered=True,
)
async def get_chunk(store: Viewed, n: Number, query: Annotated[PlanQuery, Depends()]) -> Representation:
    """Return the serialized message or the raw bytes. Messages can also be rendered as JSON or text."""
    return await chunks.chunk(store, number_of("chunk", n), query.plan)


@view(
    "merge",
    summary="Get a merged message, or a part of it",
    media_types=_RENDERED,
    rendered=True,
)
async def get_merged(store: Viewed, query: Annotated[MergeQuery, Depends()]) -> Representation:
    """Return the serialized message at `path`. Without `path`, return the whole proto, byte for byte as uploaded.

    For a bytes or string field, return its content. For a scalar, return its text. In a stream of records, the path
    starts with a record, such as `records[1000]`. In the index of a tensor bundle, the path starts with `header` or
    `entries`.
    """
    return await documents.merge(store, query.path, query.fields, query.omit_larger_than, query.stream, omit=query.omit)


@view(
    "cpb",
    summary="Get the store as a chunked file",
    versioned=True,
    media_types=("application/x-riegeli",),
)
async def get_chunked_proto(store: Viewed, query: Annotated[PlanQuery, Depends()]) -> Representation:
    """Return a riegeli file for TensorFlow's Merger. If the store is an uploaded chunked file, return that file."""
    return await chunks.cpb(store, query.plan)


@view(
    "records/{n}",
    summary="Get a record",
    versioned=True,
    media_types=(_MESSAGE, *_JSON, _TEXT),
    rendered=True,
)
async def get_record(store: Viewed, n: Number, query: Annotated[StreamQuery, Depends()]) -> Representation:
    """Return a record by its index, starting at 0. The record can be rendered as JSON or text if its type is known."""
    return await records.one(store, number_of("record", n), query.stream)


@view(
    "records",
    summary="Get several records, or a summary of the stream",
    versioned=True,
    media_types=("application/x-protobuf-delimited", _BYTES, "application/jsonl", "application/json", _TEXT),
    json=(RecordsSummary,),
    rendered=True,
)
async def get_records(store: Viewed, query: Annotated[RecordsQuery, Depends()]) -> Representation:
    """Return all records, a range of records, or a list of records.

    The records are returned with their framing. If their type is known, they can also be JSON lines or text. With
    `summary`, return the framing, the type, the number of records, and any damage that cuts the stream short.
    """
    if query.summary is not None:
        return await records.summary(store, query.stream, records_summary_text)
    if query.slice is not None and query.range is not None:
        raise InvalidInput("Give either `slice` or `range`, its older name")
    choice = RecordChoice(
        range=query.slice or query.range,
        numbers=tuple(number_of("record", text) for given in query.n for text in given.split(",")),
        key=query.key,
        values=query.value,
        sample=query.sample,
        seed=query.seed,
    )
    part = RecordPart(query.path, query.fields, query.omit_larger_than)
    return await records.several(store, choice, query.format, query.stream, part)


@view(
    "tensors/{name:path}",
    summary="Get a tensor, or a slice of it",
    versioned=True,
    media_types=(_BYTES, "application/json"),
    json=(TensorStatistics, TensorEntry),
)
async def get_tensor(store: Viewed, name: TensorName, query: Annotated[TensorQuery, Depends()]) -> Representation:
    """Return the elements in row-major, little-endian order, as raw bytes or as a `.npy` file.

    Quantized tensors of GGUF files are returned as blocks, or with `dequantize` as F32.

    The format `packed` returns elements that are narrower than a byte as the model packs them. The format `json`
    returns metadata, bundle entries and strings. The format `lod`, or `/lod` after the name, returns Paddle's levels of
    detail. The format `stats`, or `/stats` after the name, returns minimum, maximum, mean, standard deviation, zeros
    and a histogram. `X-Tensor-Dtype` and `X-Tensor-Shape` (`3,4`; empty for a scalar) describe the response.
    """
    return await tensors.one(
        store,
        name,
        query.slice,
        query.format,
        query.sample,
        dequantize=query.dequantize,
        tags=tags_of(query.tags),
    )


def _file_tag(store: OpenStore, query: TensorsQuery) -> str | None:
    return None if query.strict else tensors.file_tag(store, query.name, query.layout, tags_of(query.tags))


def _shard_tag(store: OpenStore, rest: str, query: ShardsQuery) -> str | None:
    if query.strict:
        return None
    return tensors.shard_tag(store, rest, query.name, query.shards, query.layout, tags_of(query.tags))


def _onnx_tag(store: OpenStore, rest: str, query: OnnxQuery) -> str | None:
    return models.onnx_tag(store, rest, query.inputs, query.outputs, query.align)


@view(
    "safetensors",
    summary="Get tensors as one safetensors file",
    versioned=True,
    etag=_file_tag,
    media_types=(_BYTES,),
)
async def get_safetensors(store: Viewed, query: Annotated[TensorsQuery, Depends()]) -> Representation:
    """Return tensors as a safetensors file.

    If safetensors lacks a tensor's type, the tensor is widened or left out. `Protoslice-Omitted` and the metadata name
    tensors that are left out. With `strict`, such a tensor is an error.
    """
    tags = tags_of(query.tags)
    return await tensors.safetensors(store, query.name, strict=query.strict, layout=query.layout, tags=tags)


@view(
    "safetensors/{shard}",
    experimental=True,
    summary="Get tensors as one of several safetensors files",
    versioned=True,
    etag=_shard_tag,
    media_types=(_BYTES,),
)
async def get_safetensors_shard(
    store: Viewed, shard: Shard, query: Annotated[ShardsQuery, Depends()]
) -> Representation:
    """Return one of the safetensors files that hold the tensors, or the index of these files.

    If one file of at most `shards` bytes can hold all tensors, the only file is `model.safetensors`. Otherwise
    `model.safetensors.index.json` names the files, such as `model-00001-of-00003.safetensors`.
    """
    if query.shards is not None and query.shards < 1:
        raise InvalidInput("Invalid shards: use a size of at least one byte")
    if not may_be_shard(shard):
        raise NotFound(
            f"These tensors have no file {shard[:100]!r}: use {WHOLE}, or {INDEX}, which lists the other files"
        )
    made = await tensors.shards(
        store,
        query.name,
        shard_bytes=query.shards,
        strict=query.strict,
        layout=query.layout,
        tags=tags_of(query.tags),
    )
    if shard not in made:
        raise NotFound(f"These tensors have no file {shard[:100]!r}: they are in {', '.join([*made][:5]) or 'none'}")
    return made[shard]


@view(
    "onnx/{file}",
    experimental=True,
    summary="Get an ONNX model as files that runtimes load",
    versioned=True,
    etag=_onnx_tag,
    media_types=(_BYTES,),
)
async def get_onnx_file(store: Viewed, file: OnnxFile, query: Annotated[OnnxQuery, Depends()]) -> Representation:
    """Return `model.onnx`, its large weights as `weights.bin`, or `single.onnx` with all weights inside.

    `weights.bin` has the weights of 1 KiB and more. Runtimes load models of any size from `model.onnx` and
    `weights.bin` in one folder. Runtimes load `single.onnx` only up to 2 GiB. With `inputs` and `outputs`, the model is
    the part of the graph between these values.
    """
    return await models.onnx_file(store, file, query.inputs, query.outputs, query.align)
