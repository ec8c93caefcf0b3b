"""Graphs and signatures of models over a real socket, and by the client."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.graphs.models import Nodes, graph_def, onnx_model
from tests.support.serve import assert_problem
from tests.support.stores import onnx

from protoslice import schema
from protoslice.client import Client


@pytest.fixture
def stored(client: httpx.Client) -> str:
    """Return the id of a store of ten nodes in a row."""
    nodes = [([f"n{at}"], [f"n{at - 1}"] if at else []) for at in range(10)]
    answer = client.put("/v1/stores?filename=graph.pb&type=tensorflow.GraphDef", content=_bytes(graph_def(nodes)))
    return str(answer.json()["id"])


def _bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString())


def test_the_nodes_around_one_come_with_their_links(client: httpx.Client, stored: str) -> None:
    answer = client.get(f"/v1/stores/{stored}/graph", params={"around": "n5", "hops": 1})
    found = answer.json()
    nodes = [(node["name"], node["hops"], node["more"]) for node in found["nodes"]]
    assert nodes == [("n5", 0, 0), ("n4", 1, 1), ("n6", 1, 1)]
    edges = [(edge["source"], edge["target"]) for edge in found["edges"]]
    assert edges == [("node[4]", "node[5]"), ("node[5]", "node[6]")]
    assert found["graphs"] == [{"path": "", "name": "", "nodes": 10}]
    again = client.get(answer.request.url, headers={"if-none-match": answer.headers["etag"]})
    assert again.status_code == 304
    with Client(str(client.base_url)) as own:
        assert [node.path for node in own.graph(stored, "n5", hops=1).nodes] == ["node[5]", "node[4]", "node[6]"]
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
    for query, status in (("block=5000", 404), ("node=nobody", 404), ("graph=library", 404), ("block=-1", 400)):
        assert client.get(f"{store}?{query}").status_code == status


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
    [("around=nobody", 404, "nobody"), ("graph=library", 404, "library"), ("hops=9", 400, "hops")],
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


@pytest.fixture(scope="module")
def saved_model(client: httpx.Client) -> str:
    """Make a store of a SavedModel with two meta graphs, `serve` and `serve` with `gpu`."""
    model: Any = schema.bundled().message_class("tensorflow.SavedModel")()
    for tags in (["serve"], ["serve", "gpu"]):
        graph = model.meta_graphs.add()
        graph.meta_info_def.tags.extend(tags)
        for name in ("classify", "predict"):
            signature = graph.signature_def[name]
            signature.method_name = f"tensorflow/serving/{name}"
            signature.inputs["x"].name, signature.inputs["x"].dtype = "x:0", 1
            signature.inputs["x"].tensor_shape.dim.add(size=-1)
    answer = client.put("/v1/stores?filename=saved_model.pb", content=model.SerializeToString())
    id: str = answer.json()["id"]
    return id


def test_signatures_are_listed(client: httpx.Client, saved_model: str) -> None:
    found = client.get(f"/v1/stores/{saved_model}/signatures").json()["items"]
    assert [(each["name"], each["tags"]) for each in found] == [
        ("classify", ["serve"]), ("predict", ["serve"]), ("classify", ["serve", "gpu"]), ("predict", ["serve", "gpu"]),
    ]  # fmt: skip
    assert found[0]["inputs"] == [{"name": "x", "tensor": "x:0", "dtype": "F32", "shape": [None]}]
    assert (found[0]["outputs"], found[0]["method"]) == ([], "tensorflow/serving/classify")
    found = client.get(f"/v1/stores/{saved_model}/signatures?tags=gpu,serve").json()["items"]
    assert {tuple(each["tags"]) for each in found} == {("serve", "gpu")}
    answer = client.get(f"/v1/stores/{saved_model}/signatures?tags=gpu")
    assert_problem(answer.status_code, answer.headers, answer.content, expected=404)


def test_the_client_goes_through_the_pages(client: httpx.Client, saved_model: str) -> None:
    page = client.get(f"/v1/stores/{saved_model}/signatures?limit=3").json()
    assert len(page["items"]) == 3
    (last,) = client.get(f"/v1/stores/{saved_model}/signatures", params={"cursor": page["next"]}).json()["items"]
    with Client(str(client.base_url)) as own:
        found = list(own.signatures(saved_model))
        assert [each.name for each in found] == [each["name"] for each in (*page["items"], last)]
        assert found[0].inputs[0].shape == (None,)
        assert [each.tags for each in own.signatures(saved_model, tags=["serve"])] == [("serve",)] * 2


def test_another_model_has_none(client: httpx.Client) -> None:
    store = client.put("/v1/stores?filename=m.pb&type=tensorflow.GraphDef", content=b"\x0a\x03\x0a\x01n").json()["id"]
    answer = client.get(f"/v1/stores/{store}/signatures")
    assert_problem(answer.status_code, answer.headers, answer.content, expected=422, slug="unsupported")
