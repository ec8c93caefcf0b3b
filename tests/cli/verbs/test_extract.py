"""`split` says what becomes of a folder that is split."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from protoslice import schema


def test_a_saved_model_that_is_split_is_said_not_to_load(call: Any, tmp_path: Path) -> None:
    message: Any = schema.bundled().message_class("tensorflow.SavedModel")(saved_model_schema_version=1)
    node = message.meta_graphs.add().graph_def.node.add(name="c", op="Const")
    node.attr["value"].tensor.tensor_content = bytes(300_000)
    path = tmp_path / "saved_model.pb"
    path.write_bytes(message.SerializeToString())
    done = call("split", path, tmp_path / "saved_model", "--min-chunk", "64KiB")
    assert f"TensorFlow cannot load {tmp_path / 'saved_model.cpb'}: keep saved_model.pb" in done.stderr
    assert path.read_bytes() == message.SerializeToString()
    assert "TensorFlow" not in call("split", path, tmp_path / "whole").stderr


def test_of_other_models_nothing_is_said(call: Any, model: Callable[..., Path], tmp_path: Path) -> None:
    assert call("split", model, tmp_path / "parts", "--min-chunk", "64KiB").stderr == ""


def test_merge_notes_when_no_field_is_larger_than_the_limit(call: Any, model: Path, tmp_path: Path) -> None:
    without = call("merge", model, tmp_path / "small", "--omit-larger-than", "1KiB").stderr
    assert "nothing was left out" not in without
    whole = call("merge", model, tmp_path / "whole", "--omit-larger-than", "1GiB").stderr
    assert "note: nothing was left out: no field is larger than 1.00 GiB" in whole
