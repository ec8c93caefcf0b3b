"""Verbs that leave out tensors name them on standard error, and refuse with --strict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from safetensors.numpy import load_file


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a good tensor, one of strings, and one whose file is missing."""
    good = onnx.numpy_helper.from_array(np.arange(4, dtype=np.float32), "good")
    words = onnx.helper.make_tensor("words", onnx.TensorProto.STRING, [1], [b"x"])  # type: ignore[list-item]  # strings are bytes
    gone = onnx.TensorProto(name="gone", data_type=1, dims=[4], data_location=onnx.TensorProto.EXTERNAL)
    gone.external_data.add(key="location", value="missing.bin")
    graph = onnx.helper.make_graph([], "g", [], [], initializer=[good, words, gone])
    path = tmp_path_factory.mktemp("omitted") / "model.onnx"
    path.write_bytes(onnx.helper.make_model(graph).SerializeToString())
    return path


@pytest.fixture(params=["file", "store"])
def name(request: pytest.FixtureRequest, call: Any, model: Path) -> str:
    """The model by path, and as a store."""
    if request.param == "file":
        return str(model)
    call("push", model, "--tag", "omitted:1")
    return "@omitted:1"


LACKING = "2 tensors left out: 'words', 'gone'"


def test_tensor_to_safetensors_names_what_it_leaves_out(call: Any, name: str, tmp_path: Path) -> None:
    out = tmp_path / "x.safetensors"
    done = call("tensor", name, "-o", out)
    assert LACKING in done.stderr
    assert load_file(out).keys() == {"good"}
    out.unlink()
    assert LACKING in call("tensor", name, "-o", out, "--strict", code=3).stderr
    assert not out.exists()
    assert call("tensor", name, "good", "-o", out, "--strict").stderr == f"{out}: {out.stat().st_size} B\n"


@pytest.mark.parametrize("pattern", ["absent", "absent*"])
def test_tensor_to_safetensors_of_no_tensor_is_an_error(call: Any, name: str, tmp_path: Path, pattern: str) -> None:
    out = tmp_path / "x.safetensors"
    assert pattern in call("tensor", name, pattern, "-o", out, code=4).stderr
    assert not out.exists()


def test_stats_of_all_names_what_has_none(call: Any, name: str) -> None:
    done = call("stats", name, "--json")
    assert [each["name"] for each in json.loads(done.stdout)] == ["good"]
    assert LACKING in done.stderr
    assert LACKING in call("stats", name, "--strict", code=3).stderr
    assert call("stats", name, "good", "--strict").stderr == ""


def test_list_of_tensors_is_strict_about_damage(call: Any, name: str) -> None:
    assert "gone: " in call("tensor", name).stderr
    assert "1 tensor left out: 'gone'" in call("tensor", name, "--strict", code=3).stderr


def test_pull_of_safetensors_names_what_it_leaves_out(call: Any, model: Path, tmp_path: Path) -> None:
    call("push", model, "--tag", "omitted:2")
    out = tmp_path / "x.safetensors"
    done = call("pull", "@omitted:2", out, "--view", "safetensors", "--json")
    assert LACKING in done.stderr
    assert json.loads(done.stdout)[0]["omitted"] == {"count": 2, "names": ["words", "gone"]}
    refused = call("pull", "@omitted:2", tmp_path / "y", "--view", "safetensors", "--strict", code=3)
    assert LACKING in refused.stderr
    assert not (tmp_path / "y").exists()


@pytest.mark.parametrize("options", [["--slice", "0:1"], ["--dtype", "F32"]])
def test_tensor_writes_no_part_as_safetensors(call: Any, name: str, tmp_path: Path, options: list[str]) -> None:
    assert "whole tensors" in call("tensor", name, "good", *options, "-o", tmp_path / "x.safetensors", code=2).stderr
    assert not (tmp_path / "x.safetensors").exists()
