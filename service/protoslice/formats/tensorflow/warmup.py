"""Records with tensors: warm-up requests of a SavedModel, and events of TensorBoard."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from protoslice import _core, schema
from protoslice.errors import LimitExceeded
from protoslice.formats.model import Model, RootProto, Tensor, Tensors
from protoslice.formats.tensorflow.protos import graph_tensors
from protoslice.formats.tensorflow.tfrecord import records
from protoslice.sources.ropes import Rope

_LOG: Final = "tensorflow.serving.PredictionLog"
_TYPES: Final = (_LOG, "tensorflow.Event")
"""Message types of the records."""
_MOST_RECORDS: Final = 10_000
"""Limit of records in a file; servers replay a thousand at most."""


class Warmup:
    """TFRecord files of prediction logs or of events."""

    name = "warm-up requests"

    def wants(self, model: Model) -> bool:
        """True when the root is a record file of one of these types."""
        return model.proto is None and model.type in _TYPES

    def tensors(self, model: Model) -> Tensors:
        """All tensors of all records, in order: names repeat, addresses are unique. Reads the file.

        `LimitExceeded` above 10,000 records, `CorruptModel` for a damaged one.
        """
        graphs = list[Tensors]()
        for record in records(model.beside(model.root)):
            if len(graphs) >= _MOST_RECORDS:
                raise LimitExceeded(f"The file contains more than {_MOST_RECORDS} records")
            found = graph_tensors(model.root, _proto(record, str(model.type)))
            graphs.append(_of_record(found, len(graphs), str(model.type)))
        return Tensors.joined(graphs)


def _proto(record: Rope, type_name: str) -> RootProto:
    """`record` as an indexed proto."""
    flat = schema.bundled().flat(type_name)
    index = _core.index_source(record.sources, record.core, flat, type_name)
    return RootProto(_core.Document(_core.Index(index), flat, record.sources, record.core), record.sources)


def _of_record(found: Tensors, record: int, type_name: str) -> Tensors:
    """Return the tensors of one record, at their addresses in the file."""

    def make(number: int) -> Tensor:
        tensor = found[number]
        path = tensor.address.removeprefix("path:")
        holder = "summary" if type_name != _LOG else "response" if ".response" in path.partition("[")[0] else "request"
        return replace(tensor, address=f"path:record[{record}].{path}", holder=holder)

    return Tensors(len(found), make)
