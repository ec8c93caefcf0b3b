"""Neighbourhoods: the nearest nodes come first, no more nodes than requested, and all omitted nodes are counted."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from onnx import helper
from tests.graphs.models import graph_def, graphs_of, onnx_model
from tests.support.golden import folder

from protoslice import open_model
from protoslice.errors import InvalidInput, NotFound, Unsupported
from protoslice.facts import GraphNode, Neighbourhood
from protoslice.graphs import GraphQuery, Graphs, graphs, subgraph


def looked(message: Any, **query: Any) -> Neighbourhood:
    return subgraph(graphs_of(message), GraphQuery(**query), lambda name: False)


def named(found: Neighbourhood) -> dict[str, int]:
    return {node.name: node.hops for node in found.nodes}


def chain(length: int) -> Any:
    """Return a row of nodes; each takes the value of the node before."""
    return graph_def([([f"n{at}"], [f"n{at - 1}"] if at else []) for at in range(length)])


def test_the_nearest_nodes_come_first() -> None:
    found = looked(chain(30), around="n10", hops=2)
    assert named(found) == {"n10": 0, "n9": 1, "n11": 1, "n8": 2, "n12": 2}
    assert {(edge.source, edge.target, edge.value) for edge in found.edges} == {
        (f"node[{at}]", f"node[{at + 1}]", f"n{at}") for at in (8, 9, 10, 11)
    }
    assert found.around == "node[10]"
    assert not found.more
    assert {node.name: node.more for node in found.nodes} == {"n10": 0, "n9": 0, "n11": 0, "n8": 1, "n12": 1}


def test_a_node_with_a_hundred_thousand_neighbours_shows_as_many_as_asked() -> None:
    crowd = graph_def([(["hub"], [])] + [([f"n{at}"], ["hub"]) for at in range(100_000)])
    found = looked(crowd, around="hub", limit=20)
    assert len(found.nodes) == 20
    assert found.more
    assert found.nodes[0].more == 100_000 - 19


def test_an_answer_has_four_mib_of_edges() -> None:
    names = [f"v{at}" for at in range(400)]
    found = looked(graph_def([([name], names) for name in names]), search="v", limit=400)
    assert len(found.nodes) == 400
    assert (3 << 20) < sum(64 + len(edge.source + edge.target + edge.value) for edge in found.edges) <= 4 << 20
    assert found.more


def test_an_answer_looks_into_four_mib_of_nodes() -> None:
    full = [f"nobody's {at}".ljust(1000, "x") for at in range(900)]
    found = looked(graph_def([([f"n{at}"], full) for at in range(9)]), search="n")
    assert [node.name for node in found.nodes] == ["n0", "n1", "n2", "n3"]
    assert found.more
    assert not looked(graph_def([([f"n{at}"], full) for at in range(4)]), search="n").more


def test_a_node_beyond_a_mib_has_its_name() -> None:
    found = looked(graph_def([(["n0"], []), (["hub"], ["n0"] * 600_000)]), around="n0")
    assert [(node.name, node.op, node.more) for node in found.nodes] == [("n0", "Op", 599_000), ("hub", "", 599_000)]


def test_attributes_beyond_those_told_are_not_written() -> None:
    node = onnx_model([(["y"], [])]).graph.node[0]
    for at in range(100):
        node.attribute.add(name=f"a{at}", i=at)
    with patch.object(graphs, "_text", return_value="text") as written:
        assert len(graphs.DIALECTS[1].attributes(node)) == 64
    assert written.call_count == 64


def test_a_graph_that_is_all_cycles_begins_with_its_first_nodes() -> None:
    ring = graph_def([([f"n{at}"], [f"n{(at - 1) % 30}"]) for at in range(30)])
    assert [node.name for node in looked(ring, limit=3).nodes] == ["n0", "n1", "n2"]


def test_graphs_weigh_what_their_nodes_and_links_hold() -> None:
    names = [f"n{at}".ljust(4000, "x") for at in range(100)]
    assert 100 * 4000 * 11 < graphs_of(graph_def([([name], names[:10]) for name in names])).weight < 5_000_000
    assert graphs_of(graph_def([(["n"], [""] * 100_000)])).weight > 100_000 * 6


def test_without_a_node_the_ends_of_the_graph_are_shown() -> None:
    found = looked(chain(30))
    assert [node.name for node in found.nodes] == ["n29", "n0"]
    assert found.around is None


def test_a_search_finds_all_words_in_any_case() -> None:
    found = looked(graph_def([(["Encoder/Layer_3/bias"], []), (["encoder/layer_4"], [])]), search="bias LAYER")
    assert [node.name for node in found.nodes] == ["Encoder/Layer_3/bias"]
    assert looked(chain(30), search="n", limit=3).more


def test_a_value_is_found_when_no_node_is_called_so() -> None:
    model = onnx_model([(["Mask", "boxes"], ["image"]), (["output0"], ["boxes"])])
    model.graph.node[0].attribute.add(name="body").g.node.add(output=["boxes"])
    for search, path in (("BOX es", "graph.node[0]"), ("output0", "graph.node[1]"), ("image", "graph.node[0]")):
        assert [node.path for node in looked(model, search=search).nodes] == [path]
    assert looked(model, search="nobody").nodes == looked(model, search=" q ").nodes == ()
    found = looked(model, around="output0", hops=0)
    assert [(node.path, node.outputs) for node in found.nodes] == [("graph.node[1]", ("output0",))]


def test_a_node_is_found_by_its_path_in_whatever_graph() -> None:
    model = onnx_model([(["x"], []), (["y"], ["x"])])
    body = model.graph.node[1].attribute.add(name="body").g
    body.node.add(output=["x"])
    body.node.add(input=["x"], name="last")
    path = "graph.node[1].attribute[0].g.node[0]"
    assert [node.path for node in looked(model, around=path).nodes] == [path, path.replace("node[0]", "node[1]")]
    assert looked(model, graph="graph.node[1].attribute[0].g", around="last", hops=0).nodes[0].name == "last"


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "\u202eabc", "x" * 2000, "a]", 'a"b'])
def test_names_are_text(name: str) -> None:
    assert named(looked(graph_def([([name], [name])]), around=name)) == {name: 0}


def test_a_node_that_takes_its_own_value_is_shown_once() -> None:
    found = looked(graph_def([(["a"], ["a", "a"])]), around="a")
    assert [(edge.source, edge.target, edge.input) for edge in found.edges] == [
        ("node[0]",) * 2 + (at,) for at in (0, 1)
    ]


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ({"around": "nobody"}, NotFound),
        ({"graph": "library"}, NotFound),
        ({"hops": 9}, InvalidInput),
        ({"hops": -1}, InvalidInput),
        ({"limit": 0}, InvalidInput),
        ({"limit": 501}, InvalidInput),
    ],
)
def test_what_is_not_there_is_said(query: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        looked(chain(3), **query)


def test_models_without_graphs_say_so() -> None:
    with open_model(folder("safetensors_types")) as model, pytest.raises(Unsupported, match="has no graph"):
        Graphs(model.model)
    with pytest.raises(NotFound, match="no graph nodes"):
        looked(graph_def([]))


def node_of(name: str, around: str) -> GraphNode:
    with open_model(folder(name)) as model:
        return model.graph(GraphQuery(around=around, hops=0)).nodes[0]


@pytest.mark.parametrize(
    ("name", "around", "op", "weights"),
    [
        ("tf_sm_keras", "sequential/d1/bias", "VarHandleOp", ("sequential/d1/bias",)),
        ("tf_sm_functions", "Const", "Const", ("Const",)),
        ("onnx_subgraphs", "graph.node[1]", "Loop", ("trip", "cond")),
        ("paddle_combined", "blocks[0].ops[4]", "mul", ("fc_1.w_0",)),
        ("paddle_pir_json", "fc_1.w_0", "matmul", ("fc_1.w_0",)),
        ("hlo_jax_constants", "constant.14", "constant", ("main.1/constant.14",)),
        ("caffe_new", "conv1", "Convolution", ("conv1.blobs[0]", "conv1.blobs[1]")),
        ("caffe_v1_layers", "ip", "INNER_PRODUCT", ("ip.blobs[0]", "ip.blobs[1]")),
        ("coreml_nn_float32", "bn", "batchnorm", ("bn.gamma", "bn.beta", "bn.mean", "bn.variance")),
        ("coreml_mlprogram", "lin_weight_0", "const", ("lin_weight_0",)),
    ],
)
def test_weights_of_models_of_others(name: str, around: str, op: str, weights: tuple[str, ...]) -> None:
    node = node_of(name, around)
    assert (node.op, node.weights) == (op, weights)


def test_attributes_are_told_shortly() -> None:
    node = dict(node_of("tf_sm_keras", "sequential/d1/bias").attributes)
    assert node["dtype"] == "DT_FLOAT"
    model = onnx_model([(["y"], [])])
    model.graph.node[0].attribute.add(name="pads", ints=range(1000), type=7)
    ((name, text),) = looked(model).nodes[0].attributes
    assert (name, text[:16], len(text)) == ("pads", "ints: 0 ints: 1 ", 200)


@pytest.mark.parametrize(
    ("name", "tensor", "path"),
    [
        ("onnx_subgraphs", "trip", "graph.node[1]"),
        ("paddle_combined", "fc_1.w_0", "blocks[0].ops[4]"),
        ("hlo_jax_constants", "main.1/constant.14", "computations[0].instructions[0]"),
        ("tf_sm_keras", "sequential/d1/bias", "meta_graphs[0].graph_def.node[6]"),
    ],
)
def test_a_tensor_leads_to_the_node_that_takes_or_holds_it(name: str, tensor: str, path: str) -> None:
    assert node_of(name, tensor).path == path


@pytest.mark.parametrize(("inner", "first"), [(10, "graph"), (11, "graph.node[0].attribute[0].g")])
def test_a_far_larger_inner_graph_is_shown_first(inner: int, first: str) -> None:
    branch = helper.make_graph([helper.make_node("Relu", [f"x{n}"], [f"x{n + 1}"]) for n in range(inner)], "b", [], [])
    outer = helper.make_graph([helper.make_node("Loop", [], ["y"], body=branch)], "outer", [], [])
    assert looked(helper.make_model(outer)).graph == first
