"""The verb `extract`, and views that are folders: files of a local model and of a store are the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.golden import folder

from protoslice.client import Client

MODEL = folder("onnx_external_one") / "model.onnx"


@pytest.fixture
def stored(service: str) -> str:
    """The URL of a store of `MODEL`."""
    with Client(service) as client:
        return f"{service}/v1/stores/{client.push(MODEL.parent).store.id}"


def test_extract_writes_the_same_files_of_a_store(call: Any, stored: str, tmp_path: Path) -> None:
    for name, model in (("here", str(MODEL)), ("there", stored)):
        said = json.loads(call("extract", model, tmp_path / name, "--align", "256", "--json").stdout)
        assert [Path(each["path"]).name for each in said] == ["weights.bin", "model.onnx"]
        call("extract", model, tmp_path / f"{name}.onnx")
    call("pull", stored, tmp_path / "pulled", "--view", "onnx", "--align", "256")
    for file in ("weights.bin", "model.onnx"):
        first = (tmp_path / "here" / file).read_bytes()
        assert first == (tmp_path / "there" / file).read_bytes() == (tmp_path / "pulled" / file).read_bytes()
    assert (tmp_path / "here.onnx").read_bytes() == (tmp_path / "there.onnx").read_bytes()


def test_extract_refuses_what_it_cannot_write(call: Any, tmp_path: Path) -> None:
    refused = call("extract", MODEL, tmp_path / "a.onnx", "--output", "nothing", code=4).stderr
    assert "no value or node 'nothing'" in refused
    assert "a power of two" in call("extract", MODEL, tmp_path / "a", "--align", "3", code=2).stderr
    (tmp_path / "file").write_bytes(b"")
    assert "is not a folder" in call("extract", MODEL, tmp_path / "file", code=4).stderr
    assert not (tmp_path / "a").exists()


def test_pull_writes_shards(call: Any, stored: str, tmp_path: Path) -> None:
    call("pull", stored, tmp_path / "cut", "--view", "safetensors", "--shards", "64", "--dtype", "BF16")
    index = json.loads((tmp_path / "cut/model.safetensors.index.json").read_text())
    files = {path.name for path in (tmp_path / "cut").iterdir()}
    assert files == {*index["weight_map"].values(), "model.safetensors.index.json"}
    call("pull", stored, tmp_path / "whole", "--view", "safetensors", "--shards", "1GiB")
    assert [path.name for path in (tmp_path / "whole").iterdir()] == ["model.safetensors"]


def test_pull_names_options_that_a_view_lacks(call: Any, stored: str, tmp_path: Path) -> None:
    for option, view in (("--shards", "onnx"), ("--dtype", "cpb"), ("--align", "merge")):
        said = call(
            "pull", stored, tmp_path / "x", "--view", view, option, "1024" if option != "--dtype" else "F32", code=2
        )
        assert f"{option} needs --view safetensors" in said.stderr


def test_pull_writes_parts_under_names_of_their_own(call: Any, stored: str, tmp_path: Path) -> None:
    views = ["tensors/constval?slice=0:1", "tensors/constval", "chunks/0", "merge?path=graph.name"]
    said = json.loads(
        call("pull", stored, tmp_path, "--json", *(arg for view in views for arg in ("--only", view))).stdout
    )
    names = [Path(each["path"]).name for each in said]
    assert names == ["constval.bin", "2-constval.bin", "chunk-0.pb", "graph.name.txt"]
    assert [(tmp_path / name).stat().st_size for name in names] == [each["size"] for each in said]
    assert (tmp_path / names[1]).read_bytes()[:40] == (tmp_path / names[0]).read_bytes()
    assert "needs a folder" in call("pull", stored, "--only", "chunks/0", code=2).stderr
