"""Tests of `tensor`: files are written as their names say, and roots that are no protos are read too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import pytest
from onnx import helper, numpy_helper
from safetensors.numpy import load_file
from tests.support.bundles import Variable, bundle, crc32c, masked
from tests.support.golden import MODELS


def test_an_array_is_written_as_one(call: Any, store: str, model: Path, tmp_path: Path) -> None:
    for number, source in enumerate((model, store)):
        out = tmp_path / f"{number}.npy"
        call("tensor", source, "constant_1", "-o", out, "--slice", "0:10")
        assert numpy.load(out).tobytes() == b"\x02" * 40
        call("tensor", source, "constant_1", "-o", out, "--format", "raw", "--force")
        assert out.read_bytes() == b"\x02" * 300_000
        assert json.loads(call("tensor", source, "constant_1", "--json").stdout)["shape"] == [75_000]


def test_all_tensors_go_to_one_file(call: Any, store: str, model: Path, tmp_path: Path) -> None:
    for number, source in enumerate((model, store)):
        out = tmp_path / f"{number}.safetensors"
        call("tensor", source, "-o", out)
        assert {name: array.tobytes()[:1] for name, array in load_file(out).items()} == {
            f"constant_{n}": bytes([n + 1]) for n in range(4)
        }
        call("tensor", source, "*_3", "-o", out, "--force")
        assert list(load_file(out)) == ["constant_3"]
        for name in ("all", "all.npz"):
            refused = call("tensor", source, "-o", tmp_path / name, code=2).stderr
            assert f"Cannot write several tensors to {tmp_path / name}: use -o OUT.safetensors" in refused
    assert (tmp_path / "0.safetensors").read_bytes() == (tmp_path / "1.safetensors").read_bytes()


def test_a_root_that_is_no_proto_is_told_by_its_tensors(call: Any, tmp_path: Path) -> None:
    for name, data in bundle("v", [Variable("weight", 1, (100,), bytes(400))]).items():
        (tmp_path / name).write_bytes(data)
    for place in (tmp_path, tmp_path / "v.index"):
        output = json.loads(call("info", place, "--json").stdout)
        entry = {"shard": 0, "offset": 0, "size": 400, "crc32c": masked(crc32c(bytes(400)))}
        assert output["biggest"] == [{"path": "weight", "size": 400, "count": None, "stored": entry}]
        assert "weight" in call("info", place).stdout
        assert "400 B  100.0 %  F32    100    weight\n" in call("info", place).stdout


def test_parameters_without_their_program_are_told_by_their_heads(call: Any) -> None:
    path = MODELS / "paddle_combined" / "inference.pdiparams"
    expected = json.loads((path.parent / "expected.json").read_text())["tensors"]
    rows = json.loads(call("tensor", path, "--json").stdout)
    assert [(row["dtype"], row["shape"]) for row in rows] == [(each["dtype"], each["shape"]) for each in expected]
    output = json.loads(call("info", path, "--json").stdout)
    assert output["why"] == f"not a proto, but it has {len(expected)} tensors"
    assert output["biggest"][0]["path"].startswith("tensor[")


def test_numbers_are_summed_up(call: Any, store: str, model: Path) -> None:
    for source in (model, store):
        table = call("stats", source).stdout.splitlines()
        assert [line.split()[-1] for line in table[1:]] == [f"constant_{n}" for n in range(4)]
        output = json.loads(call("stats", source, "constant_1", "--slice", "0:10", "--json").stdout)
        assert (output["elements"], output["looked_at"], output["zeros"], output["deviation"]) == (10, 10, 0, 0)
        assert (output["min"], output["max"]) == (output["mean"], output["mean"])
        shown = call("stats", source, "constant_1", "--sample", "3").stdout
        assert "3 evenly spread" in shown
        assert len(json.loads(call("stats", source, "*_3", "--json").stdout)) == 1
    call("stats", model, "nothing", code=4)


def test_the_list_is_filtered_and_sorted(call: Any, store: str, tmp_path: Path) -> None:
    sizes = {"layer.10.w": 5, "layer.2.w": 9, "layer.2.b": 1, "head": 7}
    tensors = [numpy_helper.from_array(numpy.zeros(size, "<f4"), name) for name, size in sizes.items()]
    path = tmp_path / "model.onnx"
    path.write_bytes(helper.make_model(helper.make_graph([], "main", [], [], tensors)).SerializeToString())

    def names(*args: str) -> list[str]:
        return [row["name"] for row in json.loads(call("tensors", path, *args, "--json").stdout)]

    assert names("--sort", "size") == ["layer.2.w", "head", "layer.10.w", "layer.2.b"]
    assert names("--sort", "name", "--filter", "layer*w") == ["layer.2.w", "layer.10.w"]
    assert "use one of size, name, dtype, shape" in call("tensor", path, "--sort", "weight", code=2).stderr
    call("tensor", path, "head", "--filter", "head", code=2)
    call("tensor", path, "--filter", "head", "-o", tmp_path / "head.npy", code=2)


@pytest.mark.parametrize("verb", ["tensor", "stats"])
def test_a_name_that_does_not_exist_brings_similar_ones(call: Any, store: str, model: Path, verb: str) -> None:
    for source in (model, store):
        assert "did you mean 'constant_1'" in call(verb, source, "onstant_1", code=4).stderr
        assert (
            "did you mean 'constant_0' or 'constant_1' or 'constant_2'?" in call(verb, source, "stant", code=4).stderr
        )
        assert "did you mean" not in call(verb, source, "unlike", code=4).stderr


def test_a_list_ends_at_the_limit(call: Any, store: str, model: Path) -> None:
    for source in (model, store):
        listed = call("tensor", source, "--limit", 2, "--sort", "name")
        assert [line.split()[-1] for line in listed.stdout.splitlines()[1:]] == ["constant_0", "constant_1"]
        assert "only the first 2 of 4 are shown" in listed.stderr
        assert len(json.loads(call("tensor", source, "--limit", 3, "--json").stdout)) == 3


def test_a_name_of_several_tensors_is_answered_by_their_addresses(call: Any, service: str, tmp_path: Path) -> None:
    weights = [numpy_helper.from_array(numpy.arange(count, dtype="f4"), "w") for count in (4, 3)]
    path = tmp_path / "twins.onnx"
    path.write_bytes(helper.make_model(helper.make_graph([], "g", [], [], weights)).SerializeToString())
    call("push", path, "--tag", "twins:1", "--url", service)
    for source in (path, f"{service}/v1/stores/twins:1"):
        addresses = [row.split("(")[1].rstrip(")") for row in call("tensor", source).stdout.splitlines()[1:]]
        for verb, *more in (("tensor",), ("tensor", "--json"), ("stats",)):
            refused = call(verb, source, "w", *more, code=2).stderr
            assert all(repr(each) in refused for each in addresses), refused
        assert "[0 1 2]" in call("tensor", source, addresses[1]).stdout
