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
    sha256: Sha256 | None = Field(description="Not known for files registered in place.")


class StoreNameModel(BaseModel):
    """A name that refers to a store."""

    protocol: Literal["tag", "hub", "oci", "mlflow"]
    name: str = Field(description="As in `m:1`, `ann/m@main`, `ann/m:1` or `mlflow-artifacts:/folder`.")


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
        description="Full name of the root proto's type, or `unknown`; null for a store without a root."
    )
    root: str | None = Field(description="Which file is the root proto; null when none of the files is one.")
    size: int = Field(ge=0)
    chunks: int = Field(ge=0)
    min_chunk: int = Field(ge=1)
    max_chunk: int = Field(ge=1)
    created: datetime
    tags: list[str] = Field(description="Some of its tags, at most 100; `GET /v1/tags?store=` lists all.")
    files: list[FileModel]
    source: str
    schema_: Sha256 | None = Field(
        alias="schema", description="Fingerprint of the schema that the root is read by; null for an unknown type."
    )
    planner: int | None = Field(
        ge=1,
        description="Version of the planner that made the chunks; null without chunks, 3 (formerly 2) where a chunked "
        "proto came with them.",
    )
    rules: list[str] = Field(description="Rules that the chunks were cut by before the sizes.")
    why: str | None = Field(description="One sentence on why there is no root; null where there is one.")
    names: list[StoreNameModel] = Field(
        description="Names that refer to the store, at most 100: its tags, and names in registries. `GET` looks for "
        "those in registries; the answer to an upload has tags only."
    )


class RemovedModel(BaseModel):
    """A store that was removed, with the tags that went with it."""

    id: Id
    tags: list[str] = Field(description="Tags that pointed at the store, and were removed with it.")
    restorable_until: datetime = Field(description="Until then its objects are kept, and the removal can be undone.")


class RestoredModel(StoreModel):
    """A store whose removal was taken back."""

    tags_taken: list[str] = Field(description="Tags that went with the store and point elsewhere by now: left alone.")


class DamageModel(BaseModel):
    """A part that is not what the model says of it."""

    part: str = Field(description="The path of a file, or the name of a tensor.")
    error: str


class DtypeTotalModel(BaseModel):
    """The tensors of one data type, all together."""

    dtype: str | None = Field(description="Null for types that nobody knows.", examples=["F32"])
    tensors: int = Field(ge=1)
    elements: int = Field(ge=0)
    size: int = Field(ge=0, description="Bytes of the elements, one by one; strings count for none.")


class ReportModel(BaseModel):
    """The facts about a model. At most 20 of each kind are listed."""

    type: str | None
    tensors: int | None = Field(ge=0, description="Null where no format knows the model's tensors.")
    missing: list[str] = Field(description="Files that the model refers to, and that were not sent.")
    duplicates: list[str] = Field(description="Names that several tensors bear.")
    damaged: list[DamageModel]
    dtypes: list[DtypeTotalModel] = Field(description="Totals of each data type, that of the most bytes first.")
    complete: bool = Field(description="False where a list is cut, or not all tensors were looked at.")


class DifferenceModel(BaseModel):
    """One thing in which a store differs from another."""

    what: Compared
    path: str = Field(description="Of a file or a part; the name of a tensor.", examples=["graph.node[3]"])
    change: Change
    before: int | None = Field(ge=0, description="Bytes in the other store; null for an addition.")
    after: int | None = Field(ge=0, description="Bytes in this store; null for a removal.")
    detail: str = Field(
        description="The two values of a scalar, the old name of a tensor …", examples=["F32 2 → F32 3"]
    )
    address: str = Field(description="Address of the tensor, path of the part; empty for files and removed tensors.")
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
    counts: list[DifferenceCountModel] = Field(description="Of all differences, listed or not.")
    read: int = Field(ge=0, description="Bytes of both that were read to compare them, as no digest told.")
    assumed: int = Field(
        ge=0, description="Bytes that were not read as the checksums of their blocks agree; 0 without `checksums`."
    )
    items: list[DifferenceModel]
    next: str | None = Field(description="`cursor` of the page behind; null at the end.")


class TensorDeltaModel(BaseModel):
    """Distances of the elements of two tensors; halves of complex numbers are elements of their own."""

    dtype: str = Field(examples=["F32"])
    shape: list[int]
    elements: int = Field(ge=0)
    looked_at: int = Field(ge=0, description="Elements compared; fewer than all for a sample.")
    changed: int = Field(ge=0, description="Elements that differ, of those.")
    incomparable: int = Field(ge=0, description="Changed ones of which one is NaN or infinite.")
    max: float | None = Field(description="Greatest distance; null without finite elements.")
    mean: float | None = Field(description="Mean distance; null without finite elements.")
    cosine: float | None = Field(description="Of both as vectors; null where one of them is zero.")


class MadeModel(StoreModel):
    """A store that an upload made, or found."""

    report: ReportModel | None = Field(default=None, description="Only where it was asked for.")


class TagModel(BaseModel):
    """A movable name for a store."""

    name: str = Field(examples=["resnet50:3"])
    store: Id
    updated: datetime


class RepositoryModel(BaseModel):
    """A repository of a registry's clients, and the store of its head."""

    name: str = Field(examples=["ann/resnet"])
    protocol: Literal["hub", "oci", "mlflow"] = Field(description="Whose clients filled it.")
    ref: str | None = Field(
        examples=["ann/resnet@main"],
        description="Name of its head under `/v1/stores`: `main`, the tag `latest`, or the tag set last. Null, as the "
        "following, for a repository without files; a folder of MLflow's has a store once somebody asks for it.",
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
    ref: str = Field(examples=["ann/resnet@main"], description="Its name under `/v1/stores`.")
    store: Id
    updated: datetime


class SchemaModel(BaseModel):
    """An uploaded descriptor set."""

    name: str
    size: int = Field(ge=0)
    messages: int = Field(ge=0, description="How many message types it declares.")
    updated: datetime


class ChunkModel(BaseModel):
    """A chunk of a store."""

    index: int = Field(ge=0)
    kind: Literal["message", "bytes"]
    type: str | None
    path: str
    size: int = Field(ge=0)
    sha256: Sha256 | None = Field(description="Null when digests were not asked for.")
    problem: str | None = Field(description="Why protobuf runtimes cannot parse it (above 2 GiB), and what to do.")


class TensorModel(BaseModel):
    """A tensor of a store."""

    name: str = Field(description="What its format calls it; several may bear one name.", examples=["conv1.weight"])
    address: str = Field(description="Unique in the store.", examples=["path:graph.initializer[3]"])
    dtype: str | None = Field(description="Null where the model names a type that nobody knows.", examples=["F32"])
    shape: list[int] | None = Field(description="Null where the model gives one that makes no sense.")
    size: int | None = Field(ge=0, description="Of its elements, one by one; null for strings.")
    file: str | None = Field(description="The file its bytes lie in; null where there are several, or none.")
    kind: str = Field(description="What it is to the model.", examples=["initializer"])
    problem: str | None = Field(default=None, description="Why its bytes cannot be had, where that is so.")


class TensorGroupModel(BaseModel):
    """Tensors whose names begin alike."""

    prefix: str = Field(
        description="Beginning of all of the names; the whole name of a group of one name.",
        examples=["encoder.layer.3."],
    )
    tensors: int = Field(ge=1)
    size: int = Field(ge=0, description="Bytes of their elements together; strings count for nothing.")
    tensor: TensorModel | None = Field(description="The tensor of a group of one.")


class SignatureTensorModel(BaseModel):
    """An input or an output of a signature."""

    name: str = Field(description="By which a call gives or gets it.", examples=["images"])
    tensor: str | None = Field(description="In the graph; null for one made of several.", examples=["x:0"])
    dtype: str | None = Field(description="Null for resources, variants and unknown types.", examples=["F32"])
    shape: list[int | None] | None = Field(description="Null within: any length. Null: any number of dimensions.")


class SignatureModel(BaseModel):
    """A call that a meta graph of a SavedModel offers."""

    name: str = Field(examples=["serving_default"])
    method: str = Field(examples=["tensorflow/serving/predict"])
    tags: list[str] = Field(description="Of its meta graph.", examples=[["serve"]])
    inputs: list[SignatureTensorModel]
    outputs: list[SignatureTensorModel]


class GraphEntryModel(BaseModel):
    """A graph of a model."""

    path: str = Field(description="Of the message that holds its nodes.", examples=["graph"])
    name: str = Field(description="Of a function, a graph or a computation; else the path.")
    nodes: int = Field(ge=0)


class GraphNodeModel(BaseModel):
    """A node of a graph."""

    name: str = Field(description="Empty for one without a name.", examples=["conv1"])
    op: str = Field(examples=["Conv"])
    path: str = Field(examples=["graph.node[3]"])
    hops: int = Field(ge=0, description="Links between it and the node in the middle.")
    attributes: list[tuple[str, str]] = Field(description="Names and values as text; long ones are cut.")
    weights: list[str] = Field(description="Tensors that it takes or holds.", examples=[["conv1.weight"]])
    more: int = Field(ge=0, description="Links to nodes that are not shown.")


class GraphEdgeModel(BaseModel):
    """A value on its way between two nodes."""

    source: str = Field(description="Path of the node that makes it.", examples=["graph.node[3]"])
    target: str = Field(description="Path of the node that takes it.", examples=["graph.node[4]"])
    value: str = Field(examples=["conv1_out"])
    input: int = Field(ge=0, description="Position among the inputs of the target.")


class NeighbourhoodModel(BaseModel):
    """A part of one graph."""

    graphs: list[GraphEntryModel] = Field(description="The first graphs of the model.")
    graph_count: int = Field(ge=0, description="Number of all its graphs.")
    graph: str = Field(description="Path of the graph shown.", examples=["graph"])
    around: str | None = Field(description="Path of the node in the middle; null for nodes to begin with.")
    nodes: list[GraphNodeModel]
    edges: list[GraphEdgeModel]
    more: bool = Field(description="True when more nodes lie within the hops, or are found.")


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
    """Missing pieces, and places of the others."""

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
    deeper: bool = Field(description="Whether there is something below it.")
    text: str | None = Field(description="The value of a scalar or a short string.")
    children: list[NodeModel] | None = None
    more: int | None = Field(default=None, description="How many children are not shown.")


class PageModel(BaseModel, Generic[T]):
    """Some of many things."""

    items: list[T]
    next: str | None = Field(description="The cursor of the next page; null on the last.")


class TensorPageModel(PageModel[TensorModel]):
    """Some of the tensors of a store."""

    total: int = Field(ge=0, description="Tensors of the store, those that were not asked for among them.")


class UploadModel(BaseModel):
    """A resumable upload."""

    id: str
    state: Literal["open", "complete", "stored"] = Field(description="`complete`: it waits to be joined with others.")
    offset: int = Field(ge=0, description="How many bytes are durable.")
    length: int | None = Field(ge=0, description="Bytes of the whole, where they are known.")
    filename: str | None
    expires: datetime
    store: Id | None = Field(description="The store that was made of it.")


class Mistake(BaseModel):
    """Fault of one parameter of a request."""

    model_config = ConfigDict(populate_by_name=True)

    where: str = Field(alias="in")
    name: str
    detail: str


class ProblemModel(BaseModel):
    """RFC 9457. Further members depend on the type."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(examples=["/problems/not-found"])
    title: str
    status: int
    detail: str
    instance: str | None = None
    request_id: str
    path: str | None = Field(default=None, description="The field path at fault.")
    offset: int | None = Field(default=None, description="The byte offset at fault.")
    limit: int | None = None
    offers: list[str] | None = None
    errors: list[Mistake] | None = None
