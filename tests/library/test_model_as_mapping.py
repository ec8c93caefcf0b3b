"""Models opened in Python: arrays by name, membership, length and what notebooks show."""

from __future__ import annotations

import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import protoslice
from protoslice.errors import Conflict, NotFound, Unsupported


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model with tensors of several types, two of one name, and one called by markup."""
    tensors = [
        numpy_helper.from_array(np.arange(6, dtype="<f4").reshape(2, 3), "w"),
        numpy_helper.from_array(np.array([b"a", b"\xff"], object), "words"),
        helper.make_tensor("half", TensorProto.BFLOAT16, [2], [1.5, -2]),
        numpy_helper.from_array(np.zeros(1), "twice"),
        numpy_helper.from_array(np.ones(1), "twice"),
        numpy_helper.from_array(np.zeros(100), "<b>bold</b>"),
        *(numpy_helper.from_array(np.zeros(1), f"b{n}") for n in range(9)),
    ]
    path = tmp_path / "model.onnx"
    path.write_bytes(helper.make_model(helper.make_graph([], "main", [], [], tensors)).SerializeToString())
    return path


def test_tensors_are_arrays_by_name(model: Path) -> None:
    with protoslice.open_model(model) as opened:
        assert (len(opened), bool(opened), "w" in opened, "v" in opened, 3 in opened) == (15, True, True, False, False)
        assert np.array_equal(opened["w"], np.arange(6, dtype="<f4").reshape(2, 3))
        assert opened["half"].dtype == ml_dtypes.bfloat16
        assert opened["half"].tolist() == [1.5, -2]
        assert opened["words"].tolist() == [b"a", b"\xff"]
        assert opened["path:graph.initializer[4]"].tolist() == [1]
        with pytest.raises(NotFound, match="No tensor 'v'"):
            opened["v"]
        with pytest.raises(Conflict, match="2 tensors are named 'twice'"):
            opened["twice"]


def test_strings_are_read_however_many_there_are(tmp_path: Path) -> None:
    count = (1 << 20) + 1
    data = [b"a"] * (count - 1) + [b"\xff" * (65 << 20)]
    words = TensorProto(name="words", data_type=TensorProto.STRING, dims=[count], string_data=data)
    path = tmp_path / "model.onnx"
    path.write_bytes(helper.make_model(helper.make_graph([], "main", [], [], [words])).SerializeToString())
    with protoslice.open_model(path) as opened:
        found = opened["words"]
        assert (found.shape, found[0], len(found[-1])) == ((count,), b"a", 65 << 20)


def test_models_and_tensors_show_what_they_are(model: Path) -> None:
    with protoslice.open_model(model) as opened:
        assert repr(opened) == "<LocalModel 'model.onnx': onnx.ModelProto, 15 tensors>"
        assert repr(next(iter(opened))) == "<Tensor 'w': F32, shape (2, 3)>"
        shown = opened._repr_html_()
    assert "<td>&lt;b&gt;bold&lt;/b&gt;</td><td>F64</td><td>100</td><td>800 B</td>" in shown
    assert "<b>" not in shown
    assert "5 more" in shown


def test_missing_numpy_is_named(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    with protoslice.open_model(model) as opened, pytest.raises(Unsupported, match="pip install numpy"):
        opened["w"]


def test_root_without_tensors_has_a_representation(tmp_path: Path) -> None:
    (tmp_path / "events.pb").write_bytes(b"\x0a\x01a")
    with protoslice.open_model(tmp_path / "events.pb") as opened:
        assert "no tensors" in repr(opened)
