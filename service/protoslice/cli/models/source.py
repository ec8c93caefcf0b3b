"""Models that the commands look at: in files or on a service, opened by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from protoslice.errors import Unsupported
from protoslice.facts import ModelReport, Neighbourhood, Node, Signature, TensorEntry, TensorStatistics
from protoslice.graphs import GraphQuery
from protoslice.schema import MessageTypes
from protoslice.tensors.omitted import Omitted


class Content(Protocol):
    """Bytes of a file, a part or a tensor."""

    @property
    def size(self) -> int:
        """Number of bytes."""

    def read(self) -> bytes:
        """Return all bytes."""

    def pieces(self) -> Iterator[memoryview]:
        """Yield all bytes in pieces; a piece is valid until the next one is taken."""


@dataclass(frozen=True, slots=True)
class PathContent:
    """The value at a path, with its kind."""

    content: Content
    kind: str
    """`message`, the kind of a scalar field, `repeated`, or `unknown`."""
    type: str | None = None
    """Full name of a message's type, if known."""


@dataclass(frozen=True, slots=True)
class TreeListing:
    """Nodes below a path."""

    lines: Sequence[Node]
    total: int | None
    """Number of nodes below; None if a service has more than the limit."""


@dataclass(frozen=True, slots=True)
class ChunkPolicy:
    """Sizes of the chunks of a model, None for the default; if both are None, a chunked file keeps its chunks."""

    min_chunk: int | None = None
    max_chunk: int | None = None
    rules: tuple[str, ...] = ()
    """Rules, which come before the sizes."""
    splitter: str | None = None
    """Name of a splitter whose rules come first."""


class ModelSource(Protocol):
    """A model that commands look at, in files or on a service."""

    def facts(self) -> dict[str, object]:
        """Return facts about the model, as `info --json` shows them."""

    def tree(self, path: str, limit: int) -> TreeListing:
        """Return the nodes directly below `path`."""

    def rules(self, policy: ChunkPolicy) -> Sequence[str]:
        """Return the rules of the plan under `policy`, in canonical form."""

    def chunks(self, policy: ChunkPolicy) -> Iterable[dict[str, object]]:
        """Return the chunks of the model, as `chunks --json` shows them."""

    def part(
        self,
        path: str,
        fields: Sequence[str] | None = None,
        omit_larger_than: int | None = None,
        omit: Sequence[str] = (),
    ) -> PathContent:
        """Return the value at `path`: a message with its mask and omissions, or a field."""

    def summary(self) -> ModelReport | None:
        """Return totals of the tensors, and missing files; None for a format without tensors."""

    def largest(self, limit: int) -> Sequence[TensorEntry]:
        """Return the largest tensors."""

    def tensors(self, name: str | None, dtype: str | None) -> Iterator[TensorEntry]:
        """Return the tensors of the model."""

    def signatures(self) -> Iterator[Signature]:
        """Return the signatures of the model; none if it is no SavedModel."""

    def graph(self, query: GraphQuery) -> Neighbourhood:
        """Return a part of a graph of the model."""

    def tensor(self, name: str, slice_: str | None, form: str) -> Content:
        """Return the elements of one tensor, or of a slice."""

    def statistics(self, name: str, slice_: str | None, sample: int | None) -> TensorStatistics:
        """Return statistics of one tensor, or of a slice."""

    def safetensors(self, name: str | None, *, strict: bool = False) -> tuple[Content, Omitted | None]:
        """Return all tensors, or those named `name`, as a `.safetensors` file, and list tensors left out.

        Raise `Unsupported` if any is left out and `strict` is set, and `NotFound` if no tensor has the name.
        """


@dataclass(frozen=True, slots=True)
class RootType:
    """Message type of a root or of records, from `--type` and `--schema`; the service detects what is None."""

    name: str | None = None
    types: MessageTypes | None = None
    """Types of a schema file, which come before the bundled ones."""

    @property
    def given(self) -> bool:
        """True if an option names the type."""
        return self.name is not None or self.types is not None

    def check_unused(self) -> None:
        """Raise `Unsupported` if an option names the type, because a store already has a type."""
        if self.given:
            raise Unsupported("--type and --schema are only for files: the type of a store is fixed when it is created")

    def descriptor_set(self, name: str) -> bytes:
        """Return the canonical descriptor set of a type; empty if the schema file does not declare it."""
        return self.types.canonical(name) if self.types is not None and name in self.types else b""
