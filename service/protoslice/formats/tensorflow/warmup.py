"""Warm-up requests of a SavedModel: tensors of all records in its log of predictions."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from itertools import accumulate
from typing import Final

from protoslice import _core, schema
from protoslice.errors import LimitExceeded
from protoslice.formats.bytes import Bytes
from protoslice.formats.model import Model, RootProto, Tensor, Tensors
from protoslice.formats.tensorflow.protos import GraphTensors
from protoslice.formats.tensorflow.tfrecord import records
from protoslice.formats.tensors.lazy import LazyTensors

_LOG: Final = "tensorflow.serving.PredictionLog"
_MOST_RECORDS: Final = 10_000
"""Limit of records in a file; servers replay a thousand at most."""


class Warmup:
    """TFRecord files of prediction logs."""

    name = "warm-up requests"

    def wants(self, model: Model) -> bool:
        """True when the root is a record file of prediction logs."""
        return model.proto is None and model.type == _LOG

    def tensors(self, model: Model) -> Tensors:
        """All tensors of all records, in order: names repeat, addresses are unique. Reads the file.

        `LimitExceeded` above 10,000 records, `CorruptModel` for a damaged one.
        """
        graphs: list[GraphTensors] = []
        for record in records(model.beside(model.root)):
            if len(graphs) >= _MOST_RECORDS:
                raise LimitExceeded(f"the file holds more than {_MOST_RECORDS} records")
            graphs.append(GraphTensors(model.root, _proto(record)))
        starts = list(accumulate(map(len, graphs), initial=0))

        def make(number: int) -> Tensor:
            record = bisect_right(starts, number) - 1
            return _of_record(graphs[record][number - starts[record]], record)

        return LazyTensors(starts[-1], make)


def _proto(record: Bytes) -> RootProto:
    """`record` as an indexed proto."""
    flat = schema.bundled().flat(_LOG)
    index = _core.index_source(record.sources, record.rope, flat, _LOG)
    return RootProto(_core.Document(_core.Index(index), flat, record.sources, record.rope), record.sources)


def _of_record(tensor: Tensor, number: int) -> Tensor:
    path = tensor.address.removeprefix("path:")
    kind = "response" if ".response" in path.partition("[")[0] else "request"
    return replace(tensor, address=f"path:record[{number}].{path}", kind=kind)
