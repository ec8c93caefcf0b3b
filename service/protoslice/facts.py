"""Dataclasses for facts about stores and their contents, which the library, the server and the client share.

These dataclasses define the JSON of the API. The server encodes them, and the client reads them. Their annotations and
docstrings become the descriptions in the OpenAPI document.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final, Literal

UNKNOWN: Final = "unknown"
"""The type of a root whose type is not known. In a request, it means that no schema should be used."""


class Keywords:
    """The JSON Schema keywords of a member, used as in `Annotated[int, Keywords(minimum=0)]`."""

    def __init__(self, **keywords: object) -> None:
        self._keywords = keywords

    def __get_pydantic_json_schema__(self, schema: Any, describe: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """Return pydantic's schema of the annotated type, with these keywords added to it."""
        return describe(schema) | self._keywords


def like(*examples: object) -> Keywords:
    """Return the keyword `examples`, which lists example values of a member."""
    return Keywords(examples=list(examples))


OMITTED: Final = "omitted"
"""An annotation for a member that the JSON leaves out if the member has its default value."""

SECRET: Final = "secret"
"""An annotation for a member that grants access.

A response with such a member is never compressed, because its length would leak the secret (the BREACH attack).
"""

LOCAL: Final = "local"
"""An annotation for a member that the JSON never contains."""

Count = Annotated[int, Keywords(minimum=0)]
Positive = Annotated[int, Keywords(minimum=1)]
Id = Annotated[str, Keywords(pattern="^[0-9a-f]{64}$")]
Sha256 = Annotated[str, Keywords(pattern="^[0-9a-f]{64}$")]


@dataclass(frozen=True, slots=True)
class File:
    """A file of a store."""

    path: Annotated[str, like("model.onnx")]
    size: Count
    """The size in bytes."""
    sha256: Sha256 | None
    """The SHA-256 in hex; None for a file that was registered in place."""


@dataclass(frozen=True, slots=True)
class StoreName:
    """A name that refers to a store."""

    protocol: Annotated[str, Keywords(enum=["tag", "hub", "oci", "mlflow"])]
    name: str
    """The name, such as `m:1`, `ann/m@main`, `ann/m:1` or `mlflow-artifacts:/folder`."""


@dataclass(frozen=True, slots=True)
class Store:
    """A store: an immutable set of files with an index and a split policy."""

    id: Id
    type: Annotated[str | None, like("onnx.ModelProto")]
    """The full type name of the root proto, or `unknown`; None for a store without a root."""
    root: Annotated[str | None, like("model.onnx")]
    """The path of the root proto; None if no file is a root."""
    size: Count
    """The total size of all files in bytes."""
    chunks: Count
    min_chunk: Positive
    max_chunk: Positive
    created: datetime
    tags: Annotated[tuple[str, ...], like(["resnet50:3"])]
    """The tags of the store, at most 100. `GET /v1/tags?store=` lists all tags."""
    files: tuple[File, ...]
    source: Annotated[str, like("upload")]
    """The way in which the files arrived, such as `upload` or `register`."""
    schema: Sha256 | None
    """The fingerprint of the schema with which the root is read; None for an unknown type."""
    planner: Positive | None
    """The version of the algorithm that chose the chunks; None for a store without chunks. Version 3 (in older
    stores, version 2) means that the store kept the chunks of an uploaded chunked file."""
    rules: tuple[str, ...] = ()
    """The split rules that took precedence over the sizes, in canonical form."""
    why: str | None = None
    """Why no root was found; None if there is a root."""
    records_file: Annotated[str | None, like("train.tfrecord")] = None
    """The path of a file that is a stream of records, which `file=` of `/records` accepts. It is None if no such file
    was recognized. Streams of delimited records are not recognized, nor are streams in stores of earlier versions."""
    uploader: Annotated[str | None, like("ci")] = None
    """The name of the token or account that created the store; None if the service required no credentials."""
    uploader_id: Annotated[str | None, like("kU3x9QbW1z")] = None
    """The id of the token or account that created the store; None if it is unknown. The id is unique, but several
    tokens or accounts may have the same name."""
    description: Annotated[str, like("Fine-tuned on the May data.")] = ""
    """A text for people. It can be changed, unlike the files of the store."""
    names: tuple[StoreName, ...] = ()
    """The names that refer to the store, at most 100: tags and names in registries. The response to an upload contains
    only tags."""


@dataclass(frozen=True, slots=True)
class Removed:
    """A removed store, and the tags removed with it."""

    id: Id
    tags: tuple[str, ...]
    """The tags that were removed with the store."""
    restorable_until: datetime
    """The time until which the removal can be undone."""


@dataclass(frozen=True, slots=True)
class Restored:
    """A store whose removal was undone."""

    store: Store
    tags_taken: tuple[str, ...]
    """The tags that were not restored, because they now refer to another store."""


@dataclass(frozen=True, slots=True)
class Tag:
    """A movable name for a store."""

    name: Annotated[str, like("resnet50:3")]
    store: Id
    """The id of the store."""
    updated: datetime


@dataclass(frozen=True, slots=True)
class RepositorySummary:
    """A repository of a model registry, and the store of its current version."""

    name: Annotated[str, like("ann/resnet")]
    """The name that clients of the registry use. For MLflow, it is the URI of an artifact folder."""
    protocol: Annotated[str, Keywords(enum=["hub", "oci", "mlflow"])]
    """The kind of registry client that created the repository."""
    ref: Annotated[str | None, like("ann/resnet@main")]
    """The name of the current version under `/v1/stores`. The current version is `main`, the tag `latest`, or the tag
    that was set last.

    `ref`, `store`, `type`, `size` and `files` are None for a repository without files, and for an MLflow folder that
    was never requested."""
    store: Id | None
    """The id of the store; None if there is no store yet, or if it was removed."""
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
    """The name of this version under `/v1/stores`."""
    store: Id
    updated: datetime


@dataclass(frozen=True, slots=True)
class SignInTerms:
    """The facts for signing in at a service: the issuer, the issuer's public client, and the scopes to request."""

    issuer: str
    client_id: str
    scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SignedUrl:
    """A signed URL. A request to this URL needs no token."""

    url: Annotated[str, SECRET]
    expires: datetime


@dataclass(frozen=True, slots=True)
class WebhookFacts:
    """A webhook of a space."""

    name: str
    url: str
    events: tuple[str, ...]
    """The types of events that the webhook receives. An empty list means all types."""
    created: datetime
    secret: Annotated[str, OMITTED, SECRET] = ""
    """The HMAC key for `webhook-signature`, written as `whsec_` and base64. Only the response to `PUT` contains it."""


@dataclass(frozen=True, slots=True)
class EventLetter:
    """An event that was not delivered to a webhook."""

    id: str
    type: str
    subject: str
    written: datetime
    attempts: int
    error: str
    """The reason why the last attempt failed; empty before the first attempt."""


@dataclass(frozen=True, slots=True)
class Redelivered:
    """The answer to a request for another delivery of failed events. `letters` is the number of these events."""

    letters: Count


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A change, and the token, account or user that made it."""

    at: datetime
    who: Annotated[str, like("ci")]
    """The name of the token or account that made the change. For a command that was run directly on the storage, it
    is the name of the operating system's user. It is empty for the service itself, and if the service requires no
    credentials."""
    what: Annotated[str, like("tag.set")]
    subject: Annotated[str, like("resnet:3")]
    """The changed object: the id of a store or token, or the name of another object."""
    detail: dict[str, Any]
    transaction: str
    """An id that is the same for all changes that were made together."""
    who_id: Annotated[str, like("kU3x9QbW1z")] = ""
    """The id of the token, or of the account at an issuer. Several tokens or accounts may have the same name. The id is
    `local` for a user of the operating system, and empty if it is unknown."""


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token of a service."""

    id: str
    name: str
    space: str
    """The space in which the token is valid; `*` for all spaces."""
    scopes: tuple[Annotated[str, Keywords(enum=["read", "write", "delete", "register", "schemas", "admin"])], ...]
    tags: tuple[str, ...]
    """The patterns of tags that the token may set and remove; empty if it may change any tag."""
    created: datetime
    expires: datetime | None
    used: datetime | None = None
    """The time of the token's last use; None if the token was never used. The time may be up to an hour too early.
    Signed URLs do not count as use."""
    token: Annotated[str, OMITTED, SECRET] = ""
    """The token itself. Only the response that creates the token contains it."""


@dataclass(frozen=True, slots=True)
class Space:
    """A space: an isolated tenant with separate stores, tags and schemas. The facts include its usage and quota."""

    name: str
    """The name: at most 63 lower-case letters, digits and '-'. The API of the space is below `/spaces/{name}`."""
    stored_bytes: int = 0
    """The bytes of uploaded objects. Objects of removed stores count until `gc` deletes them."""
    stores: int = 0
    quota_bytes: int = 0
    """The maximum number of stored bytes; 0 for no limit."""
    quota_stores: int = 0
    """The maximum number of stores; 0 for no limit."""
    quota_open_uploads: int = 0
    """The maximum number of unfinished resumable uploads; 0 for no limit."""
    quota_requests: int = 0
    """The maximum number of concurrent requests per replica; 0 for no limit."""


@dataclass(frozen=True, slots=True)
class Schema:
    """An uploaded descriptor set."""

    name: str
    size: Count
    """The size in bytes."""
    messages: Count
    """The number of message types that the descriptor set declares."""
    updated: datetime


@dataclass(frozen=True, slots=True)
class ChunkEntry:
    """A chunk in the chunk table of a store."""

    index: Count
    kind: Annotated[str, Keywords(enum=["message", "bytes"])]
    type: str | None
    """The full name of the message type; None for a chunk of plain bytes, and if the type is unknown."""
    path: str
    size: Count
    """The size in bytes."""
    sha256: Sha256 | None
    """The SHA-256 in hex; None if digests were not requested."""
    problem: str | None = None
    """The reason why protobuf runtimes cannot parse the chunk (it is larger than 2 GiB), and a remedy."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a file. The ordered pieces of a store cover every byte of the store's files."""

    file: Annotated[str, like("model.onnx")]
    offset: Count
    size: Positive
    sha256: Sha256

    @property
    def end(self) -> int:
        """The offset, in the file, of the first byte after the piece."""
        return self.offset + self.size


@dataclass(frozen=True, slots=True)
class PiecePlace:
    """A place of a piece: store, file and offset. Several stores may contain the same piece."""

    sha256: Sha256
    size: Positive
    store: Id
    """The id of the store."""
    file: str
    offset: Count


@dataclass(frozen=True, slots=True)
class MissingPieces:
    """The requested pieces that the service lacks, and the places of all other requested pieces."""

    missing: tuple[Sha256, ...]
    found: tuple[PiecePlace, ...]
    bases: tuple[Id, ...] = ()
    """The ids of the stores to which the tags in the request refer."""


@dataclass(frozen=True, slots=True)
class Node:
    """A field or an element of a proto, with its path, type and size."""

    path: str
    field: int
    """The field number."""
    name: str | None
    """The field name; None if no schema declares the field."""
    kind: str | None
    """The kind of the field: `message` or a scalar kind; None if no schema declares the field."""
    type: str | None
    """The full name of the message or enum type; None for other kinds."""
    count: int | None
    """The number of elements of a repeated field; None for other fields, and for a single element."""
    size: Count
    """The serialized size in bytes."""
    deeper: bool
    """True if the node has children."""
    text: str | None
    """The value of a scalar or a short string."""
    children: Annotated[tuple[Node, ...], OMITTED] = ()
    """The child nodes. `children` and `more` are set only for nodes within the requested depth."""
    more: Annotated[int | None, OMITTED] = None
    """The number of children that are not listed."""

    @property
    def number(self) -> int:
        """The field number."""
        return self.field


Role = Literal["weight", "optimizer", "constant", "other"]
Kind = Literal["attention", "linear", "convolution", "normalization", "embedding", "recurrent", "quantization", "other"]


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """A tensor of a store or a model."""

    name: Annotated[str, like("conv1.weight")]
    """The name in the model. Several tensors may share a name."""
    address: Annotated[str, like("path:graph.initializer[3]")]
    """The address, which identifies the tensor even if several tensors share its name."""
    dtype: Annotated[str | None, like("F32")]
    """The data type; None if it is unknown."""
    shape: tuple[int, ...] | None
    """The length of each dimension; None if the shape is invalid."""
    size: Count | None
    """The size of the elements in bytes; None for strings."""
    file: str | None
    """The file that contains the elements; None if no file or several files contain them."""
    role: Annotated[Role, like("weight")]
    """The role of the tensor. The elements of all tensors with the role `weight` are the model's parameters."""
    kind: Annotated[Kind, like("convolution")]
    """The kind of the layer that uses the tensor. It follows from the operator that uses the tensor. In a model without
    a graph, it follows from words in the tensor's name."""
    problem: Annotated[str | None, OMITTED] = None
    """The reason why the elements cannot be read; None if they can be read."""


@dataclass(frozen=True, slots=True)
class TensorBranch:
    """A node in a tree of tensor names. It is a group of names with a common prefix, a range of groups, or a tensor."""

    name: Annotated[str, like("layer.3.")]
    """The common prefix of the names, without the parent's prefix. For a range, it is the name of the first group."""
    start: Count
    """The position of the first tensor in the order of names."""
    tensors: Count
    size: Count
    """The size of the elements in bytes. Strings do not count."""
    elements: Count
    dtype: Annotated[str | None, like("F32")]
    """The data type whose tensors have the most bytes; None if this type is unknown."""
    kind: Annotated[Kind | None, like("attention")]
    """The kind of layer whose tensors have the most bytes; None without tensors."""
    last: Annotated[str | None, OMITTED] = None
    """The name of the last group in a range. The names in a range have only the parent's prefix in common."""
    address: Annotated[str | None, OMITTED] = None
    """The address of the tensor, if this node is a tensor."""
    shape: Annotated[tuple[int, ...] | None, OMITTED] = None
    parameters: Annotated[Count | None, OMITTED] = None
    """The number of elements that belong to weights; None if all elements do."""
    children: Annotated[tuple[TensorBranch, ...], OMITTED] = ()
    """The groups and tensors in natural order; empty for a tensor, and for a group that is not opened."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of numbers in bins of equal width."""

    start: float
    """The start of the first bin. Each bin includes its start, and ends before the start of the next bin."""
    width: float
    """The width of each bin, which is a power of two. The start of every bin is a multiple of the width."""
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorStatistics:
    """Statistics of a tensor or of a slice. Complex numbers count with their magnitudes."""

    name: str
    address: str
    dtype: Annotated[str, like("F32")]
    shape: tuple[int, ...]
    """The shape of the slice, or of the whole tensor."""
    elements: Count
    """The number of elements in the slice or tensor."""
    looked_at: Count
    """The number of elements that were read. It is smaller than `elements` if only a sample was read."""
    zeros: Count
    nans: Count
    infinities: Count
    min: float | None
    """The smallest finite element. `min`, `max`, `mean` and `deviation` are None if there are no finite elements, or if
    a 64-bit float cannot hold them."""
    max: float | None
    mean: float | None
    deviation: float | None
    """The standard deviation of the elements that were read."""
    histogram: Histogram | None
    """The finite elements in at most 64 bins; None without finite elements."""


Compared = Literal["file", "tensor", "part"]
Change = Literal["added", "removed", "changed", "renamed", "reordered"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between two stores or models."""

    what: Compared
    path: Annotated[str, like("graph.node[3]")]
    """The path of the file or part, or the name of the tensor. It is taken from the second model, or from the first
    model for `removed`."""
    change: Change
    before: Count | None
    """The size in bytes in the first model; None for `added`, and if the size is unknown."""
    after: Count | None
    """The size in bytes in the second model; None for `removed`, and if the size is unknown."""
    detail: Annotated[str, like("F32 2 → F32 3")] = ""
    """Details, such as both values of a scalar or the old name of a tensor."""
    address: str = ""
    """The address of the tensor, or the path of the part; empty for files and removed tensors."""
    was: str = ""
    """The address of the tensor, or the path of the part, in the first model; empty for files and added tensors."""


@dataclass(frozen=True, slots=True)
class TensorDelta:
    """The distances between the elements of two tensors. A complex number counts as two elements."""

    dtype: Annotated[str, like("F32")]
    shape: tuple[int, ...]
    elements: Count
    """The number of elements of each tensor."""
    looked_at: Count
    """The number of compared elements. It is smaller than `elements` if only a sample was compared."""
    changed: Count
    """The number of compared elements that differ."""
    incomparable: Count
    """The number of changed elements that are NaN or infinite in at least one of the tensors. `max`, `mean`, `relative`
    and `cosine` leave them out."""
    max: float | None
    """The maximum distance; None without finite elements, and if a 64-bit float cannot hold the distance."""
    mean: float | None
    """The mean distance; None without finite elements."""
    relative: float | None
    """The norm of the difference divided by the norm of the first tensor; None if the first tensor's norm is zero."""
    cosine: float | None
    """The cosine similarity of the two tensors as vectors; None if one of them is zero."""


Move = Literal["compared", "renamed", "reshaped", "added", "removed"]


@dataclass(frozen=True, slots=True)
class TensorMove:
    """A tensor of two models, and the change of its elements. A removed tensor is described as in the first model."""

    name: str
    address: str
    """The address in the second model; empty for a removed tensor."""
    was: str | None
    """The name in the first model; None unless it differs from `name`."""
    was_address: str
    """The address in the first model; empty for an added tensor."""
    dtype: str | None
    shape: tuple[int, ...] | None
    size: Count | None
    kind: Annotated[Kind, like("linear")]
    """The kind of the layer that uses the tensor."""
    layer: Annotated[str, like("model.layers.0")]
    """The tensor's name up to the end of its first number. A name without a number is cut at the first `.`, `/` or `:`
    after its beginning."""
    change: Move
    """The change. `reshaped` means that type or shape differ. `compared` means that type, shape and name are equal."""
    delta: TensorDelta | None
    """The distances between a sample of the elements; None if the elements cannot be compared."""


@dataclass(frozen=True, slots=True)
class EqualTensors:
    """Tensors of one kind, in a layer or a run of consecutive layers, without differences in the compared elements."""

    layer: Annotated[str, like("model.layers.0")]
    """The layer of the tensors, as in `TensorMove`, or the first layer of a run."""
    last: Annotated[Count | None, like(31)]
    """The number of the last layer of a run; None for a single layer. All layers of a run have the same `count`."""
    kind: Annotated[Kind, like("attention")]
    count: Annotated[Positive, like(4)]
    """The number of equal tensors in each layer."""


@dataclass(frozen=True, slots=True)
class TensorMoves:
    """A page of the tensors of two models. The tensors form pairs, which are sorted by name."""

    items: tuple[TensorMove, ...]
    """The tensors that changed, that only one of the models has, or that could not be compared."""
    equal: tuple[EqualTensors, ...]
    """All other tensors of the page, grouped by layer and kind."""
    compared: Count
    """The number of pairs on this page."""
    total: Count
    """The number of pairs on all pages."""
    next: str | None
    """The `cursor` of the next page; None on the last page."""


@dataclass(frozen=True, slots=True)
class SignatureTensor:
    """An input or an output of a signature."""

    name: Annotated[str, like("images")]
    """The name of the argument or result in a call of the signature."""
    tensor: Annotated[str | None, like("x:0")]
    """The name in the graph; None for a tensor that consists of several tensors, such as a sparse tensor."""
    dtype: Annotated[str | None, like("F32")]
    """The data type; None for resources, variants and unknown types."""
    shape: tuple[int | None, ...] | None
    """The length of each dimension. An unknown length is None. If the rank is unknown, the whole shape is None."""


@dataclass(frozen=True, slots=True)
class Signature:
    """A signature: the inputs and outputs of a model. Models of TensorFlow may have several, other models have one."""

    name: Annotated[str, like("serving_default")]
    method: Annotated[str, like("tensorflow/serving/predict")]
    """The name of the method; empty if the model states none."""
    tags: Annotated[tuple[str, ...], like(["serve"])]
    """The tags of the meta graph that contains the signature."""
    inputs: tuple[SignatureTensor, ...]
    outputs: tuple[SignatureTensor, ...]


@dataclass(frozen=True, slots=True)
class GraphEntry:
    """A graph of a model: the main graph, or the graph of a function, a branch or a computation."""

    path: Annotated[str, like("graph")]
    """The path of the message that contains the nodes; empty for the root."""
    name: str
    """The name of the function, graph or computation, or the path if there is no name."""
    nodes: Count


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node of a graph."""

    name: Annotated[str, like("conv1")]
    """The name; empty if the node has none."""
    op: Annotated[str, like("Conv")]
    path: Annotated[str, like("graph.node[3]")]
    hops: Count
    """The number of links from the node that `around` selects to this node; 0 without `around`."""
    attributes: tuple[tuple[str, str], ...]
    """The names and values of the attributes as text. Long values are truncated."""
    weights: Annotated[tuple[str, ...], like(["conv1.weight"])]
    """The names of the tensors that the node uses or holds."""
    more: Count
    """The number of links whose other node is not in the response."""
    outputs: Annotated[tuple[str, ...], like(["conv1_out"])]
    """The names of the first values that the node produces; empty for a node that is too large."""


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """A value that one node passes to another."""

    source: Annotated[str, like("graph.node[3]")]
    """The path of the node that produces the value."""
    target: Annotated[str, like("graph.node[4]")]
    """The path of the node that consumes the value."""
    value: Annotated[str, like("conv1_out")]
    input: Count
    """The position of the value among the target's inputs."""


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """A part of one graph: some of its nodes, and the values that these nodes exchange."""

    graphs: tuple[GraphEntry, ...]
    """The first graphs of the model."""
    graph_count: Count
    """The number of all graphs of the model."""
    graph: Annotated[str, like("graph")]
    """The path of the graph to which the nodes belong."""
    around: str | None
    """The path of the node that the parameter `around` selects; None without this parameter."""
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
    """The length of each dimension. An unknown length is None. If the model states no shape, the whole shape is None.
    """


@dataclass(frozen=True, slots=True)
class GraphOperator:
    """An operator in a block, and the number of its nodes."""

    op: Annotated[str, like("Conv")]
    nodes: Count
    """The number of nodes with this operator."""


@dataclass(frozen=True, slots=True)
class GraphBlock:
    """A part of a graph: a single node, or a block of neighbouring nodes."""

    id: int | None
    """The number of this block, which a client passes to list the block's parts; None for a single node."""
    kind: Annotated[str, like("repeat")]
    """The kind: `node`, `group`, `repeat`, `round` or `part`. The nodes of a `group` have names with a common prefix. A
    `repeat` consists of parts that look the same, and a `round` is one of these parts. A `part` joins neighbouring
    items, because a level has at most 64 parts."""
    name: Annotated[str, like("encoder.layer")]
    """The name of the node, or the common part of the names of a block's nodes; empty if there is none."""
    number: int | None
    """The number of the first item in a round or a part; None for other kinds."""
    items: Count
    """The number of items, which are nodes, groups, or rounds of a repeat. If there are many items, neighbouring
    items are joined to one part."""
    first: Count
    """The position of the first node in the order of the whole graph."""
    nodes: Count
    path: Annotated[str, like("graph.node[3]")]
    """The path of the first node."""
    ops: tuple[GraphOperator, ...]
    """The most frequent operators."""
    elements: Count
    """The number of elements of all weights. A weight that several nodes use counts only for the first of them."""
    bars: tuple[int, ...]
    """The numbers of weight elements in up to 24 equally long sections of the part, in order."""
    weight: Annotated[str | None, like("path:graph.initializer[3]")]
    """The address of the largest weight; None without weights."""


@dataclass(frozen=True, slots=True)
class GraphLink:
    """The values that one part of a level passes to another part."""

    source: int | None
    """The index of the part that produces the values; None for a part outside of the block."""
    target: int | None
    """The index of the part that consumes the values; None if that part is outside of the block."""
    count: Count
    value: GraphValue
    """The first of these values."""


@dataclass(frozen=True, slots=True)
class GraphLevel:
    """The parts of one block of a graph, in the order in which they are computed."""

    graphs: tuple[GraphEntry, ...]
    """The first graphs of the model."""
    graph: Annotated[str, like("graph")]
    """The path of the graph to which the block belongs."""
    block: Count
    """The number of the block; 0 is the whole graph."""
    trail: tuple[int, ...]
    """The numbers of the blocks on the way from the whole graph to this block. Both ends are included."""
    nodes: Count
    """The number of nodes in the graph."""
    parts: tuple[GraphBlock, ...]
    links: tuple[GraphLink, ...]
    inputs: tuple[GraphValue, ...]
    """The values that the graph takes, without weights; empty unless the block is the whole graph."""
    outputs: tuple[GraphValue, ...]
    """The values that the graph returns; empty unless the block is the whole graph."""


@dataclass(frozen=True, slots=True)
class GraphStep:
    """A node on a path between two places in a graph."""

    path: Annotated[str, like("graph.node[3]")]
    name: Annotated[str, like("conv1")]
    op: Annotated[str, like("Conv")]


@dataclass(frozen=True, slots=True)
class GraphSection:
    """The nodes on all paths between two places in a graph."""

    count: Count
    """The number of nodes; 0 if no path leads from one place to the other."""
    elements: Count
    """The number of elements of the weights that these nodes use or hold."""
    spans: tuple[tuple[int, int], ...]
    """The positions of these nodes in the graph's order. Each span holds the position of its first node, and the number
    of its nodes."""
    nodes: tuple[GraphStep, ...]
    """The first of these nodes."""
    weights: Annotated[tuple[str, ...], like(["conv1.weight"])]
    """The first weights that these nodes use or hold."""
    inputs: Annotated[tuple[str, ...], like(["x"])]
    """The names of the values that these nodes take from other nodes or from the inputs of the graph."""
    outputs: Annotated[tuple[str, ...], like(["y"])]
    """The names of the values that the last nodes produce."""


@dataclass(frozen=True, slots=True)
class RecordsSummary:
    """A summary of a stream of records."""

    file: Annotated[str, like("train.tfrecord")]
    """The path of the stream in its store."""
    framing: Annotated[str, like("tfrecord")]
    """The framing: `tfrecord`, `delimited`, `u32le`, `u32be`, `u64le`, `u64be`, `riegeli`, `array_record`,
    `tfrecord_gzip` or `tfrecord_zlib`."""
    type: str | None
    """The full name of the records' message type; None if it is unknown."""
    count: Count
    """The number of complete records."""
    size: Count
    """The bytes of the stream up to the end of the last complete record."""
    fault: str | None
    """The damage at which the records end, with its offset; None if the stream is not damaged."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged part of a model: it does not match what the model states about it."""

    part: str
    """The path of a file, or the name of a tensor."""
    error: str


@dataclass(frozen=True, slots=True)
class DtypeTotal:
    """The totals of all tensors with one data type."""

    dtype: Annotated[str | None, like("F32")]
    """The data type; None for unknown types."""
    tensors: Positive
    elements: Count
    """The number of elements of the tensors with a valid shape."""
    size: Count
    """The size of the elements in bytes. Strings do not count."""


@dataclass(frozen=True, slots=True)
class RoleTotal:
    """The totals of all tensors with one role."""

    role: Annotated[Role, like("weight")]
    tensors: Positive
    elements: Count
    """The number of elements of the tensors with a valid shape. For weights, these are the parameters of the model."""
    size: Count
    """The size of the elements in bytes. Strings do not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReport:
    """A report on a model. It lists at most 20 missing files, 20 duplicate names and 20 damaged parts."""

    type: str | None
    tensors: Count | None
    """The number of tensors; None if they cannot be listed."""
    files: Annotated[tuple[str, ...], LOCAL] = ()
    """The files other than the root that contain tensors; empty in a report that a service sends."""
    missing: tuple[str, ...] = ()
    """The files that the model refers to, but that are missing."""
    duplicates: tuple[str, ...] = ()
    """The names that several tensors share."""
    damaged: tuple[Damage, ...] = ()
    dtypes: tuple[DtypeTotal, ...] = ()
    """The totals per data type, the largest first."""
    totals: tuple[RoleTotal, ...] = ()
    """The totals per role, weights first."""
    complete: bool = True
    """False if a list is incomplete, or not all tensors were examined."""

    @property
    def problem(self) -> str | None:
        """A sentence that names the missing files and the damaged parts; None if there are none."""
        names = ", ".join(map(repr, self.missing))
        said = [f"the model refers to missing files: {names}"] if self.missing else []
        said += [f"{damage.part}: {damage.error}" for damage in self.damaged]
        return "; ".join(said) or None
