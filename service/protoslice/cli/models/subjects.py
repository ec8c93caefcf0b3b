"""Subjects of verbs: models, their places, chunks and tensors, local or on a service."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from protoslice.facts import ModelReport, Neighbourhood, Node, Signature, TensorEntry, TensorStatistics
from protoslice.graphs import GraphQuery
from protoslice.tensors.omitted import Omitted


class Content(Protocol):
    """Bytes that can be had."""

    @property
    def size(self) -> int:
        """Number of bytes."""

    def read(self) -> bytes:
        """All of them."""

    def pieces(self) -> Iterator[memoryview]:
        """All of them, piece by piece; a piece is valid until the next one is taken."""


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
    """Some of what lies below a place."""

    lines: Sequence[Node]
    total: int | None
    """Number of places below; None where a service has more than were asked for."""


@dataclass(frozen=True, slots=True)
class ChunkPolicy:
    """Sizes of the chunks of a model; None leaves one to the default.

    Both None keep the chunks that a file came with.
    """

    min_chunk: int | None = None
    max_chunk: int | None = None
    rules: tuple[str, ...] = ()
    """Rules that go before the sizes."""
    splitter: str | None = None
    """Name of a splitter whose rules come first."""


class Subject(Protocol):
    """A model that verbs look at, local or on a service."""

    def facts(self) -> dict[str, object]:
        """Facts about the model, as `info --json` shows them."""

    def tree(self, path: str, limit: int) -> TreeListing:
        """Places directly below `path`."""

    def rules(self, policy: ChunkPolicy) -> Sequence[str]:
        """The rules of the plan under `policy`, in canonical form."""

    def chunks(self, policy: ChunkPolicy) -> Iterable[dict[str, object]]:
        """Chunks of the model, as `chunks --json` shows them."""

    def part(
        self,
        path: str,
        fields: Sequence[str] | None = None,
        omit_larger_than: int | None = None,
        omit: Sequence[str] = (),
    ) -> PathContent:
        """The value at `path`: a message with its mask and omissions, or a field."""

    def summary(self) -> ModelReport | None:
        """Totals of the tensors, and missing files; None for a format without tensors."""

    def largest(self, limit: int) -> Sequence[TensorEntry]:
        """The largest tensors."""

    def tensors(self, name: str | None, dtype: str | None) -> Iterator[TensorEntry]:
        """Tensors of the model."""

    def signatures(self) -> Iterator[Signature]:
        """Signatures of the model; none for a model that is no SavedModel."""

    def graph(self, query: GraphQuery) -> Neighbourhood:
        """A part of a graph of the model."""

    def tensor(self, name: str, slice_: str | None, form: str) -> Content:
        """One tensor, or a slice of it."""

    def statistics(self, name: str, slice_: str | None, sample: int | None) -> TensorStatistics:
        """Statistics of one tensor, or of a slice of it."""

    def safetensors(self, name: str | None, *, strict: bool = False) -> tuple[Content, Omitted | None]:
        """All tensors, or those that `name` means, as one `.safetensors` file, and those that it leaves out.

        `Unsupported` for these with `strict`, `NotFound` if `name` means none.
        """
