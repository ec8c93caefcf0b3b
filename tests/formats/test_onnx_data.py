"""Values of ONNX that no tensor holds, as in its test data: sequences, maps and optional values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from protoslice import open_model, schema


def _message(name: str) -> Any:
    return schema.bundled().message_class(f"onnx.{name}")()


def _fill(tensor: Any, name: str, values: list[float]) -> None:
    tensor.name, tensor.data_type = name, 1
    tensor.dims.append(len(values))
    tensor.raw_data = np.array(values, "<f4").tobytes()


def _sequence() -> Any:
    sequence = _message("SequenceProto")
    sequence.name, sequence.elem_type = "s", 1
    for number in range(2):
        _fill(sequence.tensor_values.add(), f"t{number}", [1.0 + number, 2.0])
    return sequence


def _nested() -> Any:
    outer = _message("SequenceProto")
    outer.elem_type = 3
    outer.sequence_values.add().CopyFrom(_sequence())
    return outer


def _map() -> Any:
    of = _message("SequenceProto")
    of.elem_type = 4
    each = of.map_values.add(key_type=8)
    each.string_keys.extend([b"a", b"b"])
    each.values.CopyFrom(_sequence())
    return of


def _optional() -> Any:
    optional = _message("OptionalProto")
    optional.elem_type = 3
    optional.sequence_value.CopyFrom(_sequence())
    return optional


@pytest.mark.parametrize(
    ("message", "path"),
    [
        (_sequence(), "tensor_values"),
        (_nested(), "sequence_values[0].tensor_values"),
        (_map(), "map_values[0].values.tensor_values"),
        (_optional(), "sequence_value.tensor_values"),
    ],
    ids=["sequence", "nested", "map", "optional"],
)
def test_tensors_are_found_at_any_depth(message: Any, path: str, tmp_path: Path) -> None:
    (tmp_path / "input_0.pb").write_bytes(message.SerializeToString())
    with open_model(tmp_path / "input_0.pb", type=message.DESCRIPTOR.full_name) as model:
        assert [(each.name, each.address) for each in model.matching()] == [
            (f"t{number}", f"path:{path}[{number}]") for number in range(2)
        ]
        assert model.read("t1").read() == np.array([2, 2], "<f4").tobytes()


def test_a_sequence_of_tensors_is_detected(tmp_path: Path) -> None:
    (tmp_path / "output_0.pb").write_bytes(_sequence().SerializeToString())
    with open_model(tmp_path / "output_0.pb") as model:
        assert model.model.type == "onnx.SequenceProto"
