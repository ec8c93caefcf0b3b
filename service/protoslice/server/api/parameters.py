"""Query parameters of views, as dataclasses. Annotations say how to read a parameter, and describe it to FastAPI."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from operator import attrgetter
from types import UnionType
from typing import Annotated, Any, Final, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

from fastapi import Depends
from fastapi import Query as Parameter
from fastapi.params import Query as Described
from pydantic import WithJsonSchema

from protoslice.formats.onnx_external import ALIGNMENT
from protoslice.server.auth.spaces import Ref
from protoslice.server.http.query import Query, QueryNames, number_of
from protoslice.server.services import Services
from protoslice.serving import OpenStore
from protoslice.streams.framing import FRAMINGS, WRITTEN
from protoslice.tensors.reading import FLOATS
from protoslice.tensors.safetensors_file import FileLayout
from protoslice.views.records import RecordsRequest

T = TypeVar("T")

SIZE: Final = WithJsonSchema({"type": "string", "examples": ["1MiB"]})
"""The mark in `Annotated` of a size with an optional unit, such as `1MiB`."""
WHOLE: Final = WithJsonSchema({"type": "integer", "minimum": 0, "examples": [1000000]})
"""The mark in `Annotated` of a size that is a plain number."""
CLIENT: Final = Parameter(include_in_schema=False)
"""The mark in `Annotated` of a member that is no query parameter.

This member holds the client's key for limits per client.
"""


async def _viewed(services: Services, ref: Ref) -> OpenStore:
    return await services.stores.view(ref)


Viewed = Annotated[OpenStore, Depends(_viewed)]
"""The store that the path names, opened for reading."""


class Parameters(Generic[T]):
    """A reader of the parameters in a dataclass, which declares each as `Annotated[…, Parameter(description=…)]`."""

    def __init__(self, kind: type[T]) -> None:
        hints = get_type_hints(kind, include_extras=True)
        self._kind, self._none = kind, kind()
        self._read: dict[str, Callable[[Query], Any]] = {}
        repeatable, integers = set[str](), set[str]()
        for field in fields(kind):  # type: ignore[arg-type]  # a dataclass
            base, marks = _split(hints[field.name])
            if CLIENT in marks:
                self._read[field.name] = attrgetter("client")
                continue
            self._read[field.name] = _reader(field.name, "size" if SIZE in marks else base, field.default)
            described = next(mark for mark in marks if isinstance(mark, Described))
            if not described.examples or not described.description:
                raise RuntimeError(f"describe the parameter {field.name}, and give an example")
            repeatable |= {field.name} if base is tuple else set()
            integers |= {field.name} if base is int and (WHOLE in marks or SIZE not in marks) else set()
        names = {name for name, read in self._read.items() if not isinstance(read, attrgetter)}
        self.names: Final = QueryNames(names, repeatable, integers)

    def read(self, query_string: bytes, client: str = "") -> T:
        """Return the parameters of a request. Raise `InvalidInput` for unknown, repeated and invalid parameters."""
        if not query_string:
            return self._none
        query = self.names.read(query_string, client)
        return self._kind(**{name: read(query) for name, read in self._read.items()})


def _split(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return a parameter's type, without None and type arguments, and the parameter's annotations."""
    base, *marks = get_args(hint)
    if get_origin(base) in {Union, UnionType}:
        base = get_args(base)[0]
    return get_origin(base) or base, tuple(marks)


def _reader(name: str, kind: Any, default: Any) -> Callable[[Query], Any]:
    if kind == "size":
        return lambda query: query.size(name)
    if kind is tuple:
        return lambda query: query.many(name)
    if kind is bool:
        return lambda query: query.flag(name)
    if kind is int:
        return partial(_number, name, default)
    return (lambda query: query.one(name)) if default is None else (lambda query: query.one(name) or default)


def _number(name: str, default: int | None, query: Query) -> int | None:
    text = query.one(name)
    return default if text is None else number_of(name, text)


Plan = Annotated[
    str | None,
    Parameter(
        description="`policy` splits a chunked file by the chunk sizes of the store; by default it keeps its own "
        "chunks. Other models are always split by these sizes.",
        examples=["policy"],
        json_schema_extra={"enum": ["policy"]},
    ),
]
Strict = Annotated[
    bool,
    Parameter(
        description="Respond with 422 and the names of the tensors that would be left out. By default "
        "`Protoslice-Omitted` names them.",
        examples=[True],
    ),
]
Tags = Annotated[
    str | None,
    Parameter(
        description="Only the meta graph of a SavedModel with exactly these tags; all meta graphs have the variables.",
        examples=["serve,gpu"],
    ),
]
OtherFile = Annotated[
    str | None,
    Parameter(
        description="File to read instead of the root: a stream of records, or the index of a tensor bundle.",
        examples=["variables/variables.index"],
    ),
]
FieldPath = Annotated[
    str,
    Parameter(
        description='Field path: `graph.node[3].attr["value"].tensor`, `7.1[3]`, `node[name="conv1"]` or '
        '`meta_graphs[meta_info_def.tags={"serve"}]`.',
        examples=["graph"],
    ),
]
OmitLarger = Annotated[
    int | None,
    SIZE,
    Parameter(
        description="Leave out every field that is larger than this size and has the type `bytes`, `string` or packed.",
        examples=["64KiB"],
    ),
]


@dataclass(frozen=True, slots=True)
class NoQuery:
    """The query of a view without parameters."""


@dataclass(frozen=True, slots=True)
class PlanQuery:
    """The query that selects the plan by which a message is split into chunks."""

    plan: Plan = None


@dataclass(frozen=True, slots=True)
class StreamQuery:
    """The query that selects a stream of records, and says how to read it."""

    file: Annotated[
        str | None,
        Parameter(
            description="Path of the stream, or the name of its shards (`train@8`); needed if there are several.",
            examples=["train.tfrecord"],
        ),
    ] = None
    framing: Annotated[
        str | None,
        Parameter(
            description="Framing of the stream, if it cannot be detected.",
            examples=["delimited"],
            json_schema_extra={"enum": list(FRAMINGS)},
        ),
    ] = None
    type: Annotated[
        str | None,
        Parameter(
            description="Message type of the records, if it is not detected: a bundled type, or one of an uploaded "
            "schema.",
            examples=["tensorflow.Example"],
        ),
    ] = None
    client: Annotated[str, CLIENT] = ""

    @property
    def stream(self) -> RecordsRequest:
        """The stream that the query selects."""
        return RecordsRequest(self.file, self.framing, self.type, self.client)


@dataclass(frozen=True, slots=True)
class MergeQuery(StreamQuery):
    """The query that selects a part of a message in any file."""

    file: OtherFile = None
    path: FieldPath = ""
    fields: Annotated[
        tuple[str, ...],
        Parameter(
            description="Keep only these paths below `path`; repeatable. `[*]` and `[2:10]` select elements.",
            examples=[["node[*].name"]],
        ),
    ] = ()
    omit: Annotated[
        tuple[str, ...],
        Parameter(
            description="Leave out these paths below `path`; repeatable. `[*]` and `[2:10]` select elements.",
            examples=[["initializer[*].raw_data"]],
        ),
    ] = ()
    omit_larger_than: OmitLarger = None


@dataclass(frozen=True, slots=True)
class RecordsQuery(StreamQuery):
    """The query that selects records of a stream, and the part of each record to return."""

    slice: Annotated[
        str | None, Parameter(description="Range of record numbers: `10:20`, `10:`, `:20`.", examples=["10:20"])
    ] = None
    range: Annotated[
        str | None,
        Parameter(description="Older name of `slice`.", examples=["10:20"], include_in_schema=False),
    ] = None
    n: Annotated[
        tuple[str, ...],
        Parameter(
            description="Record numbers, separated by commas; repeatable. The records are returned in this order.",
            examples=[["7", "5,1000"]],
        ),
    ] = ()
    key: Annotated[
        str | None,
        Parameter(
            description="Path of the field to look up `value` in; the first lookup reads the whole stream.",
            examples=['features.feature["id"].bytes_list.value[0]'],
        ),
    ] = None
    value: Annotated[
        tuple[str, ...], Parameter(description="Value of the field at `key`; repeatable.", examples=[["cat-7"]])
    ] = ()
    sample: Annotated[
        int | None,
        Parameter(
            description="Number of records to draw at random; they are returned in the order of the stream.",
            examples=[100],
            le=10000,
        ),
    ] = None
    seed: Annotated[
        int, Parameter(description="Seed of the sample; the same seed draws the same records.", examples=[7])
    ] = 0
    path: Annotated[
        str,
        Parameter(
            description="Return only the part of each record at this path; empty if a record lacks it.",
            examples=['features.feature["label"]'],
        ),
    ] = ""
    fields: Annotated[
        tuple[str, ...],
        Parameter(
            description="Keep only these paths of each record, below `path`; repeatable.",
            examples=[['features.feature["label"]']],
        ),
    ] = ()
    omit_larger_than: OmitLarger = None
    format: Annotated[
        str,
        Parameter(description="Framing of the answer.", examples=["tfrecord"], json_schema_extra={"enum": [*WRITTEN]}),
    ] = "delimited"
    summary: Annotated[
        str | None,
        WithJsonSchema({"type": "boolean", "examples": [True]}),
        Parameter(
            description="Return a summary of the stream in JSON instead of records.",
            examples=[True],
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class TensorQuery:
    """The query that selects a part of a tensor and the form of its elements."""

    slice: Annotated[
        str | None,
        Parameter(description="Slice as in NumPy, with positive steps: `0:128,:,-3,::2`.", examples=["0:128,:"]),
    ] = None
    format: Annotated[
        str,
        Parameter(
            description="Format: raw elements, a `.npy` file, packed bits, metadata in JSON, levels of detail, or "
            "statistics.",
            examples=["npy"],
            json_schema_extra={"enum": ["raw", "npy", "packed", "json", "lod", "stats"]},
        ),
    ] = "raw"
    sample: Annotated[
        int | None,
        SIZE,
        WHOLE,
        Parameter(
            description="Maximum number of elements to examine for statistics, in evenly spread runs; 0 for all. "
            "Default: 16 777 216.",
            examples=[1000000],
        ),
    ] = None
    dequantize: Annotated[
        bool,
        Parameter(
            description="Return the elements of a quantized tensor, or of one of F16 or BF16, as F32.", examples=[True]
        ),
    ] = False
    tags: Tags = None


@dataclass(frozen=True, slots=True)
class OnnxQuery:
    """The query that selects a part of an ONNX model and the alignment of its weights."""

    inputs: Annotated[
        tuple[str, ...],
        Parameter(
            description="Value that becomes an input of the model, or node whose inputs become inputs; repeatable. By "
            "default the inputs of the graph that are needed.",
            examples=[["attention"]],
        ),
    ] = ()
    outputs: Annotated[
        tuple[str, ...],
        Parameter(
            description="Value that becomes an output of the model, or node whose outputs become outputs; repeatable. "
            "Only what these need is in the model. By default the outputs of the graph.",
            examples=[["logits"]],
        ),
    ] = ()
    align: Annotated[
        int,
        Parameter(
            description="Alignment of each tensor in `weights.bin`, in bytes: a power of two.",
            examples=[256],
            ge=1,
            le=1048576,
        ),
    ] = ALIGNMENT


@dataclass(frozen=True, slots=True)
class TensorsQuery:
    """The query that selects the tensors of a safetensors file."""

    name: Annotated[
        tuple[str, ...],
        Parameter(
            description="Only tensors with this name or address; repeatable. `*` matches anything (in up to 64 names).",
            examples=[["encoder.*"]],
        ),
    ] = ()
    strict: Strict = False
    align: Annotated[
        int | None,
        Parameter(
            description="Alignment of each tensor in the file, in bytes: a power of two. Tensors named "
            "`protoslice.padding.…` fill the gaps. Default: the width of the elements.",
            examples=[4096],
            ge=1,
            le=1048576,
        ),
    ] = None
    dtype: Annotated[
        str | None,
        Parameter(
            description="Convert floats and quantized tensors to this type, rounded to the nearest.",
            examples=["BF16"],
            json_schema_extra={"enum": [*FLOATS]},
        ),
    ] = None
    tags: Tags = None

    @property
    def layout(self) -> FileLayout:
        """The layout of the tensors in the file."""
        return FileLayout.of(self.align, self.dtype)


@dataclass(frozen=True, slots=True)
class ShardsQuery(TensorsQuery):
    """The query that selects the tensors of several safetensors files."""

    shards: Annotated[
        int | None,
        SIZE,
        Parameter(
            description="Maximum bytes of elements in a file, without header and padding. Default: 5 GB.",
            examples=["2GiB"],
        ),
    ] = None
