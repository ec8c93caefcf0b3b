"""JSON answers of the API, as pydantic models for OpenAPI."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Generic, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
)

from protoslice.facts import Change, Compared

T = TypeVar("T")
Id = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
EXAMPLE_ID = "9f0c" * 16


class FileModel(BaseModel):
    """A file of a store."""

    path: str = Field(examples=["model.onnx"])
    size: int = Field(ge=0)
    sha256: Sha256 | None = Field(description="Unknown for files registered in place.")


class StoreNameModel(BaseModel):
    """A name that refers to a store."""

    protocol: Literal["tag", "hub", "oci", "mlflow"]
    name: str = Field(description="Name, such as `m:1`, `ann/m@main`, `ann/m:1` or `mlflow-artifacts:/folder`.")


class StoreModel(BaseModel):
    """A store: an immutable set of files with an index and a split policy."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": EXAMPLE_ID,
                    "type": "onnx.ModelProto",
                    "root": "model.onnx",
                    "size": 1073741824,
                    "chunks": 58,
                    "min_chunk": 1048576,
                    "max_chunk": 1073741824,
                    "created": "2026-11-21T10:00:00Z",
                    "tags": ["resnet50:3"],
                    "files": [{"path": "model.onnx", "size": 1073741824, "sha256": "0" * 64}],
                    "source": "upload",
                    "schema": "5e" * 32,
                    "planner": 1,
                    "rules": [],
                    "why": None,
                    "names": [
                        {"protocol": "tag", "name": "resnet50:3"},
                        {"protocol": "hub", "name": "ann/resnet50@main"},
                    ],
                }
            ]
        }
    )

    id: Id
    type: str | None = Field(
        description="Full type name of the root proto, or `unknown`; null for a store without a root."
    )
    root: str | None = Field(description="Path of the root proto; null if no file is one.")
    size: int = Field(ge=0)
    chunks: int = Field(ge=0)
    min_chunk: int = Field(ge=1)
    max_chunk: int = Field(ge=1)
    created: datetime
    tags: list[str] = Field(description="Tags of the store, at most 100; `GET /v1/tags?store=` lists all.")
    files: list[FileModel]
    source: str
    schema_: Sha256 | None = Field(
        alias="schema", description="Fingerprint of the schema used to read the root; null for an unknown type."
    )
    planner: int | None = Field(
        ge=1,
        description="Version of the planner that created the chunks; null without chunks, 3 (formerly 2) if the "
        "chunks are those of a chunked file.",
    )
    rules: list[str] = Field(description="Split rules that took precedence over the sizes.")
    why: str | None = Field(description="Why no root was found; null if one was.")
    names: list[StoreNameModel] = Field(
        description="Names that refer to the store, at most 100: its tags, and names in registries. The response "
        "to an upload only has tags."
    )


class RemovedModel(BaseModel):
    """A removed store, and the tags removed with it."""

    id: Id
    tags: list[str] = Field(description="Tags that were removed with the store.")
    restorable_until: datetime = Field(description="Until then, the removal can be undone.")


class RestoredModel(StoreModel):
    """A restored store."""

    tags_taken: list[str] = Field(description="Tags that were not restored, because they point at another store now.")


class DamageModel(BaseModel):
    """A part that does not match the model's description of it."""

    part: str = Field(description="Path of a file, or name of a tensor.")
    error: str


class DtypeTotalModel(BaseModel):
    """Totals of the tensors of one data type."""

    dtype: str | None = Field(description="Null for unknown types.", examples=["F32"])
    tensors: int = Field(ge=1)
    elements: int = Field(ge=0)
    size: int = Field(ge=0, description="Bytes of the elements; strings do not count.")


class ReportModel(BaseModel):
    """A report on a model.

    At most 20 of each kind are listed.
    """

    type: str | None
    tensors: int | None = Field(ge=0, description="Null if no format supports the model's tensors.")
    missing: list[str] = Field(description="Files that the model refers to, but that were not sent.")
    duplicates: list[str] = Field(description="Names used by several tensors.")
    damaged: list[DamageModel]
    dtypes: list[DtypeTotalModel] = Field(description="Totals per data type, largest first.")
    complete: bool = Field(description="False if a list is incomplete, or not all tensors were examined.")


class DifferenceModel(BaseModel):
    """One difference between two stores."""

    what: Compared
    path: str = Field(description="Path of the file or part; name of the tensor.", examples=["graph.node[3]"])
    change: Change
    before: int | None = Field(ge=0, description="Bytes in the other store; null if added.")
    after: int | None = Field(ge=0, description="Bytes in this store; null if removed.")
    detail: str = Field(
        description="Details, such as both values of a scalar or the old name of a tensor.", examples=["F32 2 → F32 3"]
    )
    address: str = Field(description="Address of the tensor, or path of the part; empty for files and removed tensors.")
    was: str = Field(description="Address or path in the other store; empty for files and added tensors.")


class DifferenceCountModel(BaseModel):
    """The differences of one kind."""

    what: Compared
    change: Change
    count: int = Field(ge=1)


class DiffModel(BaseModel):
    """A page of the differences of two stores."""

    before: Id
    after: Id
    equal: bool
    counts: list[DifferenceCountModel] = Field(description="Total number of differences, including those not listed.")
    read: int = Field(ge=0, description="Bytes of both stores that were read, because no digests could be compared.")
    assumed: int = Field(
        ge=0,
        description="Bytes that were not read because the checksums of their blocks are equal; 0 without `checksums`.",
    )
    items: list[DifferenceModel]
    next: str | None = Field(description="`cursor` of the next page; null on the last page.")


class TensorDeltaModel(BaseModel):
    """Distances of the elements of two tensors; a complex number counts as two elements."""

    dtype: str = Field(examples=["F32"])
    shape: list[int]
    elements: int = Field(ge=0)
    looked_at: int = Field(ge=0, description="Elements compared; for a sample, fewer than all.")
    changed: int = Field(ge=0, description="Compared elements that differ.")
    incomparable: int = Field(ge=0, description="Changed elements where one side is NaN or infinite.")
    max: float | None = Field(description="Maximum distance; null without finite elements.")
    mean: float | None = Field(description="Mean distance; null without finite elements.")
    cosine: float | None = Field(description="Cosine of both as vectors; null if one is zero.")


class MadeModel(StoreModel):
    """A store that an upload created or found."""

    report: ReportModel | None = Field(default=None, description="Only if requested.")


class TagModel(BaseModel):
    """A movable name for a store."""

    name: str = Field(examples=["resnet50:3"])
    store: Id
    updated: datetime


class RepositoryModel(BaseModel):
    """A repository of a model registry, and the store of its current version."""

    name: str = Field(examples=["ann/resnet"])
    protocol: Literal["hub", "oci", "mlflow"] = Field(
        description="Kind of registry client that created the repository."
    )
    ref: str | None = Field(
        examples=["ann/resnet@main"],
        description="Name of the current version under `/v1/stores`: `main`, the tag `latest`, or the tag set "
        "last. Null, like the following, for a repository without files; an MLflow folder has a "
        "store once it is requested.",
    )
    store: Id | None
    type: str | None
    size: int | None = Field(ge=0)
    files: int | None = Field(ge=0)
    updated: datetime


class RepositoryVersionModel(BaseModel):
    """A branch or tag of a repository."""

    name: str = Field(examples=["main"])
    kind: Literal["branch", "tag"]
    ref: str = Field(examples=["ann/resnet@main"], description="Name under `/v1/stores`.")
    store: Id
    updated: datetime


class SchemaModel(BaseModel):
    """An uploaded descriptor set."""

    name: str
    size: int = Field(ge=0)
    messages: int = Field(ge=0, description="Number of message types it declares.")
    updated: datetime


class ChunkModel(BaseModel):
    """A chunk of a store."""

    index: int = Field(ge=0)
    kind: Literal["message", "bytes"]
    type: str | None
    path: str
    size: int = Field(ge=0)
    sha256: Sha256 | None = Field(description="Null if digests were not requested.")
    problem: str | None = Field(description="Why protobuf runtimes cannot parse it (above 2 GiB), and what to do.")


class TensorModel(BaseModel):
    """A tensor of a store."""

    name: str = Field(description="Name in its format; several tensors may share one.", examples=["conv1.weight"])
    address: str = Field(description="Unique in the store.", examples=["path:graph.initializer[3]"])
    dtype: str | None = Field(description="Null if the type is unknown.", examples=["F32"])
    shape: list[int] | None = Field(description="Null if the shape is invalid.")
    size: int | None = Field(ge=0, description="Bytes of the elements; null for strings.")
    file: str | None = Field(description="File that holds the bytes; null if there are several or none.")
    kind: str = Field(description="Role of the tensor in the model.", examples=["initializer"])
    problem: str | None = Field(default=None, description="Why the bytes cannot be read, if so.")


class TensorGroupModel(BaseModel):
    """Tensors whose names start alike."""

    prefix: str = Field(
        description="Common beginning of the names; for a group of one tensor, its name.",
        examples=["encoder.layer.3."],
    )
    tensors: int = Field(ge=1)
    size: int = Field(ge=0, description="Bytes of the elements; strings do not count.")
    tensor: TensorModel | None = Field(description="The tensor, if the group has only one.")


class SignatureTensorModel(BaseModel):
    """An input or an output of a signature."""

    name: str = Field(description="Name in the call.", examples=["images"])
    tensor: str | None = Field(description="Name in the graph; null for a tensor made of several.", examples=["x:0"])
    dtype: str | None = Field(description="Null for resources, variants and unknown types.", examples=["F32"])
    shape: list[int | None] | None = Field(
        description="A null length means any length; null means any number of dimensions."
    )


class SignatureModel(BaseModel):
    """A signature of a meta graph of a SavedModel."""

    name: str = Field(examples=["serving_default"])
    method: str = Field(examples=["tensorflow/serving/predict"])
    tags: list[str] = Field(description="Tags of the meta graph.", examples=[["serve"]])
    inputs: list[SignatureTensorModel]
    outputs: list[SignatureTensorModel]


class GraphEntryModel(BaseModel):
    """A graph of a model."""

    path: str = Field(description="Path of the message that holds the nodes.", examples=["graph"])
    name: str = Field(description="Name of the function, graph or computation; otherwise the path.")
    nodes: int = Field(ge=0)


class GraphNodeModel(BaseModel):
    """A node of a graph."""

    name: str = Field(description="Empty if unnamed.", examples=["conv1"])
    op: str = Field(examples=["Conv"])
    path: str = Field(examples=["graph.node[3]"])
    hops: int = Field(ge=0, description="Number of links to the middle node.")
    attributes: list[tuple[str, str]] = Field(description="Names and values as text; long ones are cut.")
    weights: list[str] = Field(description="Tensors that the node uses or holds.", examples=[["conv1.weight"]])
    more: int = Field(ge=0, description="Links to nodes that are not shown.")


class GraphEdgeModel(BaseModel):
    """A value that one node passes to another."""

    source: str = Field(description="Path of the node that produces it.", examples=["graph.node[3]"])
    target: str = Field(description="Path of the node that consumes it.", examples=["graph.node[4]"])
    value: str = Field(examples=["conv1_out"])
    input: int = Field(ge=0, description="Position among the target's inputs.")


class NeighbourhoodModel(BaseModel):
    """A part of one graph."""

    graphs: list[GraphEntryModel] = Field(description="The first graphs of the model.")
    graph_count: int = Field(ge=0, description="Total number of graphs.")
    graph: str = Field(description="Path of the graph shown.", examples=["graph"])
    around: str | None = Field(description="Path of the middle node; null for the graph's first nodes.")
    nodes: list[GraphNodeModel]
    edges: list[GraphEdgeModel]
    more: bool = Field(description="True if there are more nodes within the hops, or more matches.")


class PieceModel(BaseModel):
    """A piece of a file."""

    file: str = Field(examples=["model.onnx"])
    offset: int = Field(ge=0)
    size: int = Field(ge=1)
    sha256: Sha256


class PlaceModel(BaseModel):
    """Place of a piece: store, file and offset."""

    sha256: Sha256
    size: int = Field(ge=1)
    store: Id
    file: str
    offset: int = Field(ge=0)


class MissingModel(BaseModel):
    """Missing pieces, and where the others are."""

    missing: list[Sha256]
    found: list[PlaceModel]


class NodeModel(BaseModel):
    """A field or element of the proto: its path, type and size."""

    path: str
    field: int
    name: str | None
    kind: str
    type: str | None
    count: int | None
    size: int = Field(ge=0)
    deeper: bool = Field(description="True if the node has children.")
    text: str | None = Field(description="Value of a scalar or a short string.")
    children: list[NodeModel] | None = None
    more: int | None = Field(default=None, description="Number of children that are not shown.")


class PageModel(BaseModel, Generic[T]):
    """Some of many things."""

    items: list[T]
    next: str | None = Field(description="Cursor of the next page; null on the last page.")


class TensorPageModel(PageModel[TensorModel]):
    """A page of the tensors of a store."""

    total: int = Field(ge=0, description="Total number of tensors in the store.")


class UploadModel(BaseModel):
    """A resumable upload."""

    id: str
    state: Literal["open", "complete", "stored"] = Field(description="`complete`: waits to be joined with others.")
    offset: int = Field(ge=0, description="Number of durable bytes.")
    length: int | None = Field(ge=0, description="Total number of bytes, if known.")
    filename: str | None
    expires: datetime
    store: Id | None = Field(description="The store created from the upload.")


class Mistake(BaseModel):
    """An error in one parameter of a request."""

    model_config = ConfigDict(populate_by_name=True)

    where: str = Field(alias="in")
    name: str
    detail: str


class ProblemModel(BaseModel):
    """Problem details (RFC 9457).

    Other members depend on the type.
    """

    model_config = ConfigDict(extra="allow")

    type: str = Field(examples=["/problems/not-found"])
    title: str
    status: int
    detail: str
    instance: str | None = None
    request_id: str
    path: str | None = Field(default=None, description="Field path of the error.")
    offset: int | None = Field(default=None, description="Byte offset of the error.")
    limit: int | None = None
    offers: list[str] | None = None
    errors: list[Mistake] | None = None
