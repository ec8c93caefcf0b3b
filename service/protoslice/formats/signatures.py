"""Signatures of models: what they take and return, of the formats that say it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from protoslice.facts import Signature
from protoslice.formats import coreml, onnx, paddle
from protoslice.formats.tensorflow import META_GRAPH, SAVED_MODEL, ReadSignatures, signatures
from protoslice.tensors.model import Model, RootProto

_OF_ONE: Final[Mapping[str, Callable[[RootProto], tuple[Sequence[Signature], int]]]] = {
    onnx.MODEL: onnx.signature,
    coreml.MODEL: coreml.signature,
    paddle.PROGRAM: paddle.signature,
}
"""Formats whose models have one signature."""
TYPES = (SAVED_MODEL, META_GRAPH, *_OF_ONE)
"""Types of roots that have signatures."""


def signatures_in(model: Model, tags: Sequence[str] | None) -> tuple[int, ReadSignatures]:
    """Return the number of graphs that have signatures, and a reader of one of them; see `tensorflow.signatures`."""
    read, proto = _OF_ONE.get(model.type or "") if tags is None else None, model.proto
    if proto is None and tags is None and paddle.is_json(model):
        read, proto = paddle.signature, paddle.json_as_proto(model.files[model.root])
    if read is None or proto is None:
        return signatures(model, tags)
    one = partial(read, proto)
    return 1, lambda _: one()


def signatures_of(model: Model, tags: Sequence[str] | None = None) -> Iterator[Signature]:
    """All signatures of `model`, or those of its first meta graph with exactly `tags`.

    `Unsupported` for a format that has none, `NotFound` if no meta graph has these tags.
    """
    count, read = signatures_in(model, tags)
    return (signature for number in range(count) for signature in read(number)[0])
