"""Models in local files: found by what they are, each file looked at once."""

from __future__ import annotations

import json
import re
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.support.golden import stored
from tests.support.stores import onnx

from protoslice import detection, open_model
from protoslice.errors import NotFound
from protoslice.sources.files import FileSource


def test_the_root_alone_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.onnx").write_bytes(onnx(20_000))
    (tmp_path / "notes.txt").write_text("not a model")
    plainly, seen = detection.detect, Counter[str | None]()

    def noting(head: bytes, filename: str | None = None, size: int | None = None) -> Any:
        seen[filename] += 1
        return plainly(head, filename, size)

    monkeypatch.setattr(detection, "detect", noting)
    with open_model(tmp_path) as model:
        assert (model.model.root, model.model.type) == ("model.onnx", "onnx.ModelProto")
    assert seen == {"model.onnx": 1}
    seen.clear()
    with open_model(tmp_path / "model.onnx") as model:
        assert [tensor.name for tensor in model.matching()] == ["weight-0"]
    assert seen == {"model.onnx": 1}
    seen.clear()
    with open_model(tmp_path / "model.onnx", type="onnx.ModelProto") as model:
        assert len(list(model.matching())) == 1
    assert seen == {"model.onnx": 1}
    seen.clear()
    with open_model(stored("models/tf_ckpt_many/many.index")) as model:
        assert len(list(model.matching())) > 1
    assert seen == {"many.index": 1}


def test_sources_by_path_are_a_model_and_stay_open(tmp_path: Path) -> None:
    (tmp_path / "weights.onnx").write_bytes(onnx(20_000))
    (tmp_path / "notes.txt").write_text("not a model")
    with FileSource(tmp_path / "weights.onnx") as weights, FileSource(tmp_path / "notes.txt") as notes:
        files = {"notes.txt": notes, "weights.onnx": weights}
        with open_model(files) as model:
            assert (model.model.root, list(model)) == ("weights.onnx", ["weight-0"])
            assert model["weight-0"].nbytes == 20_000
        assert notes.read(0, 3) == b"not"
        assert weights.read(0, weights.size) == onnx(20_000)
        with open_model(files, "weights.onnx", "onnx.ModelProto") as model:
            assert list(model) == ["weight-0"]
        with pytest.raises(NotFound, match=re.escape("No file 'other.onnx'")):
            open_model(files, "other.onnx")


def test_memory_for_a_tensor_is_allocated_once(tmp_path: Path) -> None:
    size = 32 << 20
    head = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    (tmp_path / "m.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + b"\1" * size)
    with open_model(tmp_path / "m.safetensors") as opened:
        opened["w"][:1]
        tracemalloc.start()
        try:
            array = opened["w"][...]
            assert size < tracemalloc.get_traced_memory()[1] < 1.2 * size
        finally:
            tracemalloc.stop()
    assert array.sum() == size
    assert array.flags.writeable
