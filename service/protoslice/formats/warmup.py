"""Record files with tensors: the warm-up requests of a SavedModel, and the events of TensorBoard."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from protoslice import _core, schema
from protoslice.detection.magic import masked
from protoslice.errors import CorruptModel, LimitExceeded
from protoslice.formats.bundle import crc_of
from protoslice.formats.tensorflow import graph_tensors
from protoslice.sources.ropes import Rope
from protoslice.tensors.listing import Tensors
from protoslice.tensors.model import Model, RootProto, Tensor

_LOG: Final = "tensorflow.serving.PredictionLog"
_TYPES: Final = (_LOG, "tensorflow.Event")
"""The message types of records that have tensors."""
_MOST_RECORDS: Final = 10_000
"""Largest number of records of a file. Servers replay at most a thousand warm-up requests."""
_HEAD: Final = 12
_TAIL: Final = 4
"""The bytes of a TFRecord before and after its content, which hold a length and checksums."""


class Warmup:
    """The format of TFRecord files with prediction logs or events."""

    name = "warm-up requests"

    def matches(self, model: Model) -> bool:
        """Return True when the root is a TFRecord file of prediction logs or events."""
        return model.proto is None and model.type in _TYPES

    def tensors(self, model: Model) -> Tensors:
        """Return all tensors of all records, in order. This call reads the whole file.

        Tensors of different records may share a name; addresses are unique. Raise `LimitExceeded` for more than
        10,000 records, and `CorruptModel` for a damaged record.
        """
        source, graphs = model.file(model.root), list[Tensors]()
        read = _core.Sources([source])
        records = _core.Records(_core.index_records(read, "tfrecord"))
        if records.count > _MOST_RECORDS:
            raise LimitExceeded(f"The file contains more than {_MOST_RECORDS} records")
        if records.fault is not None:
            raise CorruptModel(records.fault[1], records.fault[0])
        at = 0
        for number in range(records.count):
            record = Rope(records.rope(read, [(number, number + 1)], None), [source])
            end = at + _HEAD + record.size
            if masked(crc_of(record)) != int.from_bytes(source.read(end, _TAIL), "little"):
                raise CorruptModel("The checksum of a record does not match: the file is damaged", at)
            at = end + _TAIL
            found = graph_tensors(model.root, _proto(record, str(model.type)))
            graphs.append(_of_record(found, number, str(model.type)))
        return Tensors.joined(graphs)


def _proto(record: Rope, type_name: str) -> RootProto:
    """Return `record` as an indexed proto."""
    flat = schema.bundled().flat(type_name)
    index = _core.index_source(record.sources, record.core, flat, type_name)
    return RootProto(_core.Document(_core.Index(index), flat, record.sources, record.core), record.sources)


def _of_record(found: Tensors, record: int, type_name: str) -> Tensors:
    """Return the tensors of one record, with addresses that are unique in the file."""

    def make(number: int) -> Tensor:
        tensor = found[number]
        path = tensor.address.removeprefix("path:")
        holder = "summary" if type_name != _LOG else "response" if ".response" in path.partition("[")[0] else "request"
        return replace(tensor, address=f"path:record[{record}].{path}", holder=holder)

    return Tensors(len(found), make)
