"""`info` tells how large a model is: all of its files, and the root among them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper
from tests.support.golden import MODELS

from protoslice import schema
from protoslice.sizes import format_size


def told(call: Any, *args: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(call("info", *args, "--json").stdout)
    return found


def in_bytes(size: int) -> str:
    return f"{format_size(size)} ({size} bytes)"


@pytest.mark.parametrize(
    ("case", "root"),
    [
        ("onnx_external_one", "model.onnx"),
        ("tf_sm_keras", "saved_model.pb"),
        ("safetensors_shards", "model.safetensors.index.json"),
        ("gguf_splits", "a-00001-of-00003.gguf"),
        ("tf_ckpt_sharded", "model.index"),
        ("paddle_combined", "inference.pdmodel"),
        ("safetensors_types", None),
    ],
)
def test_a_folder_and_its_file_are_one_model_in_the_same_columns(call: Any, case: str, root: str | None) -> None:
    place = MODELS / case
    path = place / (root or json.loads(call("info", place, "--json").stdout)["root"])
    ours, theirs = told(call, place), told(call, path)
    assert {name: ours[name] for name in ours if name not in {"file", "folder"}} == {
        name: theirs[name] for name in theirs if name not in {"file", "folder"}
    }
    assert (ours["folder"]["files"], theirs["folder"]) == (sum(each.is_file() for each in place.rglob("*")), None)
    assert "size  share  dtype  shape" in re.sub(" +", "  ", call("info", path).stdout)
    rows = [line for line in call("info", place).stdout.splitlines() if not line.startswith("folder ")]
    assert rows == call("info", path).stdout.splitlines()


def test_a_file_of_another_format_is_refused_in_one_sentence(call: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(b"\x1c\0\0\0TFL3" + bytes(60))
    words = "this is a TFLite flatbuffer, not a protobuf (to read it as a protobuf all the same, pass its type)"
    assert call("info", path, code=3).stderr == f"protoslice: {path}: {words}\n"


def test_a_folder_is_as_large_as_its_files(call: Any, saved_model: Callable[[Path], Path], tmp_path: Path) -> None:
    folder = saved_model(tmp_path / "model")
    (folder / "assets").mkdir()
    (folder / "assets" / "vocabulary.txt").write_bytes(bytes(5000))
    sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    facts = told(call, folder)
    used = {path: sizes[path] for path in ("saved_model.pb", "variables/variables.data-00000-of-00001")}
    assert {file["path"]: file["size"] for file in facts["files"]} == used
    assert (facts["size"], facts["root"]) == (sum(used.values()), "saved_model.pb")
    assert facts["folder"] == {"files": 4, "size": sum(sizes.values())}
    assert facts["root_size"] == facts["proto_size"] == sizes["saved_model.pb"]
    shown = call("info", folder).stdout
    assert f"size     {in_bytes(sum(used.values()))} in 2 files\n" in shown
    assert f"folder   {in_bytes(sum(sizes.values()))} in 4 files\n" in shown
    assert f"root     saved_model.pb: {in_bytes(sizes['saved_model.pb'])}\n" in shown


def test_signatures_of_a_saved_model_are_shown(call: Any, tmp_path: Path) -> None:
    model: Any = schema.bundled().message_class("tensorflow.SavedModel")()
    graph = model.meta_graphs.add()
    graph.meta_info_def.tags.append("serve")
    called = graph.signature_def["serving_default"]
    called.method_name = "tensorflow/serving/predict"
    called.inputs["x"].dtype, called.outputs["y"].dtype = 1, 9
    called.inputs["x"].tensor_shape.dim.add(size=-1)
    called.outputs["y"].tensor_shape.unknown_rank = True
    (tmp_path / "saved_model.pb").write_bytes(model.SerializeToString())
    (signature,) = told(call, tmp_path)["signatures"]
    assert (signature["name"], signature["tags"], signature["inputs"][0]["shape"]) == (
        "serving_default",
        ["serve"],
        [None],
    )
    row = call("info", tmp_path).stdout.splitlines()[-1]
    assert row.split() == [
        "serving_default",
        "serve",
        "x",
        "F32",
        "[?]",
        "y",
        "I64",
        "[…]",
        "tensorflow/serving/predict",
    ]


def test_a_file_brings_the_files_that_its_tensors_lie_in(
    call: Any, onnx_beside: Callable[..., Path], tmp_path: Path, monkeypatch: Any
) -> None:
    path = onnx_beside(tmp_path)
    (tmp_path / "other.txt").write_text("none of its files")
    size = path.stat().st_size
    monkeypatch.chdir(tmp_path)
    for name in (path, "model.onnx"):
        facts = told(call, name)
        assert facts["files"] == [{"path": "model.onnx", "size": size}, {"path": "weights.bin", "size": 12_000}]
        assert (facts["size"], facts["root_size"], facts["missing"]) == (size + 12_000, size, [])
    shown = call("info", path).stdout
    assert f"size     {in_bytes(size + 12_000)} in 2 files\nroot     model.onnx: {in_bytes(size)}\n" in shown


def test_a_file_that_is_not_there_is_named(call: Any, onnx_beside: Callable[..., Path], tmp_path: Path) -> None:
    path = onnx_beside(tmp_path)
    (tmp_path / "weights.bin").unlink()
    facts = told(call, path)
    assert (facts["size"], facts["missing"]) == (path.stat().st_size, ["weights.bin"])
    assert "\nmissing  weights.bin: tensors in missing files can't be read\n" in call("info", path).stdout


def test_a_bundle_is_as_large_as_its_shards(call: Any, saved_model: Callable[[Path], Path], tmp_path: Path) -> None:
    folder = saved_model(tmp_path / "model") / "variables"
    facts = told(call, folder / "variables.index")
    assert facts["size"] == sum(path.stat().st_size for path in folder.iterdir())
    assert (facts["root"], facts["proto_size"]) == ("variables.index", None)
    assert facts["root_size"] == (folder / "variables.index").stat().st_size


def test_of_a_chunked_file_both_sizes_are_told(call: Any, model: Path, tmp_path: Path) -> None:
    call("split", model, tmp_path / "parts", "--min-chunk", "64KiB")
    path = tmp_path / "parts.cpb"
    facts = told(call, path)
    assert (facts["size"], facts["proto_size"]) == (path.stat().st_size, model.stat().st_size)
    shown = call("info", path).stdout
    assert f"size     {in_bytes(path.stat().st_size)}\n" in shown
    assert f"proto    {in_bytes(model.stat().st_size)}, merged\n" in shown


def test_a_store_tells_both_too(call: Any, onnx_beside: Callable[..., Path], tmp_path: Path) -> None:
    path = onnx_beside(tmp_path)
    size = os.path.getsize(path)
    call("push", tmp_path, "--tag", "sizes:1")
    facts = told(call, "@sizes:1")
    assert (facts["size"], facts["root_size"]) == (size + 12_000, size)
    shown = call("info", "@sizes:1").stdout
    assert f"{in_bytes(size + 12_000)} in 2 files\n" in shown
    assert f"model.onnx: {in_bytes(size)}\n" in shown


def test_tensors_and_inputs_are_shown_of_files_and_stores_alike(call: Any, tmp_path: Path) -> None:
    weights = [numpy_helper.from_array(np.zeros((3, n + 1), "<f4"), f"layer.{n}.w") for n in range(12)]
    inputs = [
        helper.make_tensor_value_info("x", 1, ["batch", 3]),
        helper.make_tensor_value_info("layer.0.w", 1, [3, 1]),
    ]
    graph = helper.make_graph([], "main", inputs, [helper.make_tensor_value_info("y", 7, None)], weights)
    path = tmp_path / "model.onnx"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    pushed = json.loads(call("push", path, "--tag", "shown:1", "--json").stdout)["store"]["id"]
    facts = [told(call, path), told(call, "@shown:1")]
    for found in facts:
        assert (found["tensors"], found["parameters"]) == (12, 3 * 78)
        assert found["dtypes"] == [{"dtype": "F32", "tensors": 12, "elements": 234, "size": 936}]
        assert [each["name"] for each in found["largest"]] == [f"layer.{n}.w" for n in range(11, 1, -1)]
        (signature,) = found["signatures"]
        assert [(each["name"], each["dtype"], each["shape"]) for each in signature["inputs"]] == [
            ("x", "F32", [None, 3])
        ]
        assert [(each["name"], each["dtype"], each["shape"]) for each in signature["outputs"]] == [("y", "I64", None)]
    for source in (path, f"@{pushed}"):
        shown = call("info", source).stdout
        assert re.search(r"^tensors +12 with 234 parameters: F32 100 %$", shown, re.MULTILINE)
        assert re.search(r"^inputs +x F32 \[\?, 3\]$", shown, re.MULTILINE)
        assert re.search(r"^ *144 B +15.4 % +F32 +3×12 +layer.11.w$", shown, re.MULTILINE)
    assert "did you mean 'shown:1'?" in call("info", "@shwon:1", code=4).stderr


def test_a_file_that_is_no_protobuf_is_said_to_be_none(call: Any, tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(b"\x1c\0\0\0TFL3" + bytes(100))
    pushed = call("push", tmp_path / "m.tflite")
    line = "m.tflite is not in a supported format (this is a TFLite flatbuffer, not a protobuf)\n"
    assert f"stored as plain files: {line}" in pushed.stderr


def test_an_empty_file_is_stored_but_not_as_a_model(call: Any, tmp_path: Path) -> None:
    (tmp_path / "empty.onnx").touch()
    assert "the file is empty" in call("info", tmp_path / "empty.onnx").stdout
    pushed = call("push", tmp_path / "empty.onnx", "--tag", "empty:1")
    assert "stored as plain files: empty.onnx is not in a supported format (the file is empty)" in pushed.stderr
    assert json.loads(call("info", "@empty:1", "--json").stdout)["root"] is None


def test_a_json_program_has_inputs_and_outputs(call: Any) -> None:
    (signature,) = told(call, MODELS / "paddle_pir_json")["signatures"]
    assert [(each["name"], each["shape"]) for each in signature["inputs"]] == [("x", [None, 4])]
    assert [(each["name"], each["shape"]) for each in signature["outputs"]] == [("fetch_name_0", [None, 4])]
