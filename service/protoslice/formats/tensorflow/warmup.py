"""Warm-up requests of a SavedModel: the tensors of each request in the record file that a server plays at its start."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from itertools import accumulate
from typing import Final

from protoslice import _core, schema
from protoslice.errors import LimitExceeded
from protoslice.formats.model import Bytes, Model, RootProto, Tensor, Tensors
from protoslice.formats.tensorflow.protos import GraphTensors
from protoslice.formats.tensorflow.tfrecord import records
from protoslice.formats.tensors.lazy import Lazy

__all__ = ["Warmup"]

_LOG: Final = "tensorflow.serving.PredictionLog"
_MOST_RECORDS: Final = 10_000
"""Records of one file; servers play a thousand at most."""


class Warmup:
    """Record files of prediction logs."""

    name = "warm-up requests"

    def wants(self, model: Model) -> bool:
        """Whether the root is a file of such records."""
        return model.proto is None and model.type == _LOG

    def tensors(self, model: Model) -> Tensors:
        """The tensors of all records, in order: several have the same name, and each its own address."""
        graphs: list[GraphTensors] = []
        for record in records(model.beside(model.root)):
            if len(graphs) >= _MOST_RECORDS:
                raise LimitExceeded(f"the file holds more than {_MOST_RECORDS} records")
            graphs.append(GraphTensors(model.root, _proto(record)))
        starts = list(accumulate(map(len, graphs), initial=0))

        def make(number: int) -> Tensor:
            record = bisect_right(starts, number) - 1
            return _of_record(graphs[record][number - starts[record]], record)

        return Lazy(starts[-1], make)


def _proto(record: Bytes) -> RootProto:
    """A record as the engine knows it."""
    flat = schema.bundled().flat(_LOG)
    index = _core.index_source(record.sources, record.rope, flat, _LOG)
    return RootProto(_core.Document(_core.Index(index), flat, record.sources, record.rope), record.sources)


def _of_record(tensor: Tensor, number: int) -> Tensor:
    path = tensor.address.removeprefix("path:")
    kind = "response" if ".response" in path.partition("[")[0] else "request"
    return replace(tensor, address=f"path:record[{number}].{path}", kind=kind)
