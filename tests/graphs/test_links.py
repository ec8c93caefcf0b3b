"""Links are those that the parsed messages have, in every dialect."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from tests.graphs.models import graph_def, graphs_of, module, network, onnx_model, program, prototxt

from protoslice.graphs import Graphs

Nodes = list[tuple[list[str], list[str]]]
"""Names of the values that each node makes, and of those it takes."""


def random_nodes(random: Random, *, again: bool) -> Nodes:
    """Nodes that take values of any others, of none, of themselves; with `again` values are made twice."""
    names = [f"v{number}" for number in range(random.randrange(1, 40))]
    made = [[name] for name in names]
    if again:
        made = [[random.choice(names)] for _ in names]
    return [(makes, random.choices([*names, "nobody's", ""], k=random.randrange(4))) for makes in made]


def due_makers(nodes: Nodes, *, ordered: bool) -> list[list[int | None]]:
    """The maker of each input, found by looking at all nodes."""
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
