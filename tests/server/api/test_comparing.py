"""Two stores are compared over a real socket: counts, pages, distances of tensors, refusals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from tests.support.serve import LiveServer, assert_problem

from protoslice.client import Client

RANDOM = np.random.default_rng(3)
WEIGHT = RANDOM.standard_normal((40, 50)).astype("<f4")
NOISE = (RANDOM.standard_normal((40, 50)) * 0.01).astype("<f4")
HALVES = np.array([1 + 2j, 3], "<c8")


def model(**arrays: np.ndarray[Any, Any]) -> bytes:
    tensors = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    nodes = [helper.make_node("Relu", ["x"], ["y"], name="first")]
    return helper.make_model(helper.make_graph(nodes, "main", [], [], tensors)).SerializeToString()


def store(client: httpx.Client, data: bytes, tag: str) -> str:
    answer = client.post("/v1/stores", content=data, params={"filename": "m.onnx", "tag": tag})
    assert answer.status_code == 201, answer.text
    said: str = answer.json()["id"]
    return said


@pytest.fixture(scope="module")
def connected(service: LiveServer) -> Iterator[Client]:
    """Return the package's client."""
    with Client(service.url) as connected:
        yield connected


@pytest.fixture(scope="module")
def ids(client: httpx.Client) -> tuple[str, str]:
    """Return the ids of the first and the second version of a model."""
    parsed = onnx.load_from_string(model(w=WEIGHT + NOISE, z=HALVES * 2, new=WEIGHT[0], same=WEIGHT[1]))
    parsed.graph.node[0].op_type = "Gelu"
    one = store(client, model(w=WEIGHT, z=HALVES, old=WEIGHT[2], same=WEIGHT[1]), "compared:1")
    return one, store(client, parsed.SerializeToString(), "compared:2")


def test_the_progress_of_a_comparison_is_an_answer_until_it_is_done(client: httpx.Client) -> None:
    data = model(w=RANDOM.standard_normal((2000, 2000)))
    for number in (1, 2):
        store(client, data + b"\x10\x00" * number, f"long:{number}")
    progress = []
    for _ in range(1000):
        answer = client.get("/v1/stores/long:2/diff", params={"before": "long:1", "wait": "0"})
        if answer.status_code == 200:
            break
        assert (answer.status_code, answer.headers["cache-control"]) == (202, "no-store")
        progress.append(answer.json())
    assert answer.json()["counts"][0] == {"what": "file", "change": "changed", "count": 1}
    assert len(progress) > 2
    assert {each["size"] for each in progress} == {2 * len(data) + 6}
    assert progress[-1]["read"] <= answer.json()["read"] <= progress[-1]["size"]


def test_files_tensors_and_parts_are_told(client: httpx.Client, ids: tuple[str, str]) -> None:
    answer = client.get("/v1/stores/compared:2/diff", params={"before": "compared:1"})
    told = answer.json()
    assert (told["before"], told["after"], told["equal"], told["next"]) == (*ids, False, None)
    assert [(each["change"], each["what"], each["path"], each["detail"]) for each in told["items"]] == [
        ("changed", "file", "m.onnx", ""),
        ("changed", "tensor", "w", ""),
        ("changed", "tensor", "z", ""),
        ("added", "tensor", "new", ""),
        ("removed", "tensor", "old", ""),
        ("changed", "part", "graph.node[0].op_type", '"Relu" → "Gelu"'),
    ]
    assert {(each["what"], each["change"]): each["count"] for each in told["counts"]}["tensor", "changed"] == 2
    assert 0 < told["read"] < 100_000
    assert "immutable" not in answer.headers["cache-control"], "tags move"
    again = client.get(f"/v1/stores/{ids[1]}/diff", params={"before": ids[0]})
    assert again.json() == told
    assert again.headers["cache-control"].startswith("public, max-age=3600")
    assert client.get(f"/v1/stores/{ids[0]}/diff", params={"before": ids[0]}).json()["equal"] is True


def test_differences_come_in_pages(client: httpx.Client, ids: tuple[str, str], connected: Client) -> None:
    url: str | None = f"/v1/stores/{ids[1]}/diff?before={ids[0]}&limit=4"
    found = []
    while url is not None:
        answer = client.get(url)
        found.append([each["path"] for each in answer.json()["items"]])
        url = answer.links["next"]["url"] if "next" in answer.links else None
    assert list(map(len, found)) == [4, 2]
    assert [each.path for each in connected.diff(*ids)] == [*found[0], *found[1]]


def test_moves_are_of_all_tensors_in_pages(client: httpx.Client, ids: tuple[str, str], connected: Client) -> None:
    found = client.get(f"/v1/stores/{ids[1]}/moves", params={"before": ids[0]}).raise_for_status().json()
    assert [(each["name"], each["change"]) for each in found["items"]] == [
        ("new", "added"), ("old", "removed"), ("w", "compared"), ("z", "compared"),
    ]  # fmt: skip
    assert found["equal"] == [{"layer": "same", "last": None, "kind": "other", "count": 1}]
    assert (found["compared"], found["total"]) == (5, 5)
    moved = found["items"][2]["delta"]
    exact = connected.tensor_delta(*ids, "w")
    assert (exact.looked_at, exact.max) == (WEIGHT.size, np.abs(WEIGHT.astype(float) - (WEIGHT + NOISE)).max())
    halves = connected.tensor_delta(*ids, "z")
    assert (halves.elements, halves.changed, halves.max, halves.mean) == (4, 3, 3.0, 1.5)
    renamed = connected.tensor_delta(*ids, "new", was="old")
    assert renamed.max == np.abs(WEIGHT[0].astype(float) - WEIGHT[2]).max()
    assert (moved["changed"], moved["max"], moved["relative"]) == (exact.changed, exact.max, exact.relative)
    assert exact.relative == pytest.approx(
        np.linalg.norm(NOISE.astype(float)) / np.linalg.norm(WEIGHT.astype(float)), 1e-4
    )
    sampled = client.get(f"/v1/stores/{ids[1]}/moves", params={"before": ids[0], "sample": 100}).json()["items"][2]
    assert sampled["delta"]["looked_at"] == 100
    first = client.get(f"/v1/stores/{ids[1]}/moves", params={"before": ids[0], "limit": 2}).json()
    rest = client.get(f"/v1/stores/{ids[1]}/moves", params={"before": ids[0], "cursor": first["next"]}).json()
    assert first["items"] + rest["items"] == found["items"]
    assert first["equal"] + rest["equal"] == found["equal"]
    assert first["compared"] + rest["compared"] == first["total"] == rest["total"] == found["total"]
    assert rest["next"] is None


def test_the_distance_of_a_large_tensor_is_that_of_its_parts_too(client: httpx.Client) -> None:
    before = RANDOM.standard_normal((8000, 128)).astype("<f4")
    after = before.copy()
    after[:200] += 2.5  # the start is sampled first
    one, other = store(client, model(w=before), "begun:1"), store(client, model(w=after), "begun:2")
    (found,) = client.get(f"/v1/stores/{other}/moves?before={one}").raise_for_status().json()["items"]
    exact = np.linalg.norm(after - before) / np.linalg.norm(before)
    assert found["delta"]["looked_at"] == 4096
    assert found["delta"]["relative"] == pytest.approx(exact, rel=0.5)


def test_moves_of_a_large_model_name_what_moved_and_count_the_rest(client: httpx.Client) -> None:
    layers, ends = 758, ("self_attn.q_proj.weight", "self_attn.k_proj.weight", "input_layernorm.weight")
    names = [f"model.layers.{layer}.{end}" for layer in range(layers) for end in ends for _ in range(4)]
    arrays = {f"{name}.{n}": np.full(2, n, "<f4") for n, name in enumerate(names)} | {"lm_head.07": WEIGHT[0]}
    moved = [name for name in arrays if name.startswith(("model.layers.3.", "model.layers.757.")) and "q_proj" in name]
    changed = {name: array + (name in moved[:3]) * np.float32(1) for name, array in arrays.items()}
    one, other = store(client, model(**arrays), "large:1"), store(client, model(**changed), "large:2")
    url: str | None = f"/v1/stores/{other}/moves?before={one}"
    pages, received = [], 0
    while url is not None:
        answer = client.get(url)
        pages.append(answer.json())
        received += len(answer.content)
        url = answer.links["next"]["url"] if "next" in answer.links else None
    assert received < 10_000
    assert [each["name"] for page in pages for each in page["items"]] == moved[:3]
    assert {page["total"] for page in pages} == {len(arrays)} == {sum(page["compared"] for page in pages)}
    counted = Counter[tuple[str, str]]()
    for run in (run for page in pages for run in page["equal"]):
        stem, _, number = run["layer"].rpartition(".")
        following = [] if run["last"] is None else [f"{stem}.{n}" for n in range(int(number) + 1, run["last"] + 1)]
        counted.update({(layer, run["kind"]): run["count"] for layer in (run["layer"], *following)})
    assert counted.pop(("lm_head.07", "linear")) == 1
    assert counted == {
        (f"model.layers.{layer}", kind): count - 3 * (layer == 3 and kind == "attention")
        for layer in range(layers)
        for kind, count in (("attention", 8), ("normalization", 4))
    }


def test_runs_of_layers_end_at_numbers_that_can_be_written_otherwise(client: httpx.Client) -> None:
    names = ["a.0", "a.1", "a.3", "b.07", "b.08", f"c.{10**20}", f"c.{10**20 + 1}", "d"]
    arrays = {name: WEIGHT[0] for name in names}
    one, other = store(client, model(**arrays), "runs:1"), store(client, model(**arrays, e=WEIGHT[1]), "runs:2")
    found = client.get(f"/v1/stores/{other}/moves?before={one}").raise_for_status().json()
    assert [(run["layer"], run["last"]) for run in found["equal"]] == [
        ("a.0", 1),
        *((name, None) for name in names[2:]),
    ]


ROWS = [RANDOM.standard_normal(64).astype("<f4") for _ in range(8)]
PAIRS = {
    "another name": ({"a": ROWS[0], "head": ROWS[1]}, {"a": ROWS[0], "tail": ROWS[1]}),
    "another name and value": ({"old.5.query.weight": ROWS[0]}, {"new.5.query.weight": ROWS[1]}),
    "other numbers": (
        {f"MatMul_{n}": row for n, row in enumerate(ROWS)},
        {f"MatMul_{n + 20}": row + np.float32(n % 2) for n, row in enumerate(ROWS)},
    ),
    "other numbers and shapes": ({"w_1": ROWS[0], "w_2": ROWS[1]}, {"w_3": ROWS[0], "w_4": ROWS[1].reshape(8, 8)}),
    "one fewer, one more": (
        {f"w{n}": row for n, row in enumerate(ROWS)},
        {f"w{n + n // 4}": row for n, row in enumerate(ROWS)},
    ),
    "an alias": ({"a": ROWS[0], "b": ROWS[0]}, {"c": ROWS[0], "d": ROWS[0], "e": ROWS[0]}),
    "nothing alike": ({"a": ROWS[0]}, {"b": ROWS[1]}),
}


@pytest.mark.parametrize("case", PAIRS)
def test_both_lists_have_the_same_pairs(client: httpx.Client, case: str) -> None:
    one, other = (store(client, model(**arrays), f"pairs:{n}") for n, arrays in enumerate(PAIRS[case]))
    moves = client.get(f"/v1/stores/{other}/moves?before={one}").raise_for_status().json()["items"]
    differences = client.get(f"/v1/stores/{other}/diff?before={one}").raise_for_status().json()["items"]
    said = {"reshaped": "changed", "compared": "changed"}
    assert {
        (each["was_address"], each["address"], said.get(each["change"], each["change"]))
        for each in moves
        if each["change"] != "compared" or each["delta"]["changed"]
    } == {(each["was"], each["address"], each["change"]) for each in differences if each["what"] == "tensor"}
    values = {each["address"]: "values differ" in each["detail"] for each in differences if each["change"] == "renamed"}
    assert values == {each["address"]: each["delta"]["changed"] > 0 for each in moves if each["change"] == "renamed"}


@pytest.mark.parametrize(
    ("path", "expected", "slug"),
    [
        ("/moves", 400, "invalid-input"),
        ("/moves?before=nobody:1", 404, "not-found"),
        ("/moves?before=compared:1&sample=0", 400, "invalid-input"),
        ("/diff", 400, "invalid-input"),
        ("/diff?before=nobody:1", 404, "not-found"),
        ("/diff?before=compared:1&cursor=x", 400, "invalid-input"),
        ("/diff?before=compared:1&wait=31", 400, "invalid-input"),
        ("/diff/none?before=compared:1", 404, "not-found"),
        ("/diff/w?before=compared:1&was=old", 422, "unsupported"),
        ("/diff/w?before=compared:1&sample=-1", 400, "invalid-input"),
    ],
)
def test_what_cannot_be_compared_is_said(
    client: httpx.Client, ids: tuple[str, str], path: str, expected: int, slug: str
) -> None:
    answer = client.get(f"/v1/stores/{ids[1]}{path}")
    assert_problem(answer.status_code, answer.headers, answer.content, expected=expected, slug=slug)
