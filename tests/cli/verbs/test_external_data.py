"""`cat` of `raw_data` that lies in another file says where it lies, and which command writes it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

VALUES = np.arange(1000, dtype=np.float32)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model of two tensors, in a file whose name would run a command."""
    tensors = [onnx.numpy_helper.from_array(VALUES + shift, name) for shift, name in ((0, "w"), (1, "v v"))]
    made = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], initializer=tensors))
    path = tmp_path / "m $(touch PWNED).onnx"
    onnx.save(made, path, save_as_external_data=True, location="w.bin", size_threshold=10)
    return path


@pytest.mark.parametrize("on_service", [False, True])
@pytest.mark.parametrize("path", ["graph.initializer[1].raw_data", 'graph.initializer[name="v v"].raw_data'])
def test_cat_of_external_data_says_where_it_is(
    call: Any, model: Path, path: str, on_service: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name: object = model
    if on_service:
        call("push", tmp_path, "--tag", "external:1")
        name = "@external:1"
    said = call("cat", name, path, code=4).stderr
    assert "in file 'w.bin' from byte 4000" in said
    found = re.search(r"run: protoslice (.*)$", said.strip())
    assert found is not None
    call(*shlex.split(found[1]))
    assert (tmp_path / "raw_data.bin").read_bytes() == (VALUES + 1).tobytes()


def test_cat_of_another_missing_field_has_no_hint(call: Any, model: Path) -> None:
    assert "run:" not in call("cat", model, "graph.raw_data", code=4).stderr


@pytest.mark.parametrize(("verb", "out"), [("split", "out"), ("merge", "out.onnx")])
def test_split_and_merge_name_the_files_that_stay(call: Any, model: Path, tmp_path: Path, verb: str, out: str) -> None:
    assert "tensors stay in w.bin; keep" in call(verb, model, tmp_path / out).stderr
    (tmp_path / "w.bin").unlink()
    assert "tensors stay in w.bin; keep" in call(verb, model, tmp_path / out, "--force").stderr
    assert "stay in" not in call("merge", model, tmp_path / "name", "--fields", "graph.name").stderr
