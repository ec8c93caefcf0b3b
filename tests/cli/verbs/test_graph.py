"""The verb `graph`: the same of a file and of a store, and in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.graphs.models import graph_def


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A graph of ten nodes in a row."""
    nodes = [([f"n{at}"], [f"n{at - 1}"] if at else []) for at in range(10)]
    path = tmp_path / "graph.pb"
    path.write_bytes(graph_def(nodes).SerializeToString())
    return path


def test_a_file_and_a_store_show_the_same(call: Any, file: Path) -> None:
    asked = ["n5", "--hops", "1", "--json"]
    local = json.loads(call("graph", file, *asked, "--type", "tensorflow.GraphDef").stdout)
    call("push", file, "--tag", "graph:1", "--type", "tensorflow.GraphDef")
    assert json.loads(call("graph", "@graph:1", *asked).stdout) == local
    assert [node["path"] for node in local["nodes"]] == ["node[5]", "node[4]", "node[6]"]


def test_nodes_stand_in_a_table(call: Any, file: Path) -> None:
    shown = call("graph", file, "n5", "--hops", "1", "--type", "tensorflow.GraphDef").stdout
    assert shown.splitlines() == [
        "hops  node  op  inputs  weights  not shown  path",
        "   1  n4    Op                   1 link     node[4]",
        "   0  n5    Op  n4                          node[5]",
        "   1  n6    Op  n5               1 link     node[6]",
    ]


@pytest.mark.parametrize("place", ["file", "store"])
def test_a_graph_begins_with_its_first_nodes(call: Any, file: Path, place: str) -> None:
    name = file
    if place == "store":
        name = call("push", file, "--type", "tensorflow.GraphDef").stdout.strip()
    more = [] if place == "store" else ["--type", "tensorflow.GraphDef"]
    rows = [line.split() for line in call("graph", name, "--limit", "3", *more).stdout.splitlines()]
    assert [row[:1] for row in rows[:4]] == [["node"], ["n0"], ["n1"], ["n2"]]
    whole = [line.split() for line in call("graph", name, *more).stdout.splitlines()]
    assert [row[-1] for row in whole] == ["path", *(f"node[{at}]" for at in range(10))]


def test_a_graph_with_a_cycle_is_in_the_order_of_its_file(call: Any, tmp_path: Path) -> None:
    path = tmp_path / "cycle.pb"
    path.write_bytes(graph_def([(["a"], ["b"]), (["b"], ["a"])]).SerializeToString())
    lines = call("graph", path, "--type", "tensorflow.GraphDef").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["node", "a", "b"]


def test_a_node_that_is_not_there_is_said(call: Any, file: Path) -> None:
    done = call("graph", file, "nobody", "--type", "tensorflow.GraphDef", code=4)
    assert "No node 'nobody'" in done.stderr
