"""Models opened in Python: mappings of names to tensors that are read on demand, and their display in notebooks."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import basic_indices
from onnx import TensorProto, helper, numpy_helper
from tests.support.golden import folder

import protoslice
from protoslice.errors import Conflict, InvalidIndex, NotFound, Unsupported
from protoslice.facts import TensorEntry
from protoslice.tensors.arrays import as_array
from protoslice.tensors.slices import parsed_slice


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a model with tensors of several types; two have one name, and one name is markup."""
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


def test_a_model_is_a_mapping_of_names_to_tensors(model: Path) -> None:
    with protoslice.open_model(model) as opened:
        assert isinstance(opened, Mapping)
        twice = ["path:graph.initializer[3]", "path:graph.initializer[4]"]
        names = ["w", "words", "half", *twice, "<b>bold</b>", *(f"b{n}" for n in range(9))]
        assert (list(opened), len(opened), bool(opened)) == (names, 15, True)
        assert [each.address for each in opened.values()] == [f"path:graph.initializer[{n}]" for n in range(15)]
        assert {name: each.name for name, each in opened.items()} == dict.fromkeys(twice, "twice") | {
            name: name for name in names if name not in twice
        }
        others: list[object] = ["v", "twice", 3, None]
        assert [name in opened for name in [*names, *others]] == [True] * 15 + [False] * 4
        assert opened.get("v") is None
        assert opened == opened
        assert np.array_equal(opened["w"], np.arange(6, dtype="<f4").reshape(2, 3))
        assert opened["half"].dtype == opened["half"][...].dtype == ml_dtypes.bfloat16
        assert opened["half"][:].tolist() == [1.5, -2]
        assert (opened["words"].dtype, opened["words"][::-1].tolist()) == (np.dtype(object), [b"\xff", b"a"])
        assert opened[twice[1]][0] == 1
        with pytest.raises(Conflict, match="2 tensors are named 'twice'"):
            opened["twice"]


def test_a_missing_name_is_a_key_error_that_names_the_nearest(model: Path) -> None:
    with protoslice.open_model(model) as opened:
        for error in (KeyError, NotFound):
            with pytest.raises(error, match=r"^No tensor 'word': did you mean 'words'\?$"):
                opened["word"]
        with pytest.raises(KeyError, match=r"^No tensor 3$"):
            opened[3]  # type: ignore[index]


def test_a_tensor_is_an_array_that_is_read_later(model: Path) -> None:
    with protoslice.open_model(model) as opened:
        w = opened["w"]
        whole = np.arange(6, dtype="<f4").reshape(2, 3)
        for name in ("shape", "dtype", "ndim", "size", "nbytes"):
            assert getattr(w, name) == getattr(whole, name), name
        assert (len(w), [row.tolist() for row in w], (w.name, w.facts.role)) == (
            2,
            whole.tolist(),
            ("w", "weight"),
        )
        assert np.asarray(w, "f8").dtype == np.float64
        assert np.mean(w) == 2.5
        with pytest.raises(ValueError, match="reading a tensor copies it"):
            np.array(w, copy=False)
        assert repr(w) == "<LazyArray 'w': F32 2×3, 24 B>"
        assert repr(opened["words"]) == "<LazyArray 'words': STRING 2>"


def _lazy(shape: tuple[int, ...], asked: list[str | None], dtype: str = "I32", elements: int = 1) -> Any:
    """Return a tensor with counting bytes, and its array; `asked` receives the reads."""
    due = TensorEntry(
        "t", "path:t", dtype, (*shape[:-1], shape[-1] * elements) if shape else (), 0, None, "weight", "other"
    )
    lazy = protoslice.LazyArray(due, lambda text: read(text))
    whole = np.arange(lazy.size, dtype=lazy.dtype).reshape(lazy.shape)

    def read(text: str | None) -> Any:
        asked.append(text)
        if lazy.shape == due.shape:
            return whole.copy() if text is None else parsed_slice(text, lazy.shape).of(whole)
        if text is None:
            return whole.copy()
        *rows, last = text.split(",")
        start, stop = (
            int(each) // 32 * 34 if each else None for each in last.split(":")
        )  # whole blocks, as in the service
        return parsed_slice(",".join([*rows, ":"]), lazy.shape).of(whole)[..., start:stop]

    return lazy, whole


@given(st.data())
def test_every_basic_index_gives_what_numpy_gives(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(0, 5), max_size=4).map(tuple))
    asked: list[str | None] = []
    lazy, whole = _lazy(shape, asked)
    index = data.draw(basic_indices(shape, allow_newaxis=True, allow_ellipsis=True))
    found, due = lazy[index], whole[index]
    assert (type(found), getattr(found, "shape", None)) == (type(due), getattr(due, "shape", None))
    assert np.array_equal(found, due)
    read = whole.size if asked == [None] else parsed_slice(str(asked[0]), shape).count
    assert read == np.size(due), "no element is read that the index does not select"


def test_an_index_cuts_rows_of_blocks_anywhere() -> None:
    lazy, whole = _lazy((3, 4), [], "Q8_0", 32)
    assert (lazy.shape, lazy.dtype) == ((3, 136), np.dtype("u1"))
    bounds = (None, 0, 1, 33, 34, 35, 100, 136, -1, -35, -136)
    for start, stop, step in product(bounds, bounds, (None, 1, 7, 40, -1, -7, -40)):
        assert np.array_equal(lazy[1:, start:stop:step], whole[1:, start:stop:step]), (start, stop, step)
    for place in range(-136, 136):
        assert lazy[2, place] == whole[2, place]


@pytest.mark.parametrize("index", [True, np.True_, [0, 1], np.array([True, False]), "0:1", 1.0, (0, [1])])
def test_other_indices_are_refused_before_anything_is_read(index: Any) -> None:
    asked: list[str | None] = []
    lazy, _ = _lazy((2, 3), asked)
    with pytest.raises(InvalidIndex, match="read the tensor first"):
        lazy[index]
    assert asked == []


@pytest.mark.parametrize("index", [2, -3, (0, 3), (0, 0, 0), (..., ...), (slice(None), -4)])
def test_an_index_out_of_range_is_an_index_error_as_numpy_has_it(index: Any) -> None:
    lazy, whole = _lazy((2, 3), [])
    for each in (lazy, whole):
        with pytest.raises(IndexError):
            each[index]


def test_tensors_of_every_format_are_read_as_before(tmp_path: Path) -> None:
    with protoslice.open_model(folder("gguf_types"), "a.gguf") as opened:
        for name, tensor in opened.items():
            raw = opened.look(name)
            whole = as_array(opened.read(name).read(), raw.dtype.name, raw.shape)
            assert np.array_equal(tensor, whole)
            assert (tensor.shape, tensor.dtype) == (whole.shape, whole.dtype)
            assert np.array_equal(tensor[0, ..., 3:20], whole[0, ..., 3:20])


def test_strings_are_read_however_many_there_are(tmp_path: Path) -> None:
    count = (1 << 20) + 1
    data = [b"a"] * (count - 1) + [b"\xff" * (65 << 20)]
    words = TensorProto(name="words", data_type=TensorProto.STRING, dims=[count], string_data=data)
    path = tmp_path / "model.onnx"
    path.write_bytes(helper.make_model(helper.make_graph([], "main", [], [], [words])).SerializeToString())
    with protoslice.open_model(path) as opened:
        found = opened["words"][...]
        assert (found.shape, found[0], len(found[-1])) == ((count,), b"a", 65 << 20)


def test_models_show_what_they_are(model: Path) -> None:
    with protoslice.open_model(model) as opened:
        assert repr(opened) == "<LocalModel 'model.onnx': onnx.ModelProto, 15 tensors>"
        shown = opened._repr_html_()
    assert "<td>&lt;b&gt;bold&lt;/b&gt;</td><td>F64</td><td>100</td><td>800 B</td>" in shown
    assert "<b>" not in shown
    assert "5 more" in shown


def test_missing_numpy_is_named(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    with protoslice.open_model(model) as opened:
        w = opened["w"]
        assert (w.shape, repr(w)) == ((2, 3), "<LazyArray 'w': F32 2×3, 24 B>")
        with pytest.raises(Unsupported, match="pip install numpy"):
            w[0]


def test_root_without_tensors_has_a_representation(tmp_path: Path) -> None:
    (tmp_path / "events.pb").write_bytes(b"\x0a\x01a")
    with protoslice.open_model(tmp_path / "events.pb") as opened:
        assert "no tensors" in repr(opened)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "bert:1",
            r"No such file.*\(bert:1 was tried as a local path; for a store of a service, use @TAG or http://HOST",
        ),
        ("no/such/file", r"No such file.*tried as a local path; for a store of a service, use @TAG or http://HOST"),
        ("memory://no-such/x.onnx", "^There is no object memory://no-such/x.onnx$"),
        ("@", "No store after '@'"),
        ("http://127.0.0.1:9/", "does not name a store"),
        ("@bert:1", "set PROTOSLICE_URL"),
    ],
)
def test_a_name_that_means_nothing_says_what_was_tried(
    name: str, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PROTOSLICE_URL", raising=False)
    with pytest.raises(protoslice.ProtosliceError, match=words):
        protoslice.open_model(name)
