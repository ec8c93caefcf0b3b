"""What verbs look at, wherever it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from protoslice.facts import Node, TensorEntry

__all__ = ["ChunkPolicy", "Content", "PathContent", "Subject", "TreeListing"]


class Content(Protocol):
    """Bytes that can be had."""

    @property
    def size(self) -> int:
        """How many there are."""

    def read(self) -> bytes:
        """All of them."""

    def pieces(self) -> Iterator[memoryview]:
        """All of them, piece by piece; a piece is valid until the next one is taken."""


@dataclass(frozen=True, slots=True)
class PathContent:
    """What stands at a path."""

    content: Content
    kind: str
    """`message`, the kind of a scalar field, `repeated`, or `unknown`."""


@dataclass(frozen=True, slots=True)
class TreeListing:
    """Some of what lies below a place."""

    lines: Sequence[Node]
    total: int | None
    """None where a service has more than it was asked for."""


@dataclass(frozen=True, slots=True)
class ChunkPolicy:
    """How a model is cut into chunks; what is None is left to the default."""

    min_chunk: int | None = None
    max_chunk: int | None = None


class Subject(Protocol):
    """A model."""

    def facts(self) -> dict[str, object]:
        """What it is, as `info --json` shows it."""

    def tree(self, path: str, limit: int) -> TreeListing:
        """What lies directly below `path`."""

    def chunks(self, policy: ChunkPolicy) -> Iterable[dict[str, object]]:
        """Its chunks, as `chunks --json` shows them."""

    def part(self, path: str, fields: Sequence[str] | None = None, omit_larger_than: int | None = None) -> PathContent:
        """What stands at `path`."""

    def tensors(self, name: str | None, dtype: str | None) -> Iterator[TensorEntry]:
        """Its tensors."""

    def tensor(self, name: str, slice_: str | None, form: str) -> Content:
        """One tensor, or a slice of it."""

    def safetensors(self, name: str | None) -> Content:
        """All tensors, or those that `name` means, as one `.safetensors` file."""
