"""Graphs over a real socket, and by the client."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.graphs.models import Nodes, graph_def, onnx_model
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


def test_a_graph_comes_as_blocks_one_level_at_a_time(client: httpx.Client) -> None:
    nodes: Nodes = [([f"layer/{at}/{part}"], []) for at in range(100) for part in ("a", "b")]
    answer = client.put("/v1/stores?filename=graph.pb&type=tensorflow.GraphDef", content=_bytes(graph_def(nodes)))
    store = f"/v1/stores/{answer.json()['id']}/graph/blocks"
    whole = client.get(store)
    found = whole.json()
    assert (found["block"], found["trail"], found["nodes"], found["graph"]) == (0, [0], 200, "")
    assert [(part["kind"], part["items"], part["nodes"]) for part in found["parts"]] == [("repeat", 100, 200)]
    inner = client.get(store, params={"node": "layer/42/b"}).json()
    assert (inner["trail"][0], inner["block"]) == (0, inner["trail"][-1])
    assert [part["name"] for part in inner["parts"]] == ["layer/42/a", "layer/42/b"]
    assert client.get(store, params={"block": inner["block"]}).json() == inner
    assert client.get(whole.request.url, headers={"if-none-match": whole.headers["etag"]}).status_code == 304
    assert client.get(store, params={"block": 5000}).status_code == 404
    assert client.get(store, params={"node": "nobody"}).status_code == 404
    assert client.get(store, params={"graph": "library"}).status_code == 404
    assert client.get(store, params={"block": -1}).status_code == 400


def test_what_is_between_two_nodes_is_a_part_of_an_onnx_model(client: httpx.Client) -> None:
    model = onnx_model([(["a"], ["x", "w"]), (["b"], ["a"]), (["c"], ["b"])])
    model.graph.initializer.add(name="w", dims=[1], data_type=1, raw_data=bytes(4))
    for values, name in ((model.graph.input, "x"), (model.graph.output, "c"), (model.graph.value_info, "b")):
        values.add(name=name).type.tensor_type.elem_type = 1
    store = client.put("/v1/stores?filename=m.onnx", content=_bytes(model)).json()["id"]
    places = {"start": "graph.node[0]", "end": "graph.node[1]"}
    found = client.get(f"/v1/stores/{store}/graph/between", params=places).json()
    assert (found["count"], found["elements"], found["weights"]) == (2, 1, ["w"])
    assert (found["inputs"], found["outputs"]) == (["x"], ["b"])
    part = client.get(
        f"/v1/stores/{store}/onnx/model.onnx", params={name: found[name] for name in ("inputs", "outputs")}
    )
    assert part.status_code == 200
    assert [list(node.output) for node in type(model).FromString(part.content).graph.node] == [["a"], ["b"]]
    assert client.get(f"/v1/stores/{store}/graph/between", params={**places, "end": "nobody"}).status_code == 404
    assert client.get(f"/v1/stores/{store}/graph/between?start=a").status_code == 400


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
