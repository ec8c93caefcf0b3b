"""ONNX: values of its test data, and models with their weights moved into or out of another file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, external_data_helper, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from tests.support.golden import folder

from protoslice import open_model, schema
from protoslice.errors import CorruptModel, InvalidInput, ProtosliceError, Unsupported
from protoslice.formats import onnx_external as external
from protoslice.formats.messages import resolve_location
from protoslice.formats.onnx_external import check_alignment, in_one_file, with_external_data
from protoslice.formats.onnx_messages import OnnxProto, without

CASES = ("onnx_external_many", "onnx_external_one", "onnx_subgraphs", "onnx_types_raw", "onnx_types_typed")


def written(path: Path, out: Path, align: int = 4096) -> tuple[onnx.ModelProto, dict[str, int]]:
    """Write the model at `path` with external data into `out`; return it as onnx loads it, and its offsets."""
    with open_model(path) as model:
        files = with_external_data(OnnxProto(model.model), align=align)
        (out / "model.onnx").write_bytes(files.model.read())
        (out / "weights.bin").write_bytes(files.weights.read())
    bare = onnx.load(out / "model.onnx", load_external_data=False)
    places = {each.name: {item.key: item.value for item in each.external_data} for each in bare.graph.initializer}
    assert all(place.get("location", "weights.bin") == "weights.bin" for place in places.values())
    return onnx.load(out / "model.onnx"), {name: int(place["offset"]) for name, place in places.items() if place}


def values(model: onnx.ModelProto) -> dict[str, Any]:
    strings = TensorProto.STRING
    return {
        each.name: np.array(each.string_data) if each.data_type == strings else numpy_helper.to_array(each)
        for each in model.graph.initializer
    }


def weighty(tmp_path: Path, **more: Any) -> Path:
    """Return a model with tensors of all sizes, stored in all ways, and constants."""
    random = np.random.default_rng(1)
    tensors = [
        numpy_helper.from_array(random.standard_normal((40, 30)).astype("f4"), "raw"),
        helper.make_tensor("typed", TensorProto.FLOAT, [300], random.standard_normal(300).astype("f4").tolist()),
        helper.make_tensor("varints", TensorProto.INT64, [200], random.integers(-9, 9, 200).tolist()),
        helper.make_tensor("halves", TensorProto.FLOAT16, [600], np.arange(600, dtype="f2").tolist()),
        helper.make_tensor("nibbles", TensorProto.INT4, [4096], [each % 16 - 8 for each in range(4096)]),
        numpy_helper.from_array(np.arange(3, dtype="i8"), "small"),
        helper.make_tensor("texts", TensorProto.STRING, [2], ["a" * 2000, "b"]),  # type: ignore[list-item]
    ]
    constant = numpy_helper.from_array(random.standard_normal(500).astype("f4"), "inside")
    nodes = [
        helper.make_node("Constant", [], ["constant"], value=constant),
        helper.make_node("Constant", [], ["shown"], value=constant),
        helper.make_node("Add", ["x", "constant"], ["y"]),
    ]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [500]) for name in ("x", "y", "shown")]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=more.get("version", 10))
    path = tmp_path / "in.onnx"
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("case", CASES)
def test_tensors_are_the_same_with_external_data(case: str, tmp_path: Path) -> None:
    before = onnx.load(folder(case) / "model.onnx")
    after, offsets = written(folder(case) / "model.onnx", tmp_path)
    ours, theirs = values(after), values(before)
    assert ours.keys() >= theirs.keys()
    for name, value in theirs.items():
        assert ours[name].dtype == value.dtype
        assert ours[name].tolist() == value.tolist(), name
    assert all(offset % 4096 == 0 for offset in offsets.values())
    kept = {each.op_type for each in after.graph.node}
    assert kept | {"Constant"} == {each.op_type for each in before.graph.node} | {"Constant"}


@pytest.mark.parametrize("align", [1, 256, 1 << 20])
def test_large_tensors_and_constants_are_external(align: int, tmp_path: Path) -> None:
    before = onnx.load(weighty(tmp_path))
    after, offsets = written(tmp_path / "in.onnx", tmp_path, align)
    assert offsets.keys() == {"raw", "typed", "varints", "halves", "nibbles", "constant"}
    assert all(offset % align == 0 for offset in offsets.values())
    found = values(after)
    for name, value in values(before).items():
        assert found[name].tolist() == value.tolist(), name
    assert found["constant"].tobytes() == numpy_helper.to_array(before.graph.node[0].attribute[0].t).tobytes()
    assert [each.output[0] for each in after.graph.node] == ["shown", "y"]
    onnx.checker.check_model(str(tmp_path / "model.onnx"))


def test_constants_stay_where_initializers_are_inputs_too(tmp_path: Path) -> None:
    after, offsets = written(weighty(tmp_path, version=3), tmp_path)
    assert len(after.graph.node) == 3
    assert "constant" not in offsets


def test_a_model_in_one_file_comes_back_byte_for_byte(tmp_path: Path) -> None:
    path = folder("onnx_subgraphs") / "model.onnx"
    with open_model(path) as model:
        assert in_one_file(OnnxProto(model.model)).read() == path.read_bytes()
    before = onnx.load(folder("onnx_external_many") / "model.onnx")
    with open_model(folder("onnx_external_many"), "model.onnx") as model:
        after = onnx.load_from_string(in_one_file(OnnxProto(model.model)).read())
    assert {name: value.tobytes() for name, value in values(after).items()} == {
        name: value.tobytes() for name, value in values(before).items()
    }


def test_elements_are_extents_of_the_file(tmp_path: Path) -> None:
    path = weighty(tmp_path)
    with open_model(path) as model:
        weights = with_external_data(OnnxProto(model.model), align=1).weights
        source = model.model.files["in.onnx"]
        stored = sum(
            piece[2]
            for piece in weights.core.pieces()
            if isinstance(piece, tuple) and weights.sources[piece[0]] is source
        )
    assert stored == 40 * 30 * 4 + 300 * 4 + 500 * 4  # the others are numbers in varints


@pytest.mark.parametrize("case", ["onnx_hostile_missing", "onnx_hostile_dotdot", "onnx_hostile_beyond"])
def test_weights_that_are_not_there_are_an_error(case: str) -> None:
    with open_model(folder(case), "model.onnx") as model, pytest.raises(ProtosliceError):
        in_one_file(OnnxProto(model.model))


def test_a_model_above_the_limit_of_runtimes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external, "_LARGEST_MODEL", 5000)
    with open_model(weighty(tmp_path)) as model:
        proto = OnnxProto(model.model)
        with pytest.raises(Unsupported, match=r"use onnx/model\.onnx and onnx/weights\.bin"):
            in_one_file(proto)
        assert with_external_data(proto).model.size < 5000
        monkeypatch.setattr(external, "_LARGEST_MODEL", 500)
        with pytest.raises(Unsupported, match="without its weights"):
            with_external_data(proto)


def test_other_roots_are_refused() -> None:
    with open_model(folder("tf_graph_const")) as model, pytest.raises(Unsupported, match="not an ONNX model"):
        OnnxProto(model.model)


@pytest.mark.parametrize("align", [0, -1, 3, 1 << 21])
def test_alignments_are_powers_of_two(align: int) -> None:
    with pytest.raises(InvalidInput, match="a power of two"):
        check_alignment(align)


def test_fields_are_left_out_of_a_message_byte_for_byte() -> None:
    message = b"\x08\x01" + b"\x8a\x00\x02\xff\xfe" + b"\x0d\0\0\0\0" + b"\x11" + bytes(8) + b"\x1a\x00"
    assert without(message, {1}) == b"\x11" + bytes(8) + b"\x1a\x00"
    assert without(message, set()) == message
    assert without(message + b"\x80", {1}) == b"\x11" + bytes(8) + b"\x1a\x00\x80"


def placed_everywhere(folder: Path) -> None:
    """Return a model whose weights are external in all places where a tensor may be."""
    number = 0

    def tensor(name: str, count: int) -> onnx.TensorProto:
        nonlocal number
        number += 1
        made = numpy_helper.from_array(np.full(count, number, "f4"), name)
        external_data_helper.set_external_data(made, "theirs.bin")
        return made

    def branch(name: str) -> onnx.GraphProto:
        constants = [helper.make_node("Constant", [], [f"{name}{n}"], value=tensor("t", n)) for n in (1, 500)]
        sums = [helper.make_node("Sum", ["x", f"{name}1", f"{name}500", f"{name}i", f"{name}j"], [f"{name}y"])]
        infos = [helper.make_tensor_value_info(f"{name}y", TensorProto.FLOAT, [500])]
        return helper.make_graph([*constants, *sums], name, [], infos, [tensor(f"{name}i", 500), tensor(f"{name}j", 1)])

    nodes = [
        helper.make_node("Constant", [], ["small"], value=tensor("t", 1)),
        helper.make_node("Constant", [], ["large"], value=tensor("t", 500)),
        helper.make_node("Constant", [], ["shown"], value=tensor("t", 500)),
        helper.make_node("Greater", ["small", "i"], ["c"]),
        helper.make_node("If", ["c"], ["chosen"], then_branch=branch("a"), else_branch=branch("b")),
        helper.make_node("Called", ["x"], ["called"], domain="own"),
        helper.make_node("Sum", ["chosen", "small", "large", "called", "i", "j"], ["y"]),
    ]
    body = [
        helper.make_node("Constant", [], ["c"], value=tensor("t", 500)),
        helper.make_node("Add", ["p", "c"], ["q"]),
    ]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    function = helper.make_function("own", "Called", ["p"], ["q"], body, opsets[:1])
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [500]) for name in ("x", "y", "shown")]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], [tensor("i", 1), tensor("j", 500)])
    model = helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=8)
    onnx.save(model, folder / "in.onnx")


def of_weights(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    """Yield all tensors of a model, at any depth."""
    found = list[onnx.TensorProto]()

    def walk(message: Any) -> None:
        for field, value in message.ListFields():
            for each in value if field.is_repeated else [value]:
                if isinstance(each, onnx.TensorProto):
                    found.append(each)
                elif field.message_type is not None:
                    walk(each)

    walk(model)
    return found


def test_weights_of_attributes_and_inner_graphs_are_found_without_the_files_of_the_model(tmp_path: Path) -> None:
    placed_everywhere(tmp_path)
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    with open_model(tmp_path / "in.onnx") as model:
        single = onnx.load_from_string(in_one_file(OnnxProto(model.model)).read())
        files = with_external_data(OnnxProto(model.model))
        (theirs / "model.onnx").write_bytes(files.model.read())
        (theirs / "weights.bin").write_bytes(files.weights.read())
    assert not [each.name for each in of_weights(single) if each.data_location == TensorProto.EXTERNAL]
    bare = onnx.load(theirs / "model.onnx", load_external_data=False)
    places = {item.value for each in of_weights(bare) for item in each.external_data if item.key == "location"}
    assert places == {"weights.bin"}
    given = {"x": np.arange(500, dtype="f4")}
    expected = ReferenceEvaluator(onnx.load(tmp_path / "in.onnx")).run(None, given)
    for made in (single, onnx.load(theirs / "model.onnx")):
        found = ReferenceEvaluator(made).run(None, given)
        assert [np.asarray(each).tolist() for each in found] == [np.asarray(each).tolist() for each in expected]


def test_a_node_of_another_domain_stays(tmp_path: Path) -> None:
    value = numpy_helper.from_array(np.ones(500, "f4"))
    nodes = [helper.make_node("Constant", [], ["y"], domain="own", value=value), helper.make_node("Neg", ["y"], ["z"])]
    infos = [helper.make_tensor_value_info("z", TensorProto.FLOAT, [500])]
    model = helper.make_model(helper.make_graph(nodes, "g", [], infos))
    onnx.save(model, tmp_path / "in.onnx")
    after, _ = written(tmp_path / "in.onnx", tmp_path)
    assert after.graph.node == model.graph.node


def test_several_graph_fields_are_merged(tmp_path: Path) -> None:
    whole = onnx.load(weighty(tmp_path))
    halves = [onnx.ModelProto(graph=onnx.GraphProto()), onnx.ModelProto(graph=whole.graph)]
    halves[0].graph.node.extend(whole.graph.node[:1])
    del halves[1].graph.node[:1]
    whole.ClearField("graph")
    (tmp_path / "in.onnx").write_bytes(b"".join(each.SerializeToString() for each in (halves[0], whole, halves[1])))
    after, offsets = written(tmp_path / "in.onnx", tmp_path)
    assert [each.output[0] for each in after.graph.node] == ["shown", "y"]
    assert "constant" in offsets
    expected = values(onnx.load(tmp_path / "in.onnx"))
    found = values(after)
    assert {name: found[name].tolist() for name in expected} == {name: v.tolist() for name, v in expected.items()}


# Values of ONNX's test data that no tensor holds: sequences, maps and optional values.


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


# Locations of external data: inside the root's folder only.


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("v.bin", "m/v.bin"),
        ("./v.bin", "m/v.bin"),
        ("./sub/../sub/v.bin", "m/sub/v.bin"),
        ("sub/../v.bin", "m/v.bin"),
        ("a//b/./v.bin", "m/a/b/v.bin"),
        ("..v.bin", "m/..v.bin"),
        ("...", "m/..."),
    ],
)
def test_locations_inside_of_the_folder_are_followed(location: str, path: str) -> None:
    assert resolve_location("m/model.onnx", location) == path
    assert resolve_location("model.onnx", location) == path.removeprefix("m/")


@pytest.mark.parametrize(
    "location",
    ["../v.bin", "sub/../../v.bin", "a/../../m/v.bin", "/v.bin", "//v.bin", "..", ".", "a/..", "a\\b", "v\0", "", "v/"],
)
def test_other_locations_are_refused(location: str) -> None:
    for root in ("m/model.onnx", "model.onnx", "a/b/model.onnx"):
        with pytest.raises(CorruptModel, match="of external data is"):
            resolve_location(root, location)
