"""Views of a store: each is a function with a row that routing, access, OpenAPI and the fast path read."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from protoslice.errors import InvalidInput, NotFound
from protoslice.facts import RecordsSummary, TensorEntry, TensorStatistics
from protoslice.server.api.encoding import records_summary_text
from protoslice.server.api.view_parameters import (
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
)
from protoslice.server.auth.permissions import READ_SIGNED, Rule
from protoslice.server.http.query import number_of
from protoslice.serving import OpenStore, Representation
from protoslice.streams.selection import RecordChoice, RecordPart
from protoslice.tensors.listing import tags_of
from protoslice.tensors.safetensors_file import INDEX, WHOLE, may_be_shard
from protoslice.views import chunks, documents, models, records, tensors

PREFIX: Final = "/v1/stores/{ref}"

Select = Callable[[OpenStore, str, Any], Awaitable[Representation]]
Selected = TypeVar("Selected", bound=Select)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreView:
    """One view: its URL, media types and parameters, and the function that selects its bytes."""

    name: str
    """The path segment after the store."""
    rest: str | None = None
    """Starlette template of the remaining path; None when there is none."""
    summary: str
    select: Select
    """Its name is the operation in OpenAPI, its docstring the description."""
    select_sync: Callable[[OpenStore, str], Representation] | None = None
    """The same without waiting, for views that need no planning and no parameters."""
    media_types: tuple[str, ...]
    rule: Rule = READ_SIGNED
    """Access to it."""
    etag: Callable[[OpenStore, str, Any], str | None] | None = None
    """Entity tag of a view that is costly to make, known without making it; None where only the view tells."""
    experimental: bool = False
    """True for an operation that may change within `/v1`."""
    versioned: bool = False
    """True if a later program may give other bytes, under another entity tag, for the same store."""
    rendered: bool = False
    """True if messages are also given as JSON and text."""
    json: tuple[Any, ...] = ()
    """Classes of the objects that it gives as `application/json`, for OpenAPI."""
    parameters: type = NoQuery
    """Dataclass of the query parameters; any other parameter is refused."""
    query: Parameters[Any] = field(init=False)

    def __post_init__(self) -> None:
        """Read the parameters."""
        object.__setattr__(self, "query", Parameters(self.parameters))

    @property
    def operation(self) -> str:
        """The name of the operation in OpenAPI."""
        return self.select.__name__

    @property
    def description(self) -> str:
        """The description in OpenAPI."""
        return inspect.getdoc(self.select) or ""

    @property
    def row(self) -> str:
        """Method and path of the route."""
        return f"GET {self.path}"

    @property
    def path(self) -> str:
        """The route's template."""
        return f"{PREFIX}/{self.name}" + ("" if self.rest is None else f"/{{{self.rest}}}")


_MESSAGE: Final = "application/protobuf"
_BYTES: Final = "application/octet-stream"
_TEXT: Final = "text/plain"
_JSON: Final = ("application/protobuf+json", "application/json")
_RENDERED: Final = (_MESSAGE, _BYTES, *_JSON, _TEXT)

VIEWS: Final[list[StoreView]] = []
"""All views that give bytes."""


def view(name: str, **row: Any) -> Callable[[Selected], Selected]:
    """Make the decorated function a view; `row` has the other members of its `StoreView`."""

    def add(select: Selected) -> Selected:
        VIEWS.append(StoreView(name=name, select=select, **row))
        return select

    return add


@view("files", rest="path:path", summary="Get a file", select_sync=OpenStore.file, media_types=(_BYTES,))
async def get_file(store: OpenStore, rest: str, query: NoQuery) -> Representation:
    """Return the file as uploaded, with ranges, validators and digests. Use the path in the store's list of files."""
    return store.file(rest)


@view("archive.tar", summary="Get all files as a tar archive", versioned=True, media_types=("application/x-tar",))
async def get_archive(store: OpenStore, rest: str, query: NoQuery) -> Representation:
    """Return every file as uploaded, with ranges like any other view.

    For programs that load models from an archive URL, such as KServe.
    """
    return await models.archive(store)


@view(
    "metadata",
    summary="Get the ChunkMetadata of the store",
    media_types=(_MESSAGE, *_JSON, _TEXT),
    rendered=True,
    parameters=PlanQuery,
)
async def get_metadata(store: OpenStore, rest: str, query: PlanQuery) -> Representation:
    """Return a description of the chunks of the message, in TensorFlow's proto_splitter schema."""
    return await chunks.metadata(store, query.plan)


def _planned_chunk(store: OpenStore, rest: str) -> Representation:
    return chunks.own_chunks(store).one(number_of("chunk", rest))


@view(
    "chunks",
    rest="n",
    summary="Get a chunk",
    select_sync=_planned_chunk,
    media_types=_RENDERED,
    rendered=True,
    parameters=PlanQuery,
)
async def get_chunk(store: OpenStore, rest: str, query: PlanQuery) -> Representation:
    """Return the serialized message or the raw bytes. Messages can also be rendered as JSON or text."""
    return await chunks.chunk(store, number_of("chunk", rest), query.plan)


@view(
    "merge",
    summary="Get a merged message, or a part of it",
    media_types=_RENDERED,
    rendered=True,
    parameters=MergeQuery,
)
async def get_merged(store: OpenStore, rest: str, query: MergeQuery) -> Representation:
    """Return the serialized message at `path`; without `path` the whole proto, byte for byte as uploaded.

    For a bytes or string field, returns its content; for a scalar, its text. In a stream of records, start the path
    with a record, such as `records[1000]`; in the index of a tensor bundle, with `header` or `entries`.
    """
    return await documents.merge(store, query.path, query.fields, query.omit_larger_than, query.stream, omit=query.omit)


@view(
    "cpb",
    summary="Get the store as a chunked file",
    versioned=True,
    media_types=("application/x-riegeli",),
    parameters=PlanQuery,
)
async def get_chunked_proto(store: OpenStore, rest: str, query: PlanQuery) -> Representation:
    """Return a riegeli file for TensorFlow's Merger; for an uploaded chunked file, the file itself."""
    return await chunks.cpb(store, query.plan)


@view(
    "records",
    rest="n",
    summary="Get a record",
    versioned=True,
    media_types=(_MESSAGE, *_JSON, _TEXT),
    rendered=True,
    parameters=StreamQuery,
)
async def get_record(store: OpenStore, rest: str, query: StreamQuery) -> Representation:
    """Return a record by its number, from 0. Can be rendered as JSON or text if the type is known."""
    return await records.one(store, number_of("record", rest), query.stream)


@view(
    "records",
    summary="Get several records, or a summary of the stream",
    versioned=True,
    media_types=("application/x-protobuf-delimited", _BYTES, "application/jsonl", "application/json", _TEXT),
    json=(RecordsSummary,),
    rendered=True,
    parameters=RecordsQuery,
)
async def get_records(store: OpenStore, rest: str, query: RecordsQuery) -> Representation:
    """Return a range of records, a list of them, or all: framed, or as JSON lines or text if the type is known.

    With `summary`, returns the framing, the type, the number of records, and any damage that cuts the stream short.
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
    "tensors",
    rest="name:path",
    summary="Get a tensor, or a slice of it",
    versioned=True,
    media_types=(_BYTES, "application/json"),
    json=(TensorStatistics, TensorEntry),
    parameters=TensorQuery,
)
async def get_tensor(store: OpenStore, rest: str, query: TensorQuery) -> Representation:
    """Return the elements row-major and little-endian, as raw bytes or as a `.npy` file.

    Quantized tensors of GGUF files are returned as their blocks, or with `dequantize` as F32.

    Other formats: `packed` for types narrower than a byte, packed as in the model; `json` for metadata, bundle
    entries and strings; `lod`, or `/lod` after the name, for Paddle's levels of detail; `stats`, or `/stats` after the
    name, for minimum, maximum, mean, standard deviation, zeros and a histogram. `X-Tensor-Dtype` and `X-Tensor-Shape`
    (`3,4`; empty for a scalar) describe the response.
    """
    return await tensors.one(
        store,
        rest,
        query.slice,
        query.format,
        query.sample,
        dequantize=query.dequantize,
        tags=tags_of(query.tags),
    )


def _file_tag(store: OpenStore, rest: str, query: TensorsQuery) -> str | None:
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
    parameters=TensorsQuery,
)
async def get_safetensors(store: OpenStore, rest: str, query: TensorsQuery) -> Representation:
    """Return tensors as a safetensors file.

    Tensors of a type that safetensors lacks are widened, or left out and named in the metadata and in
    `Protoslice-Omitted`; with `strict`, leaving one out is an error.
    """
    tags = tags_of(query.tags)
    return await tensors.safetensors(store, query.name, strict=query.strict, layout=query.layout, tags=tags)


@view(
    "safetensors",
    experimental=True,
    rest="shard",
    summary="Get tensors as one of several safetensors files",
    versioned=True,
    etag=_shard_tag,
    media_types=(_BYTES,),
    parameters=ShardsQuery,
)
async def get_safetensors_shard(store: OpenStore, rest: str, query: ShardsQuery) -> Representation:
    """Return `model.safetensors` if its tensors fit into `shards`, else one of several files or their index.

    `model.safetensors.index.json` names the files, such as `model-00001-of-00003.safetensors`.
    """
    if query.shards is not None and query.shards < 1:
        raise InvalidInput("Invalid shards: use a size of at least one byte")
    if not may_be_shard(rest):
        raise NotFound(f"No file {rest[:100]!r} of these tensors: use {WHOLE}, or {INDEX}, which names the others")
    made = await tensors.shards(
        store,
        query.name,
        shard_bytes=query.shards,
        strict=query.strict,
        layout=query.layout,
        tags=tags_of(query.tags),
    )
    if rest not in made:
        raise NotFound(f"No file {rest[:100]!r} of these tensors: they are in {', '.join([*made][:5]) or 'none'}")
    return made[rest]


@view(
    "onnx",
    experimental=True,
    rest="file",
    summary="Get an ONNX model as files that runtimes load",
    versioned=True,
    etag=_onnx_tag,
    media_types=(_BYTES,),
    parameters=OnnxQuery,
)
async def get_onnx_file(store: OpenStore, rest: str, query: OnnxQuery) -> Representation:
    """Return `model.onnx`, with weights of 1 KiB and more in `weights.bin`; or `single.onnx`, with all of them inside.

    Runtimes load models of any size from the first two, next to each other in a folder; they load `single.onnx` up to
    2 GiB. With `inputs` and `outputs`, the model is the part of the graph between these values.
    """
    return await models.onnx_file(store, rest, query.inputs, query.outputs, query.align)
