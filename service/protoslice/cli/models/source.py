"""The protocol of models that commands show, which are in files or on a service."""

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
    """The bytes of a file, a part of a proto, or a tensor."""

    @property
    def size(self) -> int:
        """Number of bytes."""

    def read(self) -> bytes:
        """Return all bytes."""

    def pieces(self) -> Iterator[memoryview]:
        """Yield all bytes in pieces. Each piece is valid only until the next piece is requested."""


@dataclass(frozen=True, slots=True)
class PathContent:
    """The value at a path, and its kind."""

    content: Content
    kind: str
    """Kind of the value: `message`, the kind of a scalar field, `repeated`, or `unknown`."""
    type: str | None = None
    """Full name of the message type, or None for an unknown type and for values of other kinds."""


@dataclass(frozen=True, slots=True)
class TreeListing:
    """The nodes directly below a path, up to a limit."""

    lines: Sequence[Node]
    total: int | None
    """Number of all nodes, or None if there are more than the limit and a service does not report their number."""


@dataclass(frozen=True, slots=True)
class ChunkPolicy:
    """The sizes and rules that decide how a model is split into chunks.

    A size of None means the default. With no sizes, rules or splitter, a chunked file keeps its own chunks.
    """

    min_chunk: int | None = None
    max_chunk: int | None = None
    rules: tuple[str, ...] = ()
    """Split rules, which take precedence over the sizes and over the splitter's rules."""
    splitter: str | None = None
    """Name of an installed splitter, whose rules take precedence over the sizes."""


class ModelSource(Protocol):
    """A model that commands show, in files or on a service."""

    def facts(self) -> dict[str, object]:
        """Return facts about the model in the form of `info --json`."""

    def tree(self, path: str, limit: int) -> TreeListing:
        """Return at most `limit` nodes directly below `path`."""

    def rules(self, policy: ChunkPolicy) -> Sequence[str]:
        """Return the split rules under `policy`, in canonical form."""

    def chunks(self, policy: ChunkPolicy) -> Iterable[dict[str, object]]:
        """Return the chunks of the model under `policy`, in the form of `chunks --json`."""

    def part(
        self,
        path: str,
        fields: Sequence[str] | None = None,
        omit_larger_than: int | None = None,
        omit: Sequence[str] = (),
    ) -> PathContent:
        """Return the value at `path`.

        With `fields`, a message contains only these fields. Fields of more than `omit_larger_than` bytes are left
        out, and so are the fields in `omit`.
        """

    def summary(self) -> ModelReport | None:
        """Return totals of the tensors, and the names of missing files. Return None for a format without tensors."""

    def largest(self, limit: int) -> Sequence[TensorEntry]:
        """Return the `limit` largest tensors."""

    def tensors(self, name: str | None, dtype: str | None) -> Iterator[TensorEntry]:
        """Return the tensors of the model, or only those with this name and data type."""

    def signatures(self) -> Iterator[Signature]:
        """Return the signatures of the model. The iterator is empty if the model's format has no signatures."""

    def graph(self, query: GraphQuery) -> Neighbourhood:
        """Return the part that `query` selects from one of the model's graphs."""

    def tensor(self, name: str, slice_: str | None, form: str) -> Content:
        """Return the elements of one tensor, or of a slice of it, in the format `form`."""

    def statistics(self, name: str, slice_: str | None, sample: int | None) -> TensorStatistics:
        """Return statistics of one tensor, or of a slice of it."""

    def safetensors(self, name: str | None, *, strict: bool = False) -> tuple[Content, Omitted | None]:
        """Return all tensors, or the tensors with this name, as a `.safetensors` file; also return the omitted tensors.

        Raise `NotFound` if no tensor has the name. With `strict`, raise `Unsupported` if a tensor is left out.
        """


@dataclass(frozen=True, slots=True)
class RootType:
    """The message type of a root or of records, according to `--type` and `--schema`."""

    name: str | None = None
    """Full name of the type, or None if it has to be detected."""
    types: MessageTypes | None = None
    """Types of a schema file, which take precedence over the bundled types."""

    @property
    def given(self) -> bool:
        """True if the user passed `--type` or `--schema`."""
        return self.name is not None or self.types is not None

    def check_unused(self) -> None:
        """Raise `Unsupported` if the user passed `--type` or `--schema`, because a store already has a type."""
        if self.given:
            raise Unsupported("--type and --schema are only for files: the type of a store is fixed when it is created")

    def descriptor_set(self, name: str) -> bytes:
        """Return the canonical descriptor set of the type `name`, or no bytes if no schema file declares the type."""
        return self.types.canonical(name) if self.types is not None and name in self.types else b""
