"""Rules over HTTP: the same store by every way in."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from typing import Any

import httpx
import pytest
from tests.support.golden import CHUNKED
from tests.support.problems import assert_problem

from protoslice.recipes import MEDIA_TYPE, RecipeWriter

GRAPH = (CHUNKED / "graph_many_nodes.pb").read_bytes()
RULES = ["node: every 100", "versions: always"]
NAMES = {"filename": "graph.pb", "type": "tensorflow.GraphDef"}


def raw(client: httpx.Client) -> Any:
    return client.post("/v1/stores", params={**NAMES, "rule": RULES}, content=GRAPH).json()


def recipe(client: httpx.Client) -> Any:
    writer = RecipeWriter()
    begin = writer.file("graph.pb") + writer.literal(len(GRAPH))
    body = begin + GRAPH + writer.end(len(GRAPH), hashlib.sha256(GRAPH).hexdigest()) + writer.done()
    params = {"type": NAMES["type"], "rule": RULES}
    answer = client.post("/v1/stores", params=params, content=body, headers={"content-type": MEDIA_TYPE})
    assert answer.is_success, answer.text
    return answer.json()


def tus(client: httpx.Client) -> Any:
    words = {**NAMES, "rule": "\n".join(RULES)}
    metadata = ",".join(f"{name} {b64encode(word.encode()).decode()}" for name, word in words.items())
    return _uploaded(client, "/v1/uploads", metadata)


def tus_by_query(client: httpx.Client) -> Any:
    return _uploaded(client, str(httpx.URL("/v1/uploads", params={**NAMES, "rule": RULES})), "")


def assembled(client: httpx.Client) -> Any:
    at = _begun(client, "/v1/uploads", "", b"", len(GRAPH), **{"upload-concat": "partial"}).headers["location"]
    client.patch(at, content=GRAPH, headers=_HEADERS | {"upload-offset": "0"}).raise_for_status()
    body = {"uploads": {"graph.pb": at}, "type": NAMES["type"], "rules": RULES}
    return client.post("/v1/stores/assemble", json=body).json()


_HEADERS = {"tus-resumable": "1.0.0", "content-type": "application/offset+octet-stream"}


def _begun(client: httpx.Client, at: str, metadata: str, data: bytes, length: int, **more: str) -> httpx.Response:
    headers = _HEADERS | {"upload-length": str(length)} | more | ({"upload-metadata": metadata} if metadata else {})
    return client.post(at, content=data, headers=headers).raise_for_status()


def _uploaded(client: httpx.Client, at: str, metadata: str) -> Any:
    answer = _begun(client, at, metadata, GRAPH, len(GRAPH))
    return client.get(f"/v1/stores/{answer.headers['protoslice-store']}").json()


@pytest.mark.parametrize("make", [raw, recipe, tus, tus_by_query, assembled], ids=lambda make: make.__name__)
def test_every_way_in_takes_rules(client: httpx.Client, make: Any) -> None:
    made = make(client)
    assert made["rules"] == RULES, made
    assert made["id"] == raw(client)["id"]
    paths = [row["path"] for row in client.get(f"/v1/stores/{made['id']}/chunks").json()["items"]]
    assert (paths[0], paths[-1]) == ("node[0:100]", "versions")


def test_a_rule_that_cannot_apply_is_told_with_its_path(client: httpx.Client) -> None:
    for rule, words in {"nodes: every 5": "no field nodes", "node: every 0": "character 6"}.items():
        answer = client.post("/v1/stores", params={**NAMES, "rule": rule}, content=GRAPH)
        said = assert_problem(answer.status_code, answer.headers, answer.content, expected=400, slug="invalid-input")
        assert words in said["detail"]
        assert rule.partition(":")[0] in said["path"]


def test_an_empty_rule_is_none(client: httpx.Client) -> None:
    plain = client.post("/v1/stores", params=NAMES, content=GRAPH).json()
    assert plain["rules"] == []
    assert client.post("/v1/stores", params={**NAMES, "rule": ""}, content=GRAPH).json()["id"] == plain["id"]
