"""Graphs over a real socket, and by the client."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.graphs.models import graph_def, onnx_model
from tests.support.stores import onnx

from protoslice.client import Client


@pytest.fixture
def stored(client: httpx.Client) -> str:
    """Id of a store of ten nodes in a row."""
    nodes = [([f"n{at}"], [f"n{at - 1}"] if at else []) for at in range(10)]
    answer = client.put("/v1/stores?filename=graph.pb&type=tensorflow.GraphDef", content=_bytes(graph_def(nodes)))
    return str(answer.json()["id"])


def _bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString())


def test_the_nodes_around_one_come_with_their_links(client: httpx.Client, stored: str) -> None:
    answer = client.get(f"/v1/stores/{stored}/graph", params={"around": "n5", "hops": 1})
    found = answer.json()
    assert [(node["name"], node["hops"], node["more"]) for node in found["nodes"]] == [
        ("n5", 0, 0),
        ("n4", 1, 1),
        ("n6", 1, 1),
    ]
    assert [(edge["source"], edge["target"]) for edge in found["edges"]] == [
        ("node[4]", "node[5]"),
        ("node[5]", "node[6]"),
    ]
    assert found["graphs"] == [{"path": "", "name": "", "nodes": 10}]
    again = client.get(answer.request.url, headers={"if-none-match": answer.headers["etag"]})
    assert again.status_code == 304


def test_the_client_gives_what_the_service_says(client: httpx.Client, stored: str) -> None:
    with Client(str(client.base_url)) as own:
        found = own.graph(stored, "n5", hops=1)
        assert [node.path for node in found.nodes] == ["node[5]", "node[4]", "node[6]"]
        assert own.graph(stored, search="n9").nodes[0].name == "n9"


@pytest.mark.parametrize(
    ("query", "status", "told"),
    [
        ("around=nobody", 404, "nobody"),
        ("graph=library", 404, "library"),
        ("hops=9", 400, "hops"),
        ("limit=0", 400, "limit"),
        ("limit=100000000000000000000", 400, "limit"),
    ],
)
def test_what_is_not_there_is_a_problem(client: httpx.Client, stored: str, query: str, status: int, told: str) -> None:
    answer = client.get(f"/v1/stores/{stored}/graph?{query}")
    assert answer.status_code == status
    assert told in answer.text


def test_a_model_without_a_graph_says_so(client: httpx.Client) -> None:
    answer = client.put("/v1/stores?filename=notes.txt", content=b"no model at all\n")
    assert client.get(f"/v1/stores/{answer.json()['id']}/graph").status_code == 422
    bare = client.put("/v1/stores?filename=m.onnx", content=onnx(5)).json()["id"]
    assert client.get(f"/v1/stores/{bare}/graph").status_code == 404


def test_weights_are_names_that_tensors_have(client: httpx.Client) -> None:
    model = onnx_model([(["y"], ["x", "w"])])
    model.graph.initializer.add(name="w", dims=[1], data_type=1, raw_data=bytes(4))
    store = client.put("/v1/stores?filename=m.onnx", content=_bytes(model)).json()["id"]
    (node,) = client.get(f"/v1/stores/{store}/graph").json()["nodes"]
    assert node["weights"] == ["w"]
    assert client.get(f"/v1/stores/{store}/tensors/w").content == bytes(4)
