"""The two models that are compared, as a comparison sees them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from protoslice.formats.model import Model, Tensors
from protoslice.sources.source import RangeSource


class ComparedModel(Protocol):
    """A model to be compared."""

    @property
    def root(self) -> str | None:
        """The path of its root among the files; None where none of them is one."""

    @property
    def files(self) -> Mapping[str, RangeSource]:
        """Compared files: all of a store or a directory; of a model named by its root, those it refers to."""

    @property
    def model(self) -> Model:
        """The model in the files."""

    @property
    def serialized(self) -> bool:
        """True if the root file is the serialized proto itself, rather than a chunked file or a text."""

    @property
    def tensors(self) -> Tensors:
        """Tensors of the model; none of a model that no format knows."""

    def sha256(self, path: str) -> str | None:
        """The digest of a whole file, where somebody has told it."""
