"""Blocks and links of graphs, in every dialect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from onnx import TensorProto, helper
from tests.graphs.models import graph_def, graphs_of, module, network, onnx_model, program, prototxt
from tests.support.golden import folder

from protoslice import open_model
from protoslice.errors import InvalidInput, NotFound
from protoslice.facts import GraphBlock, GraphLevel, GraphOperator
from protoslice.graphs import Ends, GraphOutline, Graphs, Weight
from protoslice.schema import bundled

Nodes = list[tuple[list[str], list[str]]]


def outline_of(message: Any, weights: list[Weight] | None = None) -> GraphOutline:
    graphs = graphs_of(message)
    return GraphOutline(graphs, graphs.number(None), weights or [])


def walked(outline: GraphOutline, block: int = 0, depth: int = 0) -> Iterator[tuple[int, GraphLevel, GraphBlock]]:
    """Yield all parts of all levels, with their depth."""
    level = outline.level(block, None)
    assert len(level.parts) <= 64
    for part in level.parts:
        yield depth, level, part
        if part.id is not None:
            yield from walked(outline, part.id, depth + 1)


def named(level: GraphLevel) -> list[tuple[str, str, int]]:
    """Return kind, name and number of items or nodes of a level's parts."""
    return [(part.kind, part.name, part.items or part.nodes) for part in level.parts]


def checked(outline: GraphOutline, count: int) -> int:
    """Check that each of `count` nodes is in one place; return the depth of the tree."""
    places, deepest = list[int](), 0
    for depth, level, part in walked(outline):
        deepest = max(deepest, depth)
        ends = [part.first for part in level.parts[1:]]
        assert ends == [part.first + part.nodes for part in level.parts[:-1]], "parts of a level are neighbours"
        assert part.first >= level.parts[0].first
        if part.id is None:
            places.append(part.first)
    assert places == list(range(count))
    return deepest


def encoder(layers: int, sign: str = ".") -> Nodes:
    """Return an encoder's layers, named by their place; each takes the value of the layer before."""
    nodes: Nodes = [(["embeddings"], [])]
    before = "embeddings"
    for layer in range(layers):
        place = f"encoder{sign}layer{sign}{layer}{sign}"
        nodes += [([f"{place}query"], [before]), ([f"{place}key"], [before])]
        nodes += [([f"{place}scores"], [f"{place}query", f"{place}key"]), ([f"{place}out"], [f"{place}scores", before])]
        before = f"{place}out"
    return [*nodes, (["pooler"], [before])]


@pytest.mark.parametrize("sign", [".", "/"])
def test_layers_with_numbers_are_one_repeat(sign: str) -> None:
    outline = outline_of(graph_def(encoder(620, sign)))
    level = outline.level(0, None)
    assert named(level) == [("node", "embeddings", 1), ("repeat", f"encoder{sign}layer", 620), ("node", "pooler", 1)]
    assert [(link.source, link.target, link.count) for link in level.links[:2]] == [(0, 1, 3), (1, 2, 1)]
    ranges = outline.level(1, None)
    assert (ranges.parts[0].kind, ranges.parts[0].number, ranges.parts[1].number) == ("part", 0, ranges.parts[0].items)
    first = outline.level(ranges.parts[0].id or 0, None).parts[0]
    assert (first.kind, first.name, first.nodes) == ("group", "0", 4)
    assert checked(outline, 2 + 4 * 620) == 3


def test_layers_of_other_structure_are_no_part_of_a_repeat() -> None:
    nodes = encoder(6)
    nodes.insert(13, (["encoder.layer.2.extra"], ["encoder.layer.2.out"]))
    outline = outline_of(graph_def(nodes))
    (_, around, _) = outline.level(0, None).parts
    inner = outline.level(around.id or 0, None)
    assert named(inner) == [("repeat", "", 2), ("group", "2", 5), ("repeat", "", 3)]


def ops(sequence: str, takes: str = "before") -> Any:
    """Return an ONNX model without names, whose operators are the characters of `sequence`."""
    nodes = [
        helper.make_node(f"Op{letter}", [f"v{at - 1}" if at else "x"], [f"v{at}"]) for at, letter in enumerate(sequence)
    ]
    return helper.make_model(helper.make_graph(nodes, "g", [], []))


def test_nodes_without_names_repeat_by_their_operators() -> None:
    outline = outline_of(ops("xy" + "abc" * 5 + "z"))
    (x, y, repeat, z) = outline.level(0, None).parts
    assert [each.ops for each in (x, y, z)] == [(GraphOperator(f"Op{letter}", 1),) for letter in "xyz"]
    assert (repeat.kind, repeat.items, repeat.nodes) == ("repeat", 5, 15)
    rounds = outline.level(repeat.id or 0, None).parts
    assert [(each.kind, each.number, each.nodes) for each in rounds] == [("round", at, 3) for at in range(5)]


def test_repeats_are_found_within_repeats() -> None:
    outline = outline_of(ops(("p" + "abab" * 3 + "q") * 4))
    (whole,) = outline.level(0, None).parts
    assert (whole.kind, whole.items) == ("repeat", 4)
    (p, inner, q) = outline.level(outline.level(whole.id or 0, None).parts[0].id or 0, None).parts
    assert (p.kind, inner.kind, inner.items, q.kind) == ("node", "repeat", 6, "node")


def test_wiring_tells_nodes_with_the_same_operator_apart() -> None:
    nodes = [helper.make_node("Add", [f"v{at - 1}", f"v{at - (1 + at % 3)}"], [f"v{at}"]) for at in range(3, 30)]
    outline = outline_of(helper.make_model(helper.make_graph(nodes, "g", [], [])))
    kinds = {part.kind for _, _, part in walked(outline)}
    assert kinds == {"node", "round"} or kinds == {"node", "repeat", "round"}
    assert all(part.nodes in {1, 3} or part.nodes > 3 for _, _, part in walked(outline))
    checked(outline, 27)


def test_operators_in_many_steps_of_names_are_no_groups() -> None:
    names = [f"p2o.{('Conv', 'Relu', 'Add')[at % 3]}.{at}" for at in range(60)]
    nodes = [
        helper.make_node(name.split(".")[1], [f"v{at}"], [f"v{at + 1}"], name=name) for at, name in enumerate(names)
    ]
    outline = outline_of(helper.make_model(helper.make_graph(nodes, "g", [], [])))
    assert {part.kind for _, _, part in walked(outline)} == {"node", "repeat", "round"}


def test_groups_stand_behind_what_they_need() -> None:
    nodes: Nodes = [(["a"], []), (["head/x"], ["a"]), (["b"], ["a"]), (["c"], ["b"]), (["head/y"], ["head/x", "c"])]
    assert [part.name for part in outline_of(graph_def(nodes)).level(0, None).parts] == ["a", "b", "c", "head"]


def test_nodes_are_sorted_when_the_file_has_them_in_another_order() -> None:
    nodes: Nodes = [(["c"], ["b"]), (["b"], ["a"]), (["a"], [])]
    assert [part.name for part in outline_of(graph_def(nodes)).level(0, None).parts] == ["a", "b", "c"]


def test_constants_stand_before_the_node_that_takes_them() -> None:
    nodes: Nodes = [(["c1"], []), (["c2"], []), (["x"], ["c1"]), (["y"], ["x", "c2"])]
    assert [part.name for part in outline_of(graph_def(nodes)).level(0, None).parts] == ["c1", "x", "c2", "y"]


@pytest.mark.parametrize("make", [graph_def, onnx_model, program, module, network, prototxt])
@pytest.mark.parametrize("seed", range(8))
def test_every_node_has_one_place_in_every_dialect(make: Any, seed: int) -> None:
    random = Random(seed)
    names = [f"{random.choice('ab')}.{random.choice('cd')}.{at}" for at in range(random.randrange(1, 200))]
    nodes: Nodes = [([name], random.choices([*names, "nobody's"], k=random.randrange(3))) for name in names]
    checked(outline_of(make(nodes)), len(nodes))


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("tf_sm_keras", {"node", "group", "repeat"}),
        ("onnx_subgraphs", {"node"}),
        ("paddle_combined", {"node"}),
        ("paddle_pir_json", {"node"}),
        ("hlo_jax_constants", {"node", "repeat"}),
        ("coreml_mlprogram", {"node"}),
        ("coreml_nn_float32", {"node"}),
        ("caffe_new", {"node"}),
        ("caffe_v1_layers", {"node"}),
    ],
)
def test_models_of_others_are_strips(name: str, kinds: set[str]) -> None:
    with open_model(folder(name)) as model:
        graphs = Graphs(model.model)
        graph = graphs.number(None)
        outline = GraphOutline(graphs, graph, [])
        checked(outline, graphs.entry(graph).nodes)
        assert {part.kind for _, _, part in walked(outline)} >= kinds


@pytest.mark.parametrize(
    ("name", "graph", "value", "told"),
    [
        ("tf_sm_functions", None, "serving_default_x", ("F32", ())),
        ("paddle_combined", "blocks[0]", "fc_0.tmp_0", ("F32", (None, 11))),
        ("paddle_pir_json", None, "x", ("F32", (None, 4))),
        ("hlo_jax_constants", None, "add.1", ("F32", ())),
        ("coreml_mlprogram", None, "lin", ("F32", (2, 16))),
        ("caffe_new", "", "data", (None, (1, 3, 8, 8))),
    ],
)
def test_links_have_the_types_that_models_state(name: str, graph: str | None, value: str, told: Any) -> None:
    with open_model(folder(name)) as model:
        graphs = Graphs(model.model)
        outline = GraphOutline(graphs, graphs.number(graph), [])
        links = [link for _, level, _ in walked(outline) for link in level.links]
        found = {link.value.name: (link.value.dtype, link.value.shape) for link in links}
    assert found[value] == told


WITHOUT_TYPE = {"PRIMITIVE_TYPE_INVALID", "TUPLE", "OPAQUE_TYPE", "TOKEN", "BUFFER", "UNUSED_TYPE"}


def test_graphs_of_xla_know_every_type_of_an_element() -> None:
    message = module([(["a"], []), (["b"], ["a"])])
    shape = message.computations[0].instructions[0].shape
    shape.dimensions.extend([2, 3])
    types = {}
    for name, value in shape.DESCRIPTOR.fields_by_name["element_type"].enum_type.values_by_name.items():
        shape.element_type = value.number
        value_of = outline_of(message).level(0, None).links[0].value
        types[name] = value_of.dtype
        assert value_of.shape == (None if name in WITHOUT_TYPE - {"BUFFER"} else (2, 3)), name
    assert {name for name, dtype in types.items() if dtype is None} == WITHOUT_TYPE & set(types)
    assert types["F8E4M3FN"] == "F8_E4M3FN"
    assert types["S4"] == "I4"


def test_graphs_of_core_ml_know_every_type_of_an_element() -> None:
    message: Any = bundled().message_class("CoreML.Specification.Model")()
    block = message.mlProgram.functions["main"].block_specializations["x"]
    for makes, takes in (("a", ""), ("b", "a")):
        operation = block.operations.add(type="op")
        operation.outputs.add(name=makes)
        if takes:
            operation.inputs["x"].arguments.add(name=takes)
    output = block.operations[0].outputs[0].type.tensorType
    output.dimensions.add().constant.size = 3
    types = {}
    for name, value in output.DESCRIPTOR.fields_by_name["dataType"].enum_type.values_by_name.items():
        output.dataType = value.number
        types[name] = outline_of(message).level(0, None).links[0].value.dtype
    assert {name for name, dtype in types.items() if dtype is None} == WITHOUT_TYPE & set(types)
    assert (types["INT4"], types["FLOAT8E5M2"], types["BFLOAT16"]) == ("I4", "F8_E5M2", "BF16")


def test_an_output_of_a_tensorflow_node_has_its_own_shape() -> None:
    graph = graph_def([(["split"], []), (["x"], ["split:1"])])
    graph.node[0].attr["T"].type = 19
    for size in (3, -1):
        graph.node[0].attr["_output_shapes"].list.shape.add().dim.add(size=size)
    (link,) = outline_of(graph).level(0, None).links[:1]
    assert (link.value.name, link.value.dtype, link.value.shape) == ("split:1", "F16", (None,))


def test_inputs_and_outputs_are_those_that_the_graph_declares() -> None:
    info = helper.make_tensor_value_info
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Relu", ["y"], ["z"])]
    graph = helper.make_graph(nodes, "g", [info("x", TensorProto.FLOAT, ["n", 4])], [info("z", TensorProto.FLOAT, [1])])
    level = outline_of(helper.make_model(graph), [Weight("w", "path:graph.initializer[0]", 16)]).level(0, None)
    assert [(each.name, each.dtype, each.shape) for each in level.inputs] == [("x", "F32", (None, 4))]
    assert [(each.name, each.dtype, each.shape) for each in level.outputs] == [("z", "F32", (1,))]
    assert [(link.source, link.target) for link in level.links] == [(0, 1), (None, 0), (1, None)]
    assert [(part.elements, part.weight) for part in level.parts] == [(16, "path:graph.initializer[0]"), (0, None)]


def test_weights_count_for_the_first_node_and_are_summed_up() -> None:
    nodes: Nodes = [([f"layer/{at}/x"], ["w", f"layer/{at - 1}/x"]) for at in range(100)]
    outline = outline_of(graph_def(nodes), [Weight("w", "bundle:w", 7), Weight("layer/5/x", "bundle:x", 9)])
    (part, *_) = [part for _, _, part in walked(outline) if part.number == 0]
    assert sum(part.elements for part in outline.level(0, None).parts) == 16
    assert outline.level(0, None).parts[0].weight is not None
    assert part.bars[0] == 7


def test_a_section_has_the_nodes_on_all_ways() -> None:
    nodes = [
        helper.make_node("A", ["x", "w"], ["a"]),
        helper.make_node("B", ["a"], ["b"]),
        helper.make_node("C", ["a", "mask"], ["c"]),
        helper.make_node("D", ["b", "c"], ["d"]),
        helper.make_node("E", ["x"], ["e"]),
        helper.make_node("F", ["d", "e"], ["f"]),
    ]
    outline = outline_of(
        helper.make_model(helper.make_graph(nodes, "g", [], [])), [Weight("w", "path:graph.initializer[0]", 5)]
    )
    paths = [f"graph.node[{at}]" for at in range(6)]
    for start, end in ((paths[0], paths[3]), (paths[3], paths[0])):
        found = outline.section(Ends(start, end))
        assert [each.path for each in found.nodes] == paths[:4]
        assert (found.count, found.elements, found.spans) == (4, 5, ((0, 4),))
        assert (found.weights, found.inputs, found.outputs) == (("w",), ("x", "mask"), ("d",))
    assert outline.section(Ends(paths[1], paths[2])).count == 0
    assert outline.section(Ends(paths[0], paths[1], end_nodes=2)).count == 3


def test_a_node_leads_to_the_blocks_around_it() -> None:
    outline = outline_of(graph_def(encoder(620)))
    level = outline.level(0, "encoder.layer.7.out")
    assert level.trail[0] == 0
    assert level.block == level.trail[-1]
    assert len(level.trail) == 4
    assert "encoder.layer.7.out" in [part.name for part in level.parts]


@pytest.mark.parametrize("block", [1, 4_000_000_000])
def test_a_block_that_is_not_there_is_said(block: int) -> None:
    outline = outline_of(graph_def([(["a"], [])]))
    with pytest.raises(NotFound, match="no block"):
        outline.level(block, None)
    with pytest.raises(NotFound):
        outline.section(Ends("a", "b"))
    with pytest.raises(InvalidInput):
        outline.section(Ends("a", "a", start_nodes=0))


def hostile() -> dict[str, Nodes]:
    """Return graphs of untrusted clients."""
    ring: Nodes = [([f"n{at}"], [f"n{(at - 1) % 3000}"]) for at in range(3000)]
    return {
        "ring": ring,
        "its own": [(["a"], ["a", "a"])],
        "alike": [(["a"], ["b"])] * 3000,
        "deep": [(["/".join("a" * (at + 1))], []) for at in range(1500)],
        "slashes": [(["/" * at], []) for at in range(1000)],
        "long": [(["x/" * 2000 + str(at)], []) for at in range(200)],
        "hub": [(["hub"], []), *(([f"n{at}"], ["hub"]) for at in range(5000))],
        "crossed": [([f"n{at}"], [f"n{(at * 7919) % 3000}", f"n{(at * 104729) % 3000}"]) for at in range(3000)],
        "two names in turn": [([f"{'ab'[at % 2]}/{at}"], []) for at in range(3000)],
        "markup": [([f"<img src=x onerror=alert({at})>/a/{at}"], []) for at in range(70)],
    }


@pytest.mark.parametrize("name", list(hostile()))
def test_graphs_of_strangers_are_strips_of_small_levels(name: str) -> None:
    nodes = hostile()[name]
    assert checked(outline_of(graph_def(nodes)), len(nodes)) < 60


@pytest.mark.long
def test_a_million_nodes_are_a_strip_in_seconds() -> None:
    nodes: Nodes = [([f"{at}"], [f"{at - 1}"] if at else []) for at in range(1_000_000)]
    outline = outline_of(graph_def(nodes))
    assert named(outline.level(0, None)) == [("node", "0", 1), ("repeat", "", 999_999)]
    assert outline.weight < 100_000_000


def test_names_beyond_a_few_kib_are_cut() -> None:
    nodes: Nodes = [(["n" * 50_000], []), (["m"], ["n" * 50_000])]
    level = outline_of(graph_def(nodes)).level(0, None)
    assert max(len(part.name) for part in level.parts) <= 4096
    assert max(len(link.value.name) for link in level.links) <= 4096


# In every dialect, links equal those of the parsed messages.


def random_nodes(random: Random, *, again: bool) -> Nodes:
    """Return nodes that take values of any nodes, even of themselves; with `again`, values are made twice."""
    names = [f"v{number}" for number in range(random.randrange(1, 40))]
    made = [[name] for name in names]
    if again:
        made = [[random.choice(names)] for _ in names]
    return [(makes, random.choices([*names, "nobody's", ""], k=random.randrange(4))) for makes in made]


def due_makers(nodes: Nodes, *, ordered: bool) -> list[list[int | None]]:
    """Return the expected maker of each input, found by a search through all nodes."""
    found = []
    for number, (_, takes) in enumerate(nodes):
        before = {value: at for at, (makes, _) in enumerate(nodes[:number]) for value in makes}
        whole = {value: at for at, (makes, _) in enumerate(nodes) for value in makes}
        found.append([before.get(value, None if ordered else whole.get(value)) for value in takes])
    return found


def found_links(graphs: Graphs, count: int) -> list[list[int | None]]:
    links = [graphs.links.makers(node, 1000)[0] for node in range(count)]
    takers = {(maker, node, slot) for node, each in enumerate(links) for slot, maker in enumerate(each)}
    turned = {(node, *taker) for node in range(count) for taker in graphs.links.takers(node, 1000)[0]}
    assert turned == {each for each in takers if each[0] is not None}
    return links


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize(
    ("make", "ordered"),
    [(graph_def, False), (onnx_model, False), (program, True), (module, False), (network, False), (prototxt, True)],
)
def test_links_are_those_of_the_messages(make: Callable[[Nodes], Any], ordered: bool, seed: int) -> None:
    nodes = random_nodes(Random(seed), again=ordered)
    assert found_links(graphs_of(make(nodes)), len(nodes)) == due_makers(nodes, ordered=ordered)


def test_inputs_of_tensorflow_name_an_output_or_an_order() -> None:
    graphs = graphs_of(graph_def([(["a"], []), (["b"], ["a:1", "^a", "a:out:0", "^nobody's"])]))
    assert graphs.links.makers(1, 9) == ([0, 0, 0, None], 4)
    assert graphs.links.makers(1, 2) == ([0, 0], 4)
    assert graphs.links.takers(0, 2) == ([(1, 0), (1, 1)], 3)


def test_values_do_not_leave_their_graph() -> None:
    model = onnx_model([(["x"], []), (["y"], ["x"])])
    inner = model.graph.node[1].attribute.add(name="body").g
    inner.name = "inner"
    inner.node.add(output=["x"])
    inner.node.add(input=["x", "y"])
    graphs = graphs_of(model)
    assert [(entry.path, entry.name, entry.nodes) for entry in graphs.entries] == [
        ("graph", "outer", 2),
        ("graph.node[1].attribute[0].g", "inner", 2),
    ]
    assert [graphs.links.makers(node, 9)[0] for node in range(4)] == [[], [0], [], [2, None]]
