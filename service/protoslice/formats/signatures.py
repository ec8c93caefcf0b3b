"""Signatures of models: what they take and return, of the formats that say it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from protoslice.facts import Signature
from protoslice.formats import coreml, onnx, paddle
from protoslice.formats.model import Model, RootProto
from protoslice.formats.tensorflow import META_GRAPH, SAVED_MODEL, MetaGraphs

_OF_ONE: Final[Mapping[str, Callable[[RootProto], tuple[Sequence[Signature], int]]]] = {
    onnx.MODEL: onnx.signature,
    coreml.MODEL: coreml.signature,
    paddle.PROGRAM: paddle.signature,
}
"""Formats whose models have one signature."""
TYPES = (SAVED_MODEL, META_GRAPH, *_OF_ONE)
"""Types of roots that have signatures."""


class Signatures:
    """The signatures of a model, some at a time."""

    def __init__(self, model: Model, tags: Sequence[str] | None = None) -> None:
        """Signatures of `model`, or of its first meta graph with exactly `tags`; `Unsupported` for other formats."""
        self._one = _OF_ONE.get(model.type or "") if tags is None else None
        self._proto = model.proto
        if self._proto is None and tags is None and paddle.is_json(model):
            self._one, self._proto = paddle.signature, paddle.json_as_proto(model.files[model.root])
        self._graphs = MetaGraphs(model, tags) if self._one is None or self._proto is None else None

    def __len__(self) -> int:
        return 1 if self._graphs is None else len(self._graphs)

    def __getitem__(self, number: int) -> tuple[Sequence[Signature], int]:
        """The signatures of graph `number`, and the bytes read for them; see `MetaGraphs.signatures`."""
        if number >= len(self):
            raise IndexError(number)
        if self._graphs is not None:
            return self._graphs.signatures(number)
        assert self._one is not None
        assert self._proto is not None
        return self._one(self._proto)


def signatures_of(model: Model, tags: Sequence[str] | None = None) -> Iterator[Signature]:
    """All signatures of `model`, or those of its first meta graph with exactly `tags`.

    `Unsupported` for a format that has none, `NotFound` if no meta graph has these tags.
    """
    found = Signatures(model, tags)
    return (signature for number in range(len(found)) for signature in found[number][0])
