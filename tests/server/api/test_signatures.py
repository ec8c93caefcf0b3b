"""Signatures of a SavedModel over a real socket: page by page, and by the tags of a meta graph."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from onnx import helper
from tests.support.serve import assert_problem

from protoslice import schema
from protoslice.client import Client


@pytest.fixture(scope="module")
def stored(client: httpx.Client) -> str:
    """A store of a SavedModel with two meta graphs, `serve` and `serve` with `gpu`."""
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


def test_signatures_are_listed(client: httpx.Client, stored: str) -> None:
    found = client.get(f"/v1/stores/{stored}/signatures").json()["items"]
    assert [(each["name"], each["tags"]) for each in found] == [
        ("classify", ["serve"]), ("predict", ["serve"]), ("classify", ["serve", "gpu"]), ("predict", ["serve", "gpu"]),
    ]  # fmt: skip
    assert found[0]["inputs"] == [{"name": "x", "tensor": "x:0", "dtype": "F32", "shape": [None]}]
    assert (found[0]["outputs"], found[0]["method"]) == ([], "tensorflow/serving/classify")


def test_tags_choose_a_meta_graph(client: httpx.Client, stored: str) -> None:
    found = client.get(f"/v1/stores/{stored}/signatures", params={"tags": "gpu,serve"}).json()["items"]
    assert {tuple(each["tags"]) for each in found} == {("serve", "gpu")}
    answer = client.get(f"/v1/stores/{stored}/signatures", params={"tags": "gpu"})
    assert_problem(answer.status_code, answer.headers, answer.content, expected=404)


def test_the_client_goes_through_the_pages(client: httpx.Client, stored: str) -> None:
    page = client.get(f"/v1/stores/{stored}/signatures?limit=3").json()
    assert len(page["items"]) == 3
    (last,) = client.get(f"/v1/stores/{stored}/signatures", params={"cursor": page["next"]}).json()["items"]
    with Client(str(client.base_url)) as own:
        found = list(own.signatures(stored))
        assert [each.name for each in found] == [each["name"] for each in (*page["items"], last)]
        assert found[0].inputs[0].shape == (None,)
        assert [each.tags for each in own.signatures(stored, tags=["serve"])] == [("serve",)] * 2


def test_an_onnx_model_has_one_for_its_graph(client: httpx.Client) -> None:
    inputs = [helper.make_tensor_value_info("x", 1, ["batch", 3])]
    outputs = [helper.make_tensor_value_info("y", 8, None), helper.make_tensor_sequence_value_info("z", 1, None)]
    data = helper.make_model(helper.make_graph([], "main", inputs, outputs)).SerializeToString()
    store = client.put("/v1/stores?filename=m.onnx", content=data).json()["id"]
    assert client.get(f"/v1/stores/{store}/signatures").json()["items"] == [
        {
            "name": "main",
            "method": "",
            "tags": [],
            "inputs": [{"name": "x", "tensor": "x", "dtype": "F32", "shape": [None, 3]}],
            "outputs": [
                {"name": "y", "tensor": "y", "dtype": "STRING", "shape": None},
                {"name": "z", "tensor": "z", "dtype": None, "shape": None},
            ],
        }
    ]


def test_another_model_has_none(client: httpx.Client) -> None:
    store = client.put("/v1/stores?filename=m.pb&type=tensorflow.GraphDef", content=b"\x0a\x03\x0a\x01n").json()["id"]
    answer = client.get(f"/v1/stores/{store}/signatures")
    assert_problem(answer.status_code, answer.headers, answer.content, expected=422, slug="unsupported")
