"""Ingest requests and their results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from protoslice.defaults import MAX_CHUNK, MIN_CHUNK
from protoslice.facts import UNKNOWN, ModelReport, Store

TAGS_AT_ONCE: Final = 64
"""Tags that one request may set."""


@dataclass(frozen=True, slots=True)
class IngestRequest:
    """Options of an ingest: type and root, tags, chunk sizes."""

    type: str | None = None
    root: str | None = None
    tags: tuple[str, ...] = ()
    min_chunk: int = MIN_CHUNK
    max_chunk: int = MAX_CHUNK
    plan: str | None = None
    """`policy` plans a chunked root by the chunk sizes; None keeps the plan that it came with."""
    rules: tuple[str, ...] | None = None
    """Rules that go before the sizes, and before the plan that a chunked root came with.

    None takes the rules kept for the root's type; an empty tuple takes none.
    """
    source: str = "upload"
    report: bool = False
    """True to return a report on the model."""
    of_commit: bool = False
    """True for the store of a commit or of a manifest, which goes with its last name."""
    strict: bool = False
    """True to refuse a model that lacks files or fails checksums of its own."""

    @property
    def names_a_root(self) -> bool:
        """True when the client names the root, its type or rules; a store without a root is an error then."""
        return self.root is not None or self.type is not None or bool(self.rules)

    def type_or(self, detected: str | None) -> str | None:
        """The type of the root: the one asked for, else the one detected; None for `unknown`."""
        return None if self.type == UNKNOWN else self.type or detected


@dataclass(frozen=True, slots=True)
class Created:
    """The store of an upload; `created` is False when the service had it already."""

    store: Store
    created: bool
    report: ModelReport | None = None
    """Report on the model; None unless requested."""
