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
    lines = call("graph", file, "n5", "--hops", "1", "--type", "tensorflow.GraphDef").stdout.splitlines()
    assert [line.split() for line in lines[:3]] == [
        ["hops", "node", "op", "inputs", "weights", "path"],
        ["0", "n5", "Op", "n4", "node[5]"],
        ["1", "n4", "(+1)", "Op", "node[4]"],
    ]


def test_a_node_that_is_not_there_is_said(call: Any, file: Path) -> None:
    done = call("graph", file, "nobody", "--type", "tensorflow.GraphDef", code=4)
    assert "No node 'nobody'" in done.stderr
