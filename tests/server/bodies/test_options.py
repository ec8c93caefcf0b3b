"""Options of a new store: tags, split rules, reports and strictness, in every way to create a store.

Uploads over a base, which is an earlier version: no content is stored again.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.bodies.ways import WAYS, Site, Way, assembled, raw, registered, store_of, tar, tus, tus_by_query
from tests.support.bundles import Variable, bundle
from tests.support.counted import counted_bucket
from tests.support.golden import CHUNKED
from tests.support.serve import ask, assert_problem, open_app
from tests.support.stores import OBJECTS, objects_in, onnx

from protoslice import schema

EACH = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
GRAPH = {"graph.pb": (CHUNKED / "graph_many_nodes.pb").read_bytes()}
GRAPH_DEF = "tensorflow.GraphDef"
RULES = ["node: every 100", "versions: always"]
MOST_TAGS = 64
WEIGHTS = bytes(range(200)) * 2


def refused(answer: httpx.Response, status: int, slug: str) -> Any:
    return assert_problem(answer.status_code, answer.headers, answer.content, expected=status, slug=slug)


@pytest.mark.contract
@EACH
def test_rules_cut_the_same_chunks(site: Site, way: Way) -> None:
    made = store_of(site, way(site, GRAPH, type=GRAPH_DEF, rules=RULES))
    assert made["rules"] == RULES, made
    same = raw(site, GRAPH, type=GRAPH_DEF, rules=RULES).json()["id"] == made["id"]
    assert same is (way is not registered), "the id of a registered store covers the place of its files"
    paths = [row["path"] for row in site.client.get(f"/v1/stores/{made['id']}/chunks").json()["items"]]
    assert (paths[0], paths[-1]) == ("node[0:100]", "versions")


@pytest.mark.contract
@pytest.mark.parametrize(("rule", "words"), [("nodes: every 5", "no field nodes"), ("node: every 0", "character 6")])
def test_a_rule_that_cannot_apply_is_reported_with_its_path(site: Site, rule: str, words: str) -> None:
    said = refused(raw(site, GRAPH, type=GRAPH_DEF, rules=[rule]), 400, "invalid-input")
    assert words in said["detail"]
    assert rule.partition(":")[0] in said["path"]


@pytest.mark.contract
def test_an_empty_rule_is_none(site: Site) -> None:
    plain = raw(site, GRAPH, type=GRAPH_DEF).json()
    assert plain["rules"] == []
    assert raw(site, GRAPH, type=GRAPH_DEF, rules=[""]).json()["id"] == plain["id"]


@pytest.mark.contract
@EACH
def test_a_request_sets_only_so_many_tags(serving: Any, tmp_path: Any, way: Way) -> None:
    model = {"model.onnx": onnx(100)}
    with serving(register_allow=(tmp_path.as_uri(),)) as live, httpx.Client(base_url=live.url, timeout=30) as client:
        site = Site(client, tmp_path)
        answer = way(site, model, tags=[f"t:{n}" for n in range(MOST_TAGS + 1)])
        refused(answer, 400, "invalid-input")
        assert str(MOST_TAGS) in answer.text
        assert client.get("/v1/stores").json()["items"] == client.get("/v1/tags").json()["items"] == []
        tags = [f"t:{n}" for n in range(MOST_TAGS)]
        assert store_of(site, way(site, model, tags=tags))["tags"] == sorted(tags)


def model_of(*names: str) -> dict[str, bytes]:
    """Return an ONNX model whose tensors with these names are in `weights.bin`."""
    model: Any = schema.bundled().message_class("onnx.ModelProto")()
    model.graph.name = "g"
    for name in names:
        tensor = model.graph.initializer.add(name=name, data_type=1, dims=[100], data_location=1)
        tensor.external_data.add(key="location", value="weights.bin")
        tensor.external_data.add(key="length", value="400")
    return {"m.onnx": bytes(model.SerializeToString())}


def damaged() -> dict[str, bytes]:
    """Return a bundle of two tensors; one of them fails its checksum."""
    files = bundle("v", [Variable(name, 1, (100,), WEIGHTS) for name in ("one", "two")])
    shard = next(name for name in files if ".data-" in name)
    data = bytearray(files[shard])
    data[600] ^= 1
    return files | {shard: bytes(data)}


def stores(site: Site) -> set[str]:
    return {store["id"] for store in site.client.get("/v1/stores?limit=1000").json()["items"]}


@pytest.mark.contract
def test_a_report_comes_on_demand(site: Site) -> None:
    plain = raw(site, model_of("a", "b", "a"))
    reported = raw(site, model_of("a", "b", "a"), report=True)
    assert reported.json()["report"] == {
        "type": "onnx.ModelProto",
        "tensors": 3,
        "missing": ["weights.bin"],
        "duplicates": ["a"],
        "damaged": [],
        "dtypes": [{"dtype": "F32", "elements": 300, "size": 1200, "tensors": 3}],
        "totals": [{"role": "weight", "tensors": 3, "elements": 300, "size": 1200}],
        "complete": True,
    }
    assert "report" not in plain.json()
    assert {name: value for name, value in reported.json().items() if name != "report"} == plain.json()
    assert (plain.status_code, reported.status_code) == (201, 200)
    assert reported.headers["etag"] == plain.headers["etag"], "it is of the store, which is the same"
    assert reported.headers["repr-digest"] != plain.headers["repr-digest"]


@pytest.mark.contract
@EACH
def test_a_strict_store_without_its_files_is_refused(site: Site, way: Way) -> None:
    before, lonely = stores(site), model_of(f"lonely by {way.__name__}")
    assert "'weights.bin'" in refused(way(site, lonely, strict=True), 422, "unsound-model")["detail"]
    assert stores(site) == before
    assert store_of(site, way(site, lonely, strict=False))["id"] not in before


@pytest.mark.contract
@pytest.mark.parametrize("way", [tar, assembled], ids=lambda way: way.__name__)
def test_a_strict_store_with_its_files_is_created(site: Site, way: Way) -> None:
    whole = model_of(f"whole by {way.__name__}") | {"weights.bin": WEIGHTS}
    made = way(site, whole, strict=True, report=True)
    assert (made.status_code, made.json()["report"]["missing"]) == (201, [])
    del whole["weights.bin"]
    assert way(site, whole, report=True).json()["report"]["missing"] == ["weights.bin"]


@pytest.mark.contract
def test_a_strict_store_that_fails_its_checksums_is_refused(site: Site) -> None:
    problem = refused(tar(site, damaged(), strict=True, tags=["strict:1"]), 422, "unsound-model")
    assert problem["detail"].startswith("two: ")
    assert site.client.get("/v1/tags/strict:1").status_code == 404
    lenient = tar(site, damaged(), report=True)
    assert (lenient.status_code, lenient.json()["report"]["damaged"]) == (201, [])
    sound = bundle("v", [Variable(name, 1, (100,), WEIGHTS) for name in ("one", "two")])
    assert tar(site, sound, strict=True).status_code == 201


@pytest.mark.contract
def test_the_records_of_a_chunked_file_are_compared(site: Site, model: bytes) -> None:
    made = raw(site, {"m.onnx": model}).json()["id"]
    chunked = bytearray(site.client.get(f"/v1/stores/{made}/cpb").content)
    chunked[chunked.index(b"weights!" * 100) + 64] ^= 1
    files = {"m.cpb": bytes(chunked)}
    assert "m.cpb: Corrupted" in refused(raw(site, files, strict=True), 422, "unsound-model")["detail"]
    assert raw(site, files).status_code == 201


@pytest.mark.contract
@pytest.mark.parametrize("files", [{"notes.txt": b"root:x:0:0\n"}, {"a.bin": b"\xff" * 100, "b.txt": b"words"}])
def test_files_without_a_model_are_sound(site: Site, files: dict[str, bytes]) -> None:
    made = tar(site, files, strict=True, report=True)
    assert made.status_code == 201
    report = made.json()["report"]
    assert (report["tensors"], report["missing"], report["damaged"]) == (None, [], [])


@pytest.mark.contract
@pytest.mark.parametrize(("said", "status"), [("true", 422), ("1", 422), ("false", 201), ("maybe", 400)])
@pytest.mark.parametrize("way", [raw, tus, tus_by_query], ids=lambda way: way.__name__)
def test_strict_is_true_or_false(site: Site, way: Way, said: str, status: int) -> None:
    answer = way(site, model_of(f"{way.__name__} {said}"), strict=said)
    assert answer.status_code == status, answer.text
    if status != 201:
        refused(answer, status, "unsound-model" if status == 422 else "invalid-input")


MODEL = onnx(6_000_000)
CHANGED = MODEL[:-1] + bytes([MODEL[-1] ^ 1])


@pytest.mark.parametrize(
    ("query", "shares"),
    [
        ("tag=model:1", True),
        ("tag=model:2", True),
        ("base=model:1", True),
        ("tag=other:1&base=model:1", True),
        ("tag=other:1", False),
        ("tag=model", False),
        ("", False),
    ],
)
def test_a_version_over_another(query: str, shares: bool, tmp_path: Path) -> None:
    async def work() -> None:
        with counted_bucket() as bucket:
            async with open_app(
                storage=bucket.uri, database=f"sqlite:///{tmp_path}/catalog.sqlite", auth="open"
            ) as app:
                assert (await ask(app, "PUT", "/v1/stores?filename=m.onnx&tag=model:1", MODEL)).status == 201
                before = await objects_in(bucket.objects)
                made = await ask(app, "PUT", f"/v1/stores?filename=m.onnx&{query}", CHANGED)
                assert made.status == 201
                new = [item.size async for item in bucket.objects.iterate(OBJECTS) if item.key.text not in before]
                assert (sum(new) < 1 << 20) is shares
                store = json.loads(made.body)["id"]
                assert (await ask(app, "GET", f"/v1/stores/{store}/files/m.onnx")).body == CHANGED

    asyncio.run(work())


@pytest.mark.contract
def test_a_base_that_is_not_there(client: httpx.Client) -> None:
    answer = client.put("/v1/stores?filename=m.onnx&base=nobody", content=MODEL)
    assert_problem(answer.status_code, answer.headers, answer.content, expected=404, slug="not-found")
