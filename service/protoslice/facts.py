"""Facts about stores and their contents, shared by library, stores, server and client; plain values.

Things that hold bytes have classes of their own: `library.Chunk`, `formats.model.Tensor`. A listing of these is made of
`ChunkEntry` and `TensorEntry`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

UNKNOWN: Final = "unknown"
"""The type of a root whose type is not known; in a request, the wish that no schema is used."""


@dataclass(frozen=True, slots=True)
class File:
    """A file of a store."""

    path: str
    size: int
    """In bytes."""
    sha256: str | None
    """In hex; None for a file that was registered in place."""


@dataclass(frozen=True, slots=True)
class StoreName:
    """A name that refers to a store, and its protocol: `tag`, `hub`, `oci` or `mlflow`."""

    protocol: str
    name: str
    """`m:1`, `ann/m@main`, `ann/m:1` or `mlflow-artifacts:/folder`."""


@dataclass(frozen=True, slots=True)
class Store:
    """A store: an immutable set of files, one of which may be the root proto."""

    id: str
    type: str | None
    """Full name of the root's type, or `unknown`; None for a store without a root."""
    root: str | None
    """Path of the root proto; None for a store of which no file is one."""
    size: int
    """Bytes of all files."""
    chunks: int
    min_chunk: int
    max_chunk: int
    created: datetime
    tags: tuple[str, ...]
    """The first of its tags, at most 100."""
    files: tuple[File, ...]
    source: str
    """`upload`, `register` or the like: the way its files came."""
    schema: str | None
    """Fingerprint of the schema that the root is read by; None for an unknown type."""
    planner: int | None
    """Version of the planner of the chunks, 3 or 2 if the root came with them; None if it is no proto."""
    why: str | None = None
    """One sentence on why there is no root; None for a store with a root."""
    rules: tuple[str, ...] = ()
    """Rules that the chunks were cut by before the sizes, in canonical form."""
    names: tuple[StoreName, ...] = ()
    """The first of its names in all protocols; only a service knows those of registries."""


@dataclass(frozen=True, slots=True)
class Removed:
    """A store that was removed."""

    id: str
    tags: tuple[str, ...]
    """Tags that were removed with it."""
    restorable_until: datetime
    """Until then `restore` takes the removal back."""


@dataclass(frozen=True, slots=True)
class Restored:
    """A store whose removal was taken back."""

    store: Store
    tags_taken: tuple[str, ...]
    """Tags that it had before, and that point at other stores by now."""


@dataclass(frozen=True, slots=True)
class Tag:
    """A movable name for a store."""

    name: str
    store: str
    """Id of the store."""
    updated: datetime


@dataclass(frozen=True, slots=True)
class RepositorySummary:
    """A repository of a registry's clients, and the store of its head."""

    name: str
    """As its clients name it; of MLflow the URI of a folder of artifacts."""
    protocol: str
    """`hub`, `oci` or `mlflow`: whose clients filled it."""
    ref: str | None
    """Name of the head as a store; None for a repository without files."""
    store: str | None
    """Id of the store; None, with its facts, where no store has been made yet or the store was removed."""
    type: str | None
    size: int | None
    files: int | None
    updated: datetime


@dataclass(frozen=True, slots=True)
class RepositoryVersion:
    """A branch or tag of a repository that has files."""

    name: str
    kind: str
    """`branch` or `tag`."""
    ref: str
    """Name of the version as a store."""
    store: str
    """Id of the store."""
    updated: datetime


@dataclass(frozen=True, slots=True)
class SignInTerms:
    """Way in which people sign in at a service: the issuer, its public client, and the scopes to ask for."""

    issuer: str
    client_id: str
    scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SignedUrl:
    """A URL that is permission to read what it names."""

    url: str
    expires: datetime


@dataclass(frozen=True, slots=True)
class WebhookFacts:
    """A webhook of a space."""

    name: str
    url: str
    events: tuple[str, ...]
    """Types of events that it gets; none: all."""
    created: datetime
    secret: str = ""
    """Key of its signatures, where it has just been put; else empty."""


@dataclass(frozen=True, slots=True)
class EventLetter:
    """An event that a webhook has not taken."""

    id: str
    type: str
    subject: str
    written: datetime
    attempts: int
    error: str
    """Reason of the last failure; empty before the first attempt."""


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token of a service."""

    id: str
    name: str
    space: str
    """Space that it holds in; `*` is every space."""
    scopes: tuple[str, ...]
    tags: tuple[str, ...]
    """Patterns that tags have to match; none: any tag."""
    created: datetime
    expires: datetime | None
    token: str = ""
    """The token itself, where it has just been made; else empty."""


@dataclass(frozen=True, slots=True)
class Space:
    """A space of a service, with what it holds and its quota; a limit of 0 is none."""

    name: str
    stored_bytes: int = 0
    """Bytes of the objects of uploads; of removed stores until they are collected."""
    stores: int = 0
    counted: datetime | None = None
    """Time of the last collection, which counts anew; None before the first."""
    quota_bytes: int = 0
    quota_stores: int = 0
    quota_open_uploads: int = 0
    quota_requests: int = 0


@dataclass(frozen=True, slots=True)
class Schema:
    """An uploaded descriptor set."""

    name: str
    size: int
    """In bytes."""
    messages: int
    """Number of message types."""
    updated: datetime


@dataclass(frozen=True, slots=True)
class ChunkEntry:
    """A chunk, as the chunk table of a store lists it."""

    index: int
    kind: str
    """`message` or `bytes`."""
    type: str | None
    """Full name of the message type; None for bytes, and where it is not known."""
    path: str
    size: int
    """In bytes."""
    sha256: str | None
    """In hex; None in a table without digests."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a file: the pieces of a store cover every byte of its files, in order."""

    file: str
    offset: int
    size: int
    sha256: str

    @property
    def end(self) -> int:
        """Offset of the first byte behind it in its file."""
        return self.offset + self.size


@dataclass(frozen=True, slots=True)
class PiecePlace:
    """A place where the bytes of a piece lie: several stores may hold it."""

    sha256: str
    size: int
    store: str
    """Id of the store."""
    file: str
    offset: int


@dataclass(frozen=True, slots=True)
class Node:
    """One thing in the tree of a proto: a field, or an element of one."""

    path: str
    field: int
    """Field number."""
    name: str | None
    """Field name; None without a schema that knows the field."""
    kind: str | None
    """`message`, or the kind of a scalar; None for a field that no schema knows."""
    type: str | None
    """Full name of the message or enum type; None for other kinds."""
    count: int | None
    """Number of elements; None for a field that is not repeated, and for one element."""
    size: int
    """In bytes, as serialized."""
    deeper: bool
    """True where the node has children."""
    text: str | None
    """Value of a scalar or a short string; None for others."""
    children: tuple[Node, ...] = ()
    """Children, as far as a depth beyond 1 was asked for."""
    more: int | None = None
    """Number of further children; None for a node whose children were not asked for."""

    @property
    def number(self) -> int:
        """Field number."""
        return self.field


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """A tensor, as a listing shows it."""

    name: str
    """The name that its format gives it; several tensors may share one."""
    address: str
    """Unique in the model."""
    dtype: str | None
    """Data type, such as `F32`; None for a type that no reader knows."""
    shape: tuple[int, ...] | None
    """Lengths per dimension; None where the model has no valid shape."""
    size: int | None
    """Bytes of its elements, one by one; None for strings."""
    file: str | None
    """Path of the file that holds its bytes; None for several, or none."""
    kind: str
    """Role in the model: `initializer`, `variable` …"""
    problem: str | None = None
    """One sentence on why its bytes cannot be had; None for a sound tensor."""


@dataclass(frozen=True, slots=True)
class TensorGroup:
    """Tensors whose names begin alike."""

    prefix: str
    """Beginning of all of their names, up to the end of a step; the whole name of a group of one name."""
    tensors: int
    """Number of tensors."""
    size: int
    """Bytes of their elements together; strings count for nothing."""
    tensor: TensorEntry | None
    """The tensor of a group of one; None for more."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of numbers in bins of one width."""

    start: float
    """Beginning of the first bin; each holds the numbers from its beginning up to that of the next."""
    width: float
    """Width of each bin: a power of two, of which every beginning is a multiple."""
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorStatistics:
    """Statistics of a tensor or of a slice. Those of complex numbers are of their magnitudes."""

    name: str
    address: str
    dtype: str
    shape: tuple[int, ...]
    """Shape of the slice, or of the whole."""
    elements: int
    """Number of elements of that shape."""
    looked_at: int
    """Number of elements that the statistics are of; less than `elements` for a sample."""
    zeros: int
    nans: int
    infinities: int
    min: float | None
    """Least of the finite elements; this and the next three are None without one, or beyond 64-bit floats."""
    max: float | None
    mean: float | None
    deviation: float | None
    """Standard deviation of the elements looked at."""
    histogram: Histogram | None
    """The finite elements in at most 64 bins; None without one."""


Compared = Literal["file", "tensor", "part"]
Change = Literal["added", "removed", "changed", "renamed", "reordered"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing in which a second model differs from a first."""

    what: Compared
    path: str
    """Path of a file or a part, name of a tensor: in the second model, or in the first for a removal."""
    change: Change
    before: int | None
    """Size in the first model, in bytes; None for an addition."""
    after: int | None
    """Size in the second model, in bytes; None for a removal."""
    detail: str = ""
    address: str = ""
    """Address of a tensor in the second model, path of a part; empty for files and removed tensors."""
    was: str = ""
    """Address or path in the first model; empty for files and added tensors."""


@dataclass(frozen=True, slots=True)
class TensorDelta:
    """Distances between the elements of two tensors; halves of complex numbers are elements of their own."""

    dtype: str
    shape: tuple[int, ...]
    elements: int
    """Number of elements of that shape."""
    looked_at: int
    """Number of elements that were compared; less than `elements` for a sample."""
    changed: int
    """Number of these that differ."""
    incomparable: int
    """Number of changed elements of which one is NaN or infinite; the rest is told of the others."""
    max: float | None
    """Greatest distance of two elements; None where there are no finite ones, or beyond 64-bit floats."""
    mean: float | None
    """Mean distance of the elements."""
    cosine: float | None
    """Cosine of the angle between both as vectors; None where one of them is zero."""


@dataclass(frozen=True, slots=True)
class SignatureTensor:
    """An input or an output of a signature."""

    name: str
    """The name by which a call gives or gets it."""
    tensor: str | None
    """Name of the tensor in the graph, such as `x:0`; None for one made of several, such as a sparse one."""
    dtype: str | None
    """Data type, such as `F32`; None for resources, variants, and types that no reader knows."""
    shape: tuple[int | None, ...] | None
    """Lengths per dimension, None for any length; None for any number of dimensions."""


@dataclass(frozen=True, slots=True)
class Signature:
    """A call that a meta graph of a SavedModel offers."""

    name: str
    method: str
    """Name of the method, such as `tensorflow/serving/predict`; empty if the model gives none."""
    tags: tuple[str, ...]
    """Tags of its meta graph."""
    inputs: tuple[SignatureTensor, ...]
    outputs: tuple[SignatureTensor, ...]


@dataclass(frozen=True, slots=True)
class GraphEntry:
    """A graph of a model: the main one, one of a function, of a branch, of a computation."""

    path: str
    """Path of the message that holds its nodes; empty for the root."""
    name: str
    """Name of a function, a graph or a computation; the path where it has none."""
    nodes: int


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node of a graph."""

    name: str
    """Empty for one without a name."""
    op: str
    path: str
    hops: int
    """Links between it and the node in the middle."""
    attributes: tuple[tuple[str, str], ...]
    """Names and values as text; long values are cut."""
    weights: tuple[str, ...]
    """Names of tensors that the node takes or holds."""
    more: int
    """Links to nodes that are not shown."""


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """A value on its way between two nodes."""

    source: str
    """Path of the node that makes it."""
    target: str
    """Path of the node that takes it."""
    value: str
    input: int
    """Position among the inputs of the target."""


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """A part of one graph."""

    graphs: tuple[GraphEntry, ...]
    """The first graphs of the model."""
    graph_count: int
    graph: str
    """Path of the graph shown."""
    around: str | None
    """Path of the node in the middle; None where there is none, and `nodes` are some to begin with."""
    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]
    more: bool
    """True when more nodes lie within the hops, or are found, or more values go between those shown."""


@dataclass(frozen=True, slots=True)
class RecordsSummary:
    """A stream of records, as a whole."""

    file: str
    """Path in its store."""
    framing: str
    """`tfrecord`, `delimited`, `u32le`, `u32be`, `u64le`, `u64be` or `riegeli`."""
    type: str | None
    """Full name of the records' message type; None when it is unknown."""
    count: int
    """Number of whole records."""
    size: int
    """Bytes of the stream up to the end of the last whole record."""
    fault: str | None
    """Damage that ends the records, in a sentence with its offset; None for a sound stream."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A part that differs from what the model says of it."""

    part: str
    """Path of a file, or name of a tensor."""
    error: str


@dataclass(frozen=True, slots=True)
class DtypeTotal:
    """The tensors of one data type, all together."""

    dtype: str | None
    """Data type, such as `F32`; None for types that no reader knows."""
    tensors: int
    elements: int
    """Number of elements of the tensors with a valid shape."""
    size: int
    """Bytes of these, one by one; strings count for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReport:
    """Findings of a check of a model. `complete` is False for cut lists and unchecked tensors."""

    type: str | None
    tensors: int | None
    """Number of tensors; None for a model that no format knows."""
    files: tuple[str, ...] = ()
    """Files besides the root that hold tensors. Never cut; empty in the report of a service."""
    missing: tuple[str, ...] = ()
    """Files that the model refers to, and that are not among its files."""
    duplicates: tuple[str, ...] = ()
    """Names that several tensors share."""
    damaged: tuple[Damage, ...] = ()
    dtypes: tuple[DtypeTotal, ...] = ()
    """Totals of each data type, the one of the most bytes first."""
    complete: bool = True

    @property
    def problem(self) -> str | None:
        """The missing and the damaged parts in a sentence; None for a sound model."""
        names = ", ".join(map(repr, self.missing))
        said = [f"the model refers to {names}, which is not among its files"] if self.missing else []
        said += [f"{damage.part}: {damage.error}" for damage in self.damaged]
        return "; ".join(said) or None
