"""Parts of ONNX models: they compute what the whole model computes, as `onnx.utils.extract_model`'s parts do."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from tests.support.golden import folder

from protoslice.errors import InvalidInput, NotFound, ProtosliceError, Unsupported
from protoslice.formats.onnx_files.element_types import ElementTypes
from protoslice.formats.onnx_files.external import in_one_file, with_external_data
from protoslice.formats.onnx_files.extraction import OnnxNode, SubModel
from protoslice.formats.onnx_files.messages import OnnxProto
from protoslice.library.models import LocalModel, open_model
from protoslice.sources.ropes import Rope

F, B, I = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64  # noqa: E741


def extract(model: LocalModel, inputs: tuple[str, ...] = (), outputs: tuple[str, ...] = ()) -> onnx.ModelProto:
    data = in_one_file(OnnxProto(model.model), SubModel(inputs, outputs))
    return onnx.load_from_string(Rope(data.rope, data.sources).read())


def info(name: str, kind: int = F) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, ["n", 8])


def layered(tmp_path: Path, **more: Any) -> Path:
    """A model of six layers, with a comparison, a choice by `If` that takes values from outside, and a split."""
    random, last = np.random.default_rng(3), "x"
    nodes, weights = [], []
    for number in range(6):
        weights.append(numpy_helper.from_array(random.standard_normal((8, 8)).astype("f4"), f"w{number}"))
        nodes += [
            helper.make_node("MatMul", [last, f"w{number}"], [f"m{number}"]),
            helper.make_node("Relu", [f"m{number}"], [f"r{number}"]),
        ]
        last = f"r{number}"
    branches = [
        helper.make_graph([helper.make_node(op, ["r1", "r2"], [f"{op}_out"])], op, [], [info(f"{op}_out")])
        for op in ("Add", "Sub")
    ]
    nodes += [
        helper.make_node("Greater", ["m4", "m5"], ["greater"]),
        helper.make_node("Cast", ["greater"], ["cast"], to=I),
        helper.make_node("ReduceMax", ["cast"], ["any"], keepdims=0),
        helper.make_node("Cast", ["any"], ["choice"], to=B),
        helper.make_node("If", ["choice"], ["chosen"], then_branch=branches[0], else_branch=branches[1]),
        helper.make_node("Split", [last], ["left", "right"], axis=1, num_outputs=2),
        helper.make_node("Concat", ["right", "left"], ["swapped"], axis=1),
        helper.make_node("Add", ["swapped", "chosen"], ["y"]),
    ]
    inputs = [info("x"), *(info(each.name) for each in weights if more.get("version", 10) < 4)]
    graph = helper.make_graph(nodes, "g", inputs, [info("y")], weights)
    path = tmp_path / "layered.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=more.get("version", 10)), path
    )
    return path


def all_values(path: Path, given: dict[str, Any]) -> dict[str, Any]:
    """All values that the nodes of the graph compute."""
    whole = onnx.load(path)
    names = [name for node in whole.graph.node for name in node.output]
    del whole.graph.output[:]
    whole.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return dict(zip(names, ReferenceEvaluator(whole).run(None, given), strict=True)) | given


def test_parts_compute_what_the_whole_does(tmp_path: Path) -> None:
    path, random = layered(tmp_path), Random(38)
    values = all_values(path, {"x": np.random.default_rng(9).standard_normal((3, 8)).astype("f4")})
    names, checked = sorted(values), 0
    with open_model(path) as model:
        for _ in range(150):
            inputs = tuple(random.sample(names, random.randrange(1, 4)))
            outputs = tuple(each for each in random.sample(names, 2) if each not in inputs)
            try:
                part = extract(model, inputs, outputs or ("y",))
            except InvalidInput:
                continue
            given = {each.name: values[each.name] for each in part.graph.input}
            for name, found in zip(outputs or ("y",), ReferenceEvaluator(part).run(None, given), strict=True):
                assert np.array_equal(found, values[name]), (inputs, outputs)
                assert found.dtype == values[name].dtype
            checked += 1
    assert checked > 40


@pytest.mark.parametrize(("inputs", "outputs"), [(("r1",), ("r3",)), (("x",), ("m2", "r0")), (("m5", "m4"), ("any",))])
def test_parts_are_those_of_onnx(inputs: tuple[str, ...], outputs: tuple[str, ...], tmp_path: Path) -> None:
    path = layered(tmp_path)
    onnx.utils.extract_model(str(path), str(tmp_path / "theirs.onnx"), [*inputs], [*outputs])
    theirs = onnx.load(tmp_path / "theirs.onnx")
    with open_model(path) as model:
        ours = extract(model, inputs, outputs)
    assert list(ours.graph.node) == list(theirs.graph.node)
    assert sorted(each.name for each in ours.graph.initializer) == sorted(
        each.name for each in theirs.graph.initializer
    )
    for mine, other in ((ours.graph.input, theirs.graph.input), (ours.graph.output, theirs.graph.output)):
        told = [[(each.name, each.type.tensor_type.elem_type) for each in some] for some in (mine, other)]
        assert told[0] == told[1]


def test_only_weights_that_are_needed_are_taken(tmp_path: Path) -> None:
    with open_model(layered(tmp_path)) as model:
        assert [each.name for each in extract(model, ("r3",), ("r4",)).graph.initializer] == ["w4"]
        assert [each.name for each in extract(model, (), ("r1",)).graph.initializer] == ["w0", "w1"]
        whole = extract(model)
        assert (len(whole.graph.node), len(whole.graph.initializer)) == (20, 6)
        files = with_external_data(OnnxProto(model.model), SubModel(("r3",), ("r4",)))
        assert files.weights.size == 0  # 256 bytes stay inside


def test_weights_stay_inputs_where_the_format_wants_them(tmp_path: Path) -> None:
    with open_model(layered(tmp_path, version=3)) as model:
        part = extract(model, ("r3",), ("r4",))
    assert [each.name for each in part.graph.input] == ["r3", "w4"]


@pytest.mark.parametrize(
    ("inputs", "outputs", "error", "words"),
    [
        (("nothing",), ("y",), NotFound, "no value 'nothing'"),
        (("x",), ("nothing",), NotFound, "no value 'nothing'"),
        (("r2",), ("chosen",), InvalidInput, "need the value 'x'"),
        (("left",), ("y",), InvalidInput, "need the value 'x'"),
        (("x", "left"), ("y",), InvalidInput, "that makes the input 'left' also makes"),
        (tuple(f"v{number}" for number in range(1001)), (), InvalidInput, "at most 1000"),
    ],
)
def test_impossible_parts_say_why(
    inputs: tuple[str, ...], outputs: tuple[str, ...], error: type[ProtosliceError], words: str, tmp_path: Path
) -> None:
    with open_model(layered(tmp_path)) as model, pytest.raises(error, match=words):
        extract(model, inputs, outputs)


def test_an_unknown_type_is_named(tmp_path: Path) -> None:
    nodes = [helper.make_node("Mystery", ["x"], ["m"], domain="other"), helper.make_node("Relu", ["m"], ["y"])]
    graph = helper.make_graph(nodes, "g", [info("x")], [info("y")])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("other", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets), tmp_path / "m.onnx")
    with open_model(tmp_path / "m.onnx") as model, pytest.raises(Unsupported, match=r"'m' is not declared.*shape_inf"):
        extract(model, ("m",), ("y",))


@pytest.mark.parametrize("case", ["onnx_subgraphs", "onnx_functions_training", "onnx_sparse_attrs", "onnx_types_raw"])
def test_whole_models_of_the_corpus_stay_valid(case: str) -> None:
    path = folder(case) / "model.onnx"
    with open_model(path) as model:
        part = extract(model)
    before = onnx.load(path)
    assert [each.name for each in part.graph.output] == [each.name for each in before.graph.output]
    assert part.functions == before.functions


NODES = [
    ("Shape", ["f"], {}, [I]),
    ("Cast", ["f"], {"to": TensorProto.FLOAT16}, [TensorProto.FLOAT16]),
    ("TopK", ["f", "i"], {}, [F, I]),
    ("Dropout", ["f"], {}, [F, B]),
    ("MaxPool", ["f"], {"kernel_shape": [1]}, [F, I]),
    ("Where", ["b", "h", "h"], {}, [TensorProto.FLOAT16]),
    ("Equal", ["f", "f"], {}, [B]),
    ("ArgMax", ["f"], {}, [I]),
    ("ConstantOfShape", ["i"], {}, [F]),
    ("ConstantOfShape", ["i"], {"value": helper.make_tensor("v", I, [1], [0])}, [I]),
    ("Constant", [], {"value_int": 3}, [I]),
    ("Range", ["i", "i", "i"], {}, [I]),
    ("OneHot", ["i", "i", "h"], {}, [TensorProto.FLOAT16]),
    ("QuantizeLinear", ["f", "f", "u"], {}, [TensorProto.UINT8]),
    ("DequantizeLinear", ["u", "f", "u"], {}, [F]),
    ("DynamicQuantizeLinear", ["f"], {}, [TensorProto.UINT8, F, TensorProto.UINT8]),
    ("MatMulInteger", ["u", "u"], {}, [TensorProto.INT32]),
    ("EyeLike", ["h"], {}, [TensorProto.FLOAT16]),
    ("RandomNormal", [], {"shape": [1]}, [F]),
    ("Unique", ["h"], {}, [TensorProto.FLOAT16, I, I, I]),
    ("BatchNormalization", ["f"] * 5, {}, [F]),
]


@pytest.mark.parametrize(("operator", "inputs", "attributes", "types"), NODES)
def test_element_types_of_operators(
    operator: str, inputs: list[str], attributes: dict[str, Any], types: list[int]
) -> None:
    outputs = [f"o{number}" for number in range(len(types))]
    node = helper.make_node(operator, inputs, outputs, **attributes)
    given = {"f": F, "i": I, "b": B, "h": TensorProto.FLOAT16, "u": TensorProto.UINT8}
    constant = next((each.t.data_type for each in node.attribute if each.HasField("t")), 0)
    found = ElementTypes([OnnxNode(node, inputs, outputs, constant)], given, lambda name: 0)
    assert [found.of(name) for name in outputs] == types
