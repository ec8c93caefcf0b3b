"""Event files of TensorBoard: their type, their records, and the tensors of their summaries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.streams import FRAMED

from protoslice import open_model, schema
from protoslice.detection import detect
from protoslice.errors import LimitExceeded
from protoslice.formats import warmup

EVENT: Any = schema.bundled().message_class("tensorflow.Event")
NAME = "events.out.tfevents.1700000000.host.1.0.v2"


def events() -> list[bytes]:
    """Events as TensorFlow 2 writes them: the version of the file, a scalar, a histogram."""
    first = EVENT(wall_time=1.7e9, file_version="brain.Event:2")
    scalar = EVENT(wall_time=1.7e9, step=1)
    value = scalar.summary.value.add(tag="loss")
    value.tensor.dtype = 1
    value.tensor.tensor_shape.SetInParent()
    value.tensor.float_val.append(0.5)
    value.metadata.plugin_data.plugin_name = "scalars"
    histogram = EVENT(wall_time=1.7e9, step=2)
    value = histogram.summary.value.add(tag="weights")
    value.tensor.dtype = 2
    for length in (1, 3):
        value.tensor.tensor_shape.dim.add(size=length)
    value.tensor.tensor_content = bytes(24)
    return [each.SerializeToString() for each in (first, scalar, histogram)]


def test_tensors_of_summaries_are_listed_and_read(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(FRAMED["tfrecord"](events()))
    with open_model(tmp_path / NAME) as model:
        assert model.model.type == "tensorflow.Event"
        assert [(each.address, each.holder, each.shape) for each in model.matching()] == [
            ("path:record[1].summary.value[0].tensor", "summary", ()),
            ("path:record[2].summary.value[0].tensor", "summary", (1, 3)),
        ]
        assert model.read("path:record[1].summary.value[0].tensor").read() == b"\0\0\0?"


def test_an_event_file_is_known_by_its_name() -> None:
    data = FRAMED["tfrecord"](events())
    assert detect(data, f"logs/{NAME}", len(data)).type_name == "tensorflow.Event"
    assert detect(data, "records", len(data)).kind == "tfrecord"


def test_records_with_tensors_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warmup, "_MOST_RECORDS", 2)
    (tmp_path / NAME).write_bytes(FRAMED["tfrecord"](events()))
    with open_model(tmp_path / NAME) as model, pytest.raises(LimitExceeded, match="more than 2 records"):
        len(model.tensors)
