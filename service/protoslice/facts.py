"""Facts about stores and their contents, shared by library, stores, server and client.

These dataclasses define the JSON of the API: the server encodes them, the client reads them, and the OpenAPI document
describes them by their annotations and docstrings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final, Literal

UNKNOWN: Final = "unknown"
"""The type of a root whose type is not known; in a request, the wish that no schema is used."""


class Keywords:
    """JSON Schema keywords of a member, as in `Annotated[int, Keywords(minimum=0)]`."""

    def __init__(self, **keywords: object) -> None:
        self._keywords = keywords

    def __get_pydantic_json_schema__(self, schema: Any, describe: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """Return the schema that pydantic makes of the annotated type, with the keywords."""
        return describe(schema) | self._keywords


def like(*examples: object) -> Keywords:
    """Return the keyword for examples of a member."""
    return Keywords(examples=list(examples))


OMITTED: Final = "omitted"
"""In `Annotated`: the JSON leaves out the member where it has its default."""

SECRET: Final = "secret"
"""In `Annotated`: a permission. Answers with such a member are never compressed: the length would leak it (BREACH)."""

LOCAL: Final = "local"
"""In `Annotated`: the JSON never has the member."""

Count = Annotated[int, Keywords(minimum=0)]
Positive = Annotated[int, Keywords(minimum=1)]
Id = Annotated[str, Keywords(pattern="^[0-9a-f]{64}$")]
Sha256 = Annotated[str, Keywords(pattern="^[0-9a-f]{64}$")]


@dataclass(frozen=True, slots=True)
class File:
    """A file of a store."""

    path: Annotated[str, like("model.onnx")]
    size: Count
    """In bytes."""
    sha256: Sha256 | None
    """In hex; None for a file that was registered in place."""


@dataclass(frozen=True, slots=True)
class StoreName:
    """A name that refers to a store."""

    protocol: Annotated[str, Keywords(enum=["tag", "hub", "oci", "mlflow"])]
    name: str
    """Name, such as `m:1`, `ann/m@main`, `ann/m:1` or `mlflow-artifacts:/folder`."""


@dataclass(frozen=True, slots=True)
class Store:
    """A store: an immutable set of files with an index and a split policy."""

    id: Id
    type: Annotated[str | None, like("onnx.ModelProto")]
    """Full type name of the root proto, or `unknown`; None for a store without a root."""
    root: Annotated[str | None, like("model.onnx")]
    """Path of the root proto; None if no file is a root."""
    size: Count
    """Bytes of all files."""
    chunks: Count
    min_chunk: Positive
    max_chunk: Positive
    created: datetime
    tags: Annotated[tuple[str, ...], like(["resnet50:3"])]
    """Tags of the store, at most 100; `GET /v1/tags?store=` lists all."""
    files: tuple[File, ...]
    source: Annotated[str, like("upload")]
    """How the files were added, such as `upload` or `register`."""
    schema: Sha256 | None
    """Fingerprint of the schema used to read the root; None for an unknown type."""
    planner: Positive | None
    """Version of the algorithm that chose the chunks; None for a store without chunks. 3 (2 in older stores) means the
    chunks of an uploaded chunked file."""
    rules: tuple[str, ...] = ()
    """Split rules that took precedence over the sizes, in canonical form."""
    why: str | None = None
    """Why no root was found; None if there is a root."""
    records_file: Annotated[str | None, like("train.tfrecord")] = None
    """Path of a file that is a stream of records, for `file=` of `/records`; None if none was recognized. Streams of
    delimited records are not recognized. Stores of earlier versions have None."""
    uploader: Annotated[str | None, like("ci")] = None
    """Name of the token or account that created the store; None if the service required no credentials."""
    uploader_id: Annotated[str | None, like("kU3x9QbW1z")] = None
    """Id of that token or account: other tokens or accounts may have the same name. None if it is unknown."""
    description: Annotated[str, like("Fine-tuned on the May data.")] = ""
    """Description for readers. It can be changed, unlike the files of the store."""
    names: tuple[StoreName, ...] = ()
    """Names that refer to the store, at most 100: its tags, and its names in registries. The response to an upload only
    has tags."""


@dataclass(frozen=True, slots=True)
class Removed:
    """A removed store, and the tags removed with it."""

    id: Id
    tags: tuple[str, ...]
    """Tags that were removed with the store."""
    restorable_until: datetime
    """Time until which the removal can be undone."""


@dataclass(frozen=True, slots=True)
class Restored:
    """A store whose removal was undone."""

    store: Store
    tags_taken: tuple[str, ...]
    """Tags that were not restored, because they point at another store now."""


@dataclass(frozen=True, slots=True)
class Tag:
    """A movable name for a store."""

    name: Annotated[str, like("resnet50:3")]
    store: Id
    """Id of the store."""
    updated: datetime


@dataclass(frozen=True, slots=True)
class RepositorySummary:
    """A repository of a model registry, and the store of its current version."""

    name: Annotated[str, like("ann/resnet")]
    """Name as clients of the registry use it; for MLflow, the URI of a folder of artifacts."""
    protocol: Annotated[str, Keywords(enum=["hub", "oci", "mlflow"])]
    """Kind of registry client that created the repository."""
    ref: Annotated[str | None, like("ann/resnet@main")]
    """Name of the current version under `/v1/stores`: `main`, the tag `latest`, or the tag set last.

    None, like the members below, for a repository without files, and for an MLflow folder that was never requested."""
    store: Id | None
    """Id of the store; None if there is none yet, or it was removed."""
    type: str | None
    size: Count | None
    files: Count | None
    updated: datetime


@dataclass(frozen=True, slots=True)
class RepositoryVersion:
    """A branch or tag of a repository that has files."""

    name: Annotated[str, like("main")]
    kind: Annotated[str, Keywords(enum=["branch", "tag"])]
    ref: Annotated[str, like("ann/resnet@main")]
    """Name of this version under `/v1/stores`."""
    store: Id
    updated: datetime


@dataclass(frozen=True, slots=True)
class SignInTerms:
    """How to sign in at a service: the issuer, its public client, and the scopes to ask for."""

    issuer: str
    client_id: str
    scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SignedUrl:
    """A signed URL, which needs no token."""

    url: Annotated[str, SECRET]
    expires: datetime


@dataclass(frozen=True, slots=True)
class WebhookFacts:
    """A webhook of a space."""

    name: str
    url: str
    events: tuple[str, ...]
    """Types of the events that the webhook receives; all if empty."""
    created: datetime
    secret: Annotated[str, OMITTED, SECRET] = ""
    """`whsec_` and base64: the HMAC key for `webhook-signature`. Only returned when the webhook is put."""


@dataclass(frozen=True, slots=True)
class EventLetter:
    """An event that was not delivered to a webhook."""

    id: str
    type: str
    subject: str
    written: datetime
    attempts: int
    error: str
    """Reason of the last failure; empty before the first attempt."""


@dataclass(frozen=True, slots=True)
class Redelivered:
    """Number of failed events that will be delivered again."""

    letters: Count


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A change, and who made it."""

    at: datetime
    who: Annotated[str, like("ci")]
    """Name of the token or account, or of the system's user who ran a command on the storage. Empty for the service
    itself, and for a service that requires no credentials."""
    what: Annotated[str, like("tag.set")]
    subject: Annotated[str, like("resnet:3")]
    """Id of a store or token, or the name of what was changed."""
    detail: dict[str, Any]
    transaction: str
    """Id shared by changes that were made together."""
    who_id: Annotated[str, like("kU3x9QbW1z")] = ""
    """Id of the token, or of the account at an issuer: others may have the same name. `local` for a system's user,
    empty if it is unknown."""


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token of a service."""

    id: str
    name: str
    space: str
    """Space in which the token is valid; `*` for all spaces."""
    scopes: tuple[Annotated[str, Keywords(enum=["read", "write", "delete", "register", "schemas", "admin"])], ...]
    tags: tuple[str, ...]
    """Patterns of tags that the token may set and remove; empty if it may change any tag."""
    created: datetime
    expires: datetime | None
    used: datetime | None = None
    """Time of the last use, recorded at most once an hour; null if there was none. Signed URLs do not count."""
    token: Annotated[str, OMITTED, SECRET] = ""
    """The token itself, only returned when it is created."""


@dataclass(frozen=True, slots=True)
class Space:
    """An isolated tenant with its own stores, tags and schemas, its usage and its quota."""

    name: str
    """Lower-case letters, digits and '-', at most 63 characters; the API of the space is below `/spaces/{name}`."""
    stored_bytes: int = 0
    """Bytes of uploaded objects; removed stores count until `gc` deletes their objects."""
    stores: int = 0
    quota_bytes: int = 0
    """Maximum stored bytes; 0 for no limit."""
    quota_stores: int = 0
    """Maximum number of stores; 0 for no limit."""
    quota_open_uploads: int = 0
    """Maximum number of unfinished resumable uploads; 0 for no limit."""
    quota_requests: int = 0
    """Maximum concurrent requests per replica; 0 for no limit."""


@dataclass(frozen=True, slots=True)
class Schema:
    """An uploaded descriptor set."""

    name: str
    size: Count
    """In bytes."""
    messages: Count
    """Number of message types it declares."""
    updated: datetime


@dataclass(frozen=True, slots=True)
class ChunkEntry:
    """A chunk, as the chunk table of a store lists it."""

    index: Count
    kind: Annotated[str, Keywords(enum=["message", "bytes"])]
    type: str | None
    """Full name of the message type; None for bytes, and if it is unknown."""
    path: str
    size: Count
    """In bytes."""
    sha256: Sha256 | None
    """In hex; None if digests were not requested."""
    problem: str | None = None
    """Why protobuf runtimes cannot parse the chunk (above 2 GiB), and what to do."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a file: the pieces of a store cover every byte of its files, in order."""

    file: Annotated[str, like("model.onnx")]
    offset: Count
    size: Positive
    sha256: Sha256

    @property
    def end(self) -> int:
        """Offset of the first byte after the piece in its file."""
        return self.offset + self.size


@dataclass(frozen=True, slots=True)
class PiecePlace:
    """Place of a piece: store, file and offset. Other stores may have the piece too."""

    sha256: Sha256
    size: Positive
    store: Id
    """Id of the store."""
    file: str
    offset: Count


@dataclass(frozen=True, slots=True)
class MissingPieces:
    """Missing pieces, and places of all other pieces."""

    missing: tuple[Sha256, ...]
    found: tuple[PiecePlace, ...]
    bases: tuple[Id, ...] = ()
    """Stores that `tags` of the request selects."""


@dataclass(frozen=True, slots=True)
class Node:
    """A field or element of a proto: its path, type and size."""

    path: str
    field: int
    """Field number."""
    name: str | None
    """Field name; None if no schema knows the field."""
    kind: str | None
    """`message`, or the kind of a scalar; None if no schema knows the field."""
    type: str | None
    """Full name of the message or enum type; None for other kinds."""
    count: int | None
    """Number of elements of a repeated field; None for other fields, and for a single element."""
    size: Count
    """In bytes, as serialized."""
    deeper: bool
    """True if the node has children."""
    text: str | None
    """Value of a scalar or a short string."""
    children: Annotated[tuple[Node, ...], OMITTED] = ()
    """Child nodes. They and `more` are only set for nodes within the requested depth."""
    more: Annotated[int | None, OMITTED] = None
    """Number of children that are not shown."""

    @property
    def number(self) -> int:
        """Field number."""
        return self.field


Role = Literal["weight", "optimizer", "constant", "other"]
Kind = Literal["attention", "linear", "convolution", "normalization", "embedding", "recurrent", "quantization", "other"]


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """A tensor of a store or a model."""

    name: Annotated[str, like("conv1.weight")]
    """Name in the model; several tensors may share a name."""
    address: Annotated[str, like("path:graph.initializer[3]")]
    """Identifies the tensor in the store, even if several share its name."""
    dtype: Annotated[str | None, like("F32")]
    """None if the type is unknown."""
    shape: tuple[int, ...] | None
    """None if the shape is invalid."""
    size: Count | None
    """Bytes of the elements; None for strings."""
    file: str | None
    """File that holds the bytes; None if there are several or none."""
    role: Annotated[Role, like("weight")]
    """The parameters of a model are the elements of its weights."""
    kind: Annotated[Kind, like("convolution")]
    """Kind of the layer: by the operator that uses the tensor, or by words of the name in models without a graph."""
    problem: Annotated[str | None, OMITTED] = None
    """Why the bytes cannot be read, if they cannot."""


@dataclass(frozen=True, slots=True)
class TensorBranch:
    """A node in a tree of tensor names: tensors with a common beginning, a range of such groups, or one tensor."""

    name: Annotated[str, like("layer.3.")]
    """Common beginning of the names, after the parent's name; for a range, that of its first group."""
    start: Count
    """Position of the first tensor in the order of names."""
    tensors: Count
    size: Count
    """Bytes of the elements; strings do not count."""
    elements: Count
    dtype: Annotated[str | None, like("F32")]
    """Data type with the most bytes; None if unknown."""
    kind: Annotated[Kind | None, like("attention")]
    """Kind of layer with the most bytes; None without tensors."""
    last: Annotated[str | None, OMITTED] = None
    """Name of the last group; only for a range of groups."""
    address: Annotated[str | None, OMITTED] = None
    """Identifies a single tensor."""
    shape: Annotated[tuple[int, ...] | None, OMITTED] = None
    parameters: Annotated[Count | None, OMITTED] = None
    """Number of elements that belong to weights, if not all do."""
    children: Annotated[tuple[TensorBranch, ...], OMITTED] = ()
    """Groups and tensors in natural order; empty for a single tensor, and for a group that is not opened."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of numbers in bins of equal width."""

    start: float
    """Start of the first bin; each bin includes its start, and ends before the next."""
    width: float
    """Width of each bin, a power of two; the start of every bin is a multiple of it."""
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorStatistics:
    """Statistics of a tensor or of a slice; for complex numbers, of their magnitudes."""

    name: str
    address: str
    dtype: Annotated[str, like("F32")]
    shape: tuple[int, ...]
    """Shape of the slice, or of the whole tensor."""
    elements: Count
    """Number of elements of each tensor."""
    looked_at: Count
    """Number of elements examined; for a sample, fewer than all."""
    zeros: Count
    nans: Count
    infinities: Count
    min: float | None
    """Smallest finite element. This, `max`, `mean` and `deviation` are None without finite elements, or if a 64-bit
    float cannot hold them."""
    max: float | None
    mean: float | None
    deviation: float | None
    """Standard deviation of the elements examined."""
    histogram: Histogram | None
    """The finite elements in at most 64 bins; None without finite elements."""


Compared = Literal["file", "tensor", "part"]
Change = Literal["added", "removed", "changed", "renamed", "reordered"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between two stores or models."""

    what: Compared
    path: Annotated[str, like("graph.node[3]")]
    """Path of the file or part, or name of the tensor, in the second model; in the first if it was removed."""
    change: Change
    before: Count | None
    """Bytes in the first model; None if added."""
    after: Count | None
    """Bytes in the second model; None if removed."""
    detail: Annotated[str, like("F32 2 → F32 3")] = ""
    """Details, such as both values of a scalar or the old name of a tensor."""
    address: str = ""
    """Address of the tensor, or path of the part; empty for files and removed tensors."""
    was: str = ""
    """Address of the tensor, or path of the part, in the first model; empty for files and added tensors."""


@dataclass(frozen=True, slots=True)
class TensorDelta:
    """Distances of the elements of two tensors; a complex number counts as two elements."""

    dtype: Annotated[str, like("F32")]
    shape: tuple[int, ...]
    elements: Count
    """Number of elements of each tensor."""
    looked_at: Count
    """Elements compared; for a sample, fewer than all."""
    changed: Count
    """Compared elements that differ."""
    incomparable: Count
    """Changed elements that are NaN or infinite in at least one of the tensors; the members below leave them out."""
    max: float | None
    """Maximum distance; None without finite elements, or beyond 64-bit floats."""
    mean: float | None
    """Mean distance; None without finite elements."""
    relative: float | None
    """Length of the difference as a share of the first tensor's length, both as vectors; None if the latter is zero."""
    cosine: float | None
    """Cosine similarity of the two tensors as vectors; None if one is zero."""


Move = Literal["compared", "renamed", "reshaped", "added", "removed"]


@dataclass(frozen=True, slots=True)
class TensorMove:
    """A tensor of two models, and how much its values differ; removed tensors are described as in the first model."""

    name: str
    address: str
    """Address in the second model; empty for a removed tensor."""
    was: str | None
    """Name in the first model, if different."""
    was_address: str
    """Address in the first model; empty for an added tensor."""
    dtype: str | None
    shape: tuple[int, ...] | None
    size: Count | None
    kind: Annotated[Kind, like("linear")]
    """Kind of the layer."""
    layer: Annotated[str, like("model.layers.0")]
    """The tensor's name up to the end of its first number, or else the first step of the name."""
    change: Move
    """`reshaped` means that type or shape differ, `compared` that type, shape and name are equal."""
    delta: TensorDelta | None
    """Distances, of a sample of the elements; None where there is nothing to compare."""


@dataclass(frozen=True, slots=True)
class EqualTensors:
    """Tensors of one kind that are equal in two models as far as they were compared, in a layer or a run of layers."""

    layer: Annotated[str, like("model.layers.0")]
    """Layer of the tensors, as in `TensorMove`."""
    last: Annotated[Count | None, like(31)]
    """Number of the last layer of a run, in which all layers have equal counts; None for a single layer."""
    kind: Annotated[Kind, like("attention")]
    count: Annotated[Positive, like(4)]
    """Number of equal tensors in each of the layers."""


@dataclass(frozen=True, slots=True)
class TensorMoves:
    """A page of the tensors of two models in pairs, sorted by name."""

    items: tuple[TensorMove, ...]
    """Tensors whose values differ, that only one model has, or that could not be compared."""
    equal: tuple[EqualTensors, ...]
    """All other tensors of the page, by layer and kind."""
    compared: Count
    """Number of pairs on this page."""
    total: Count
    """Number of pairs on all pages."""
    next: str | None
    """`cursor` of the next page; None on the last page."""


@dataclass(frozen=True, slots=True)
class SignatureTensor:
    """An input or an output of a signature."""

    name: Annotated[str, like("images")]
    """Name of the argument or result when the signature is called."""
    tensor: Annotated[str | None, like("x:0")]
    """Name in the graph; None for a tensor that consists of several tensors, such as a sparse tensor."""
    dtype: Annotated[str | None, like("F32")]
    """None for resources, variants and unknown types."""
    shape: tuple[int | None, ...] | None
    """Length of each dimension, None if it is unknown; None instead of the list if the rank is unknown."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What a model takes and returns: a signature of a SavedModel, or the one of an ONNX, Core ML or Paddle model."""

    name: Annotated[str, like("serving_default")]
    method: Annotated[str, like("tensorflow/serving/predict")]
    """Name of the method; empty if the model has none."""
    tags: Annotated[tuple[str, ...], like(["serve"])]
    """Tags of the meta graph."""
    inputs: tuple[SignatureTensor, ...]
    outputs: tuple[SignatureTensor, ...]


@dataclass(frozen=True, slots=True)
class GraphEntry:
    """A graph of a model: the main one, or one of a function, a branch or a computation."""

    path: Annotated[str, like("graph")]
    """Path of the message that holds the nodes; empty for the root."""
    name: str
    """Name of the function, graph or computation; otherwise the path."""
    nodes: Count


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node of a graph."""

    name: Annotated[str, like("conv1")]
    """Empty if unnamed."""
    op: Annotated[str, like("Conv")]
    path: Annotated[str, like("graph.node[3]")]
    hops: Count
    """Distance from the node in `around`, in links; 0 without `around`."""
    attributes: tuple[tuple[str, str], ...]
    """Names and values as text; long values are truncated."""
    weights: Annotated[tuple[str, ...], like(["conv1.weight"])]
    """Tensors that the node uses or holds."""
    more: Count
    """Number of links to nodes that are not shown."""
    outputs: Annotated[tuple[str, ...], like(["conv1_out"])]
    """Names of the first values that the node produces; empty for a node that is too large."""


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """A value that one node passes to another."""

    source: Annotated[str, like("graph.node[3]")]
    """Path of the node that produces the value."""
    target: Annotated[str, like("graph.node[4]")]
    """Path of the node that consumes the value."""
    value: Annotated[str, like("conv1_out")]
    input: Count
    """Position of the value among the inputs of the target."""


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """A part of one graph."""

    graphs: tuple[GraphEntry, ...]
    """The first graphs of the model."""
    graph_count: Count
    """Total number of graphs."""
    graph: Annotated[str, like("graph")]
    """Path of the graph shown."""
    around: str | None
    """Path of the node that `around` selects; None without `around`."""
    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]
    more: bool
    """True if nodes or edges were left out because of `limit` or the size of the response."""


@dataclass(frozen=True, slots=True)
class GraphValue:
    """A value in a graph, with the type that the model states."""

    name: Annotated[str, like("conv1_out")]
    dtype: Annotated[str | None, like("F32")]
    shape: tuple[int | None, ...] | None
    """Length of each dimension, None if it is unknown; None instead of the list if the model states none."""


@dataclass(frozen=True, slots=True)
class GraphOperator:
    """An operator in a block."""

    op: Annotated[str, like("Conv")]
    nodes: Count
    """Number of nodes."""


@dataclass(frozen=True, slots=True)
class GraphBlock:
    """A part of a graph: a node, or a block of neighbours."""

    id: int | None
    """Number of a block, by which its parts can be listed; None for a node."""
    kind: Annotated[str, like("repeat")]
    """`node`, `group` (a common beginning of names), `repeat` (parts that look the same), `round` (one part of a
    repeat) or `part` (joined neighbours: a level has at most 64 parts)."""
    name: Annotated[str, like("encoder.layer")]
    """Name of the node, or the part of their names that the nodes of a block share; empty if there is none."""
    number: int | None
    """Number of the first item of a round or a part; None for other kinds."""
    items: Count
    """Number of items: nodes, groups, or rounds of a repeat. If there are many, neighbours are joined to one part."""
    first: Count
    """Position of the first node in the order of the whole graph."""
    nodes: Count
    path: Annotated[str, like("graph.node[3]")]
    """Path of the first node."""
    ops: tuple[GraphOperator, ...]
    """The most frequent operators."""
    elements: Count
    """Number of elements of the weights; a weight that several nodes use counts for the first node."""
    bars: tuple[int, ...]
    """Number of elements of the weights in each of up to 24 equal stretches of the block."""
    weight: Annotated[str | None, like("path:graph.initializer[3]")]
    """Address of the largest weight."""


@dataclass(frozen=True, slots=True)
class GraphLink:
    """Values that one part of a level passes to another."""

    source: int | None
    """Index of the part that produces the values; None for parts outside of the block."""
    target: int | None
    """Index of the part that consumes the values; None for parts outside of the block."""
    count: Count
    value: GraphValue
    """The first of these values."""


@dataclass(frozen=True, slots=True)
class GraphLevel:
    """The parts of one block of a graph, in the order in which they are computed."""

    graphs: tuple[GraphEntry, ...]
    """The first graphs of the model."""
    graph: Annotated[str, like("graph")]
    """Path of the graph shown."""
    block: Count
    """Number of the block; 0 is the whole graph."""
    trail: tuple[int, ...]
    """Numbers of the blocks that contain this block, from the whole graph down to this block itself."""
    nodes: Count
    """Number of nodes in the graph."""
    parts: tuple[GraphBlock, ...]
    links: tuple[GraphLink, ...]
    inputs: tuple[GraphValue, ...]
    """For the whole graph: values that the graph takes, without weights."""
    outputs: tuple[GraphValue, ...]
    """For the whole graph: values that the graph returns."""


@dataclass(frozen=True, slots=True)
class GraphStep:
    """A node on a path between two other nodes."""

    path: Annotated[str, like("graph.node[3]")]
    name: Annotated[str, like("conv1")]
    op: Annotated[str, like("Conv")]


@dataclass(frozen=True, slots=True)
class GraphSection:
    """The nodes on all paths between two places in a graph."""

    count: Count
    """Number of nodes; 0 if no path leads from one place to the other."""
    elements: Count
    """Elements of the weights of these nodes."""
    spans: tuple[tuple[int, int], ...]
    """Runs of these nodes in the order of the graph: position of the first node, and number of nodes."""
    nodes: tuple[GraphStep, ...]
    """The first nodes."""
    weights: Annotated[tuple[str, ...], like(["conv1.weight"])]
    """The first weights that these nodes use or hold."""
    inputs: Annotated[tuple[str, ...], like(["x"])]
    """Names of the values that these nodes take from other nodes or from the inputs of the graph."""
    outputs: Annotated[tuple[str, ...], like(["y"])]
    """Names of the values that the last nodes produce."""


@dataclass(frozen=True, slots=True)
class RecordsSummary:
    """A summary of a stream of records."""

    file: Annotated[str, like("train.tfrecord")]
    """Path of the stream in its store."""
    framing: Annotated[str, like("tfrecord")]
    """`tfrecord`, `delimited`, `u32le`, `u32be`, `u64le`, `u64be`, `riegeli`, `array_record`, `tfrecord_gzip` or
    `tfrecord_zlib`."""
    type: str | None
    """Full name of the records' message type; None if it is unknown."""
    count: Count
    """Number of whole records."""
    size: Count
    """Bytes of the stream up to the end of the last whole record."""
    fault: str | None
    """Damage that cuts the stream short, with its offset; None if there is none."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A part that does not match the model's description of it."""

    part: str
    """Path of a file, or name of a tensor."""
    error: str


@dataclass(frozen=True, slots=True)
class DtypeTotal:
    """Totals of the tensors of one data type."""

    dtype: Annotated[str | None, like("F32")]
    """None for unknown types."""
    tensors: Positive
    elements: Count
    """Number of elements of the tensors with a valid shape."""
    size: Count
    """Bytes of the elements; strings do not count."""


@dataclass(frozen=True, slots=True)
class RoleTotal:
    """Totals of the tensors of one role."""

    role: Annotated[Role, like("weight")]
    tensors: Positive
    elements: Count
    """Number of elements of the tensors with a valid shape; of weights, the parameters of the model."""
    size: Count
    """Bytes of the elements; strings do not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReport:
    """A report on a model. Responses list at most 20 of each kind."""

    type: str | None
    tensors: Count | None
    """Number of tensors; None if they cannot be listed."""
    files: Annotated[tuple[str, ...], LOCAL] = ()
    """Files besides the root that hold tensors; empty in the report of a service."""
    missing: tuple[str, ...] = ()
    """Files that the model refers to, but that are not among its files."""
    duplicates: tuple[str, ...] = ()
    """Names used by several tensors."""
    damaged: tuple[Damage, ...] = ()
    dtypes: tuple[DtypeTotal, ...] = ()
    """Totals per data type, largest first."""
    totals: tuple[RoleTotal, ...] = ()
    """Totals per role, weights first."""
    complete: bool = True
    """False if a list is incomplete, or not all tensors were examined."""

    @property
    def problem(self) -> str | None:
        """The missing and the damaged parts in a sentence; None for a sound model."""
        names = ", ".join(map(repr, self.missing))
        said = [f"the model refers to missing files: {names}"] if self.missing else []
        said += [f"{damage.part}: {damage.error}" for damage in self.damaged]
        return "; ".join(said) or None
