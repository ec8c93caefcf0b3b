"""Views of a store as data: names, URLs, parameters, media types. Routing and OpenAPI read this table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from protoslice.facts import RecordsSummary, TensorEntry, TensorStatistics
from protoslice.formats.selection import tags_of
from protoslice.server.api.encoding import records_summary_text
from protoslice.server.api.view_parameters import DOCUMENT, PLAN, STREAM, STRICT, TAGS, query_parameter
from protoslice.server.http.parameters import Query, QueryNames, number_of
from protoslice.stores import OpenStore, RecordsRequest, Representation
from protoslice.streams.choice import RecordChoice, RecordPart
from protoslice.streams.framing import WRITTEN

PREFIX: Final = "/v1/stores/{ref}"

Select = Callable[[OpenStore, str, Query], Awaitable[Representation]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreView:
    """One view: its URL, media types and parameters, and the function that selects its bytes."""

    name: str
    """The path segment after the store."""
    rest: str | None = None
    """Starlette template of the remaining path; None when there is none."""
    operation: str
    summary: str
    description: str
    select: Select
    select_sync: Callable[[OpenStore, str], Representation] | None = None
    """The same without waiting, for views that need no planning and no parameters."""
    media_types: tuple[str, ...]
    versioned: bool = False
    """True if a later program may give other bytes, under another entity tag, for the same store."""
    rendered: bool = False
    """True if messages are also given as JSON and text."""
    json: tuple[Any, ...] = ()
    """Classes of the objects that it gives as `application/json`, for OpenAPI."""
    parameters: tuple[dict[str, Any], ...] = ()
    query: QueryNames = field(init=False)
    """Names of the parameters; any other is refused."""

    def __post_init__(self) -> None:
        """Derive the names from the parameters."""
        object.__setattr__(self, "query", QueryNames.of(self.parameters))

    @property
    def row(self) -> str:
        """The key of the route in the table of rules."""
        return f"GET {self.path}"

    @property
    def path(self) -> str:
        """The route's template."""
        return f"{PREFIX}/{self.name}" + ("" if self.rest is None else f"/{{{self.rest}}}")


def _planned_chunk(store: OpenStore, rest: str) -> Representation:
    return store.planned_chunk(number_of("chunk", rest))


async def _file(store: OpenStore, rest: str, query: Query) -> Representation:
    return store.file(rest)


async def _archive(store: OpenStore, rest: str, query: Query) -> Representation:
    return await store.archive()


async def _metadata(store: OpenStore, rest: str, query: Query) -> Representation:
    return await store.metadata(query.one("plan"))


async def _chunk(store: OpenStore, rest: str, query: Query) -> Representation:
    return await store.chunk(number_of("chunk", rest), query.one("plan"))


async def _merge(store: OpenStore, rest: str, query: Query) -> Representation:
    return await store.merge(
        query.one("path") or "", query.many("fields"), query.size("omit_larger_than"), _stream_of(query)
    )


async def _cpb(store: OpenStore, rest: str, query: Query) -> Representation:
    return await store.cpb(query.one("plan"))


async def _tensor(store: OpenStore, rest: str, query: Query) -> Representation:
    tensors = store.tensors_with(tags_of(query.one("tags")))
    return await tensors.one(rest, query.one("slice"), query.one("format") or "raw", query.size("sample"))


async def _safetensors(store: OpenStore, rest: str, query: Query) -> Representation:
    return await store.tensors_with(tags_of(query.one("tags"))).safetensors(
        query.many("name"), strict=query.flag("strict")
    )


async def _record(store: OpenStore, rest: str, query: Query) -> Representation:
    return await store.records.one(number_of("record", rest), _stream_of(query))


async def _records(store: OpenStore, rest: str, query: Query) -> Representation:
    if query.one("summary") is not None:
        return await store.records.summary(_stream_of(query), records_summary_text)
    numbers = [number_of("record", text) for given in query.many("n") for text in given.split(",")]
    choice = RecordChoice(
        range=query.one("range"),
        numbers=tuple(numbers),
        key=query.one("key"),
        values=tuple(query.many("value")),
        sample=None if query.one("sample") is None else number_of("sample", query.one("sample") or ""),
        seed=number_of("seed", query.one("seed") or "0"),
    )
    part = RecordPart(query.one("path") or "", tuple(query.many("fields")), query.size("omit_larger_than"))
    return await store.records.several(choice, query.one("format") or "delimited", _stream_of(query), part)


def _stream_of(query: Query) -> RecordsRequest:
    return RecordsRequest(query.one("file"), query.one("framing"), query.one("type"), query.client)


_MESSAGE: Final = "application/protobuf"
_BYTES: Final = "application/octet-stream"
_TEXT: Final = "text/plain"
_JSON: Final = ("application/protobuf+json", "application/json")

VIEWS: Final = (
    StoreView(
        name="files",
        rest="path:path",
        operation="get_file",
        summary="Get a file",
        description="Returns the file as uploaded, with ranges, validators and digests. Use the path in the "
        "store's list of files.",
        select=_file,
        select_sync=OpenStore.file,
        media_types=(_BYTES,),
    ),
    StoreView(
        name="archive.tar",
        operation="get_archive",
        summary="Get all files as a tar archive",
        description=(
            "Contains every file as uploaded, and supports ranges like any other view. For programs that "
            "load models from an archive URL, such as KServe."
        ),
        select=_archive,
        versioned=True,
        media_types=("application/x-tar",),
    ),
    StoreView(
        name="metadata",
        operation="get_metadata",
        summary="Get the ChunkMetadata of the store",
        description="Describes the chunks of the message, in TensorFlow's proto_splitter schema.",
        select=_metadata,
        media_types=(_MESSAGE, *_JSON, _TEXT),
        rendered=True,
        parameters=PLAN,
    ),
    StoreView(
        name="chunks",
        rest="n",
        operation="get_chunk",
        summary="Get a chunk",
        description="Returns the serialized message or the raw bytes. Messages can also be rendered as JSON or text.",
        select=_chunk,
        select_sync=_planned_chunk,
        media_types=(_MESSAGE, _BYTES, *_JSON, _TEXT),
        rendered=True,
        parameters=PLAN,
    ),
    StoreView(
        name="merge",
        operation="get_merged",
        summary="Get a merged message, or a part of it",
        description=(
            "Returns the serialized message at `path`; without `path` the whole proto, byte for byte as "
            "uploaded. For a bytes or string field, returns its content; for a scalar, its text. In a "
            "stream of records, start the path with a record, such as `records[1000]`; in the index of a "
            "tensor bundle, with `header` or `entries`."
        ),
        select=_merge,
        media_types=(_MESSAGE, _BYTES, *_JSON, _TEXT),
        rendered=True,
        parameters=(
            query_parameter(
                "path",
                'Field path: `graph.node[3].attr["value"].tensor`, `7.1[3]`, `node[name="conv1"]` or '
                '`meta_graphs[meta_info_def.tags={"serve"}]`.',
                {"type": "string"},
                "graph",
            ),
            query_parameter(
                "fields",
                "Keep only these paths below `path`; repeatable. `[*]` and `[2:10]` select elements.",
                {"type": "array", "items": {"type": "string"}},
                ["node[*].name"],
            ),
            query_parameter(
                "omit_larger_than",
                "Leave out every bytes, string and packed field larger than this size.",
                {"type": "string"},
                "64KiB",
            ),
            *DOCUMENT,
        ),
    ),
    StoreView(
        name="cpb",
        operation="get_chunked_proto",
        summary="Get the store as a chunked file",
        description="Returns a riegeli file for TensorFlow's Merger; for an uploaded chunked file, the file itself.",
        select=_cpb,
        versioned=True,
        media_types=("application/x-riegeli",),
        parameters=PLAN,
    ),
    StoreView(
        name="records",
        rest="n",
        operation="get_record",
        summary="Get a record",
        description="Returns a record by its number, from 0. Can be rendered as JSON or text if the type is known.",
        select=_record,
        versioned=True,
        media_types=(_MESSAGE, *_JSON, _TEXT),
        rendered=True,
        parameters=STREAM,
    ),
    StoreView(
        name="records",
        operation="get_records",
        summary="Get several records, or a summary of the stream",
        description=(
            "Returns a range of records, a list of them, or all: framed, or as JSON lines or text if the "
            "type is known. With `summary`, returns the framing, the type, the number of records, and "
            "any damage that cuts the stream short."
        ),
        select=_records,
        versioned=True,
        media_types=("application/x-protobuf-delimited", _BYTES, "application/jsonl", "application/json", _TEXT),
        json=(RecordsSummary,),
        rendered=True,
        parameters=(
            query_parameter("range", "Range of record numbers: `10:20`, `10:`, `:20`.", {"type": "string"}, "10:20"),
            query_parameter(
                "n",
                "Record numbers, separated by commas; repeatable. The records are returned in this order.",
                {"type": "array", "items": {"type": "string"}},
                ["7", "5,1000"],
            ),
            query_parameter(
                "key",
                "Path of the field to look up `value` in; the first lookup reads the whole stream.",
                {"type": "string"},
                'features.feature["id"].bytes_list.value[0]',
            ),
            query_parameter(
                "value",
                "Value of the field at `key`; repeatable.",
                {"type": "array", "items": {"type": "string"}},
                ["cat-7"],
            ),
            query_parameter(
                "sample",
                "Number of records to draw at random; they are returned in the order of the stream.",
                {"type": "integer", "maximum": 10000},
                100,
            ),
            query_parameter(
                "seed",
                "Seed of the sample: the same seed draws the same records.",
                {"type": "integer", "default": 0},
                7,
            ),
            query_parameter(
                "path",
                "Return only the part of each record at this path; empty if a record lacks it.",
                {"type": "string"},
                'features.feature["label"]',
            ),
            query_parameter(
                "fields",
                "Keep only these paths of each record, below `path`; repeatable.",
                {"type": "array", "items": {"type": "string"}},
                ['features.feature["label"]'],
            ),
            query_parameter(
                "omit_larger_than",
                "Leave out every bytes, string and packed field larger than this size.",
                {"type": "string"},
                "64KiB",
            ),
            query_parameter(
                "format",
                "Framing of the answer.",
                {"type": "string", "enum": [*WRITTEN], "default": "delimited"},
                "tfrecord",
            ),
            query_parameter(
                "summary", "Return a summary of the stream in JSON instead of records.", {"type": "boolean"}, True
            ),
            *STREAM,
        ),
    ),
    StoreView(
        name="tensors",
        rest="name:path",
        operation="get_tensor",
        summary="Get a tensor, or a slice of it",
        description=(
            "Returns the elements row-major and little-endian, as raw bytes or as a `.npy` file. Other formats: "
            "`packed` for types narrower than a byte, packed as in the model; `json` for metadata, bundle entries and "
            "strings; "
            "`lod`, or `/lod` after the name, for Paddle's levels of detail; `stats`, or `/stats` after the name, for "
            "minimum, maximum, mean, standard deviation, zeros and a histogram. `X-Tensor-Dtype` and `X-Tensor-Shape` "
            "(`3,4`; empty for a scalar) describe the response."
        ),
        select=_tensor,
        versioned=True,
        media_types=(_BYTES, "application/json"),
        json=(TensorStatistics, TensorEntry),
        parameters=(
            query_parameter(
                "slice",
                "Slice as in NumPy, with positive steps: `0:128,:,-3,::2`.",
                {"type": "string"},
                "0:128,:",
            ),
            query_parameter(
                "format",
                "Format: raw elements, a `.npy` file, packed bits, metadata in JSON, levels of detail, or statistics.",
                {"type": "string", "enum": ["raw", "npy", "packed", "json", "lod", "stats"], "default": "raw"},
                "npy",
            ),
            query_parameter(
                "sample",
                "Maximum number of elements to examine for statistics, in evenly spread runs; 0 for all. "
                "Default: 16 777 216.",
                {"type": "integer", "minimum": 0},
                1000000,
            ),
            TAGS,
        ),
    ),
    StoreView(
        name="safetensors",
        operation="get_safetensors",
        summary="Get tensors as one safetensors file",
        description=(
            "Tensors of a type that safetensors lacks are widened, or left out and named in the metadata "
            "and in `Protoslice-Omitted`; with `strict`, leaving one out is an error."
        ),
        select=_safetensors,
        versioned=True,
        media_types=(_BYTES,),
        parameters=(
            query_parameter(
                "name",
                "Only tensors with this name or address; repeatable. `*` matches anything (in up to 64 of the names).",
                {"type": "array", "items": {"type": "string"}},
                ["encoder.*"],
            ),
            STRICT,
            TAGS,
        ),
    ),
)
"""All views that give bytes."""
