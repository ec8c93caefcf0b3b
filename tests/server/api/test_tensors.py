"""Tensors of a model over a real socket: listed, by name, slice and range, and in other formats.

No silent omission: each view of tensors returns all of them, or names the omitted ones.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import fsspec
import httpx
import numpy as np
import onnx
import pytest
import safetensors.numpy
import zarr
from onnx import TensorProto, helper, numpy_helper
from tests.server.bodies.ways import tar_of
from tests.support.golden import MODELS
from tests.support.serve import LiveServer, assert_problem

from protoslice.server.api.views import PREFIX
from protoslice.server.app import create_app
from protoslice.server.settings import Settings
from protoslice.tensors.omitted import Omitted
from protoslice.tensors.references import References

RANDOM = np.random.default_rng(7)
WEIGHT = RANDOM.standard_normal((37, 11, 5)).astype("<f4")
OTHER = RANDOM.integers(-(2**40), 2**40, (4, 6))
WORDS: Any = [b"a", b"\xff"]
BESIDE = RANDOM.standard_normal((64, 32))


def _directory() -> bytes:
    """Return a model with a tensor in another file, as a tar stream."""
    beside = numpy_helper.from_array(BESIDE, "far/away")
    beside.ClearField("raw_data")
    beside.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "weights.bin"), ("offset", "64"), ("length", str(BESIDE.nbytes))):
        entry = beside.external_data.add()
        entry.key, entry.value = key, value
    twice = [numpy_helper.from_array(np.array([n], "<f4"), "twice") for n in (1, 2)]
    nodes = [helper.make_node("Constant", [], [f"c{n}"], value=tensor) for n, tensor in enumerate(twice)]
    words = helper.make_tensor("words", TensorProto.STRING, [2], WORDS)
    tensors = [numpy_helper.from_array(WEIGHT, "/layer/w"), numpy_helper.from_array(OTHER, "o"), beside, words]
    model = helper.make_model(helper.make_graph(nodes, "main", [], [], tensors))
    files = {"model.onnx": model.SerializeToString(), "weights.bin": bytes(64) + BESIDE.tobytes()}
    return tar_of(files)


def _refused(answer: httpx.Response, expected: int, slug: str) -> None:
    assert_problem(answer.status_code, answer.headers, answer.content, expected=expected, slug=slug)


@pytest.fixture(scope="module")
def base(client: httpx.Client) -> str:
    answer = client.post("/v1/stores", content=_directory(), headers={"content-type": "application/x-tar"})
    assert answer.status_code == 201, answer.text
    return f"/v1/stores/{answer.json()['id']}"


@pytest.fixture(scope="module")
def rows(client: httpx.Client, base: str) -> dict[str, dict[str, Any]]:
    return {row["address"]: row for row in client.get(f"{base}/tensors").json()["items"]}


def test_the_list_says_what_there_is(rows: dict[str, dict[str, Any]]) -> None:
    assert rows["path:graph.initializer[2]"] == {
        "name": "far/away",
        "address": "path:graph.initializer[2]",
        "dtype": "F64",
        "shape": [64, 32],
        "size": BESIDE.nbytes,
        "file": "weights.bin",
        "role": "weight",
        "kind": "other",
    }
    assert [row["name"] for row in rows.values()] == ["twice", "twice", "/layer/w", "o", "far/away", "words"]
    assert rows["path:graph.initializer[3]"]["size"] is None


@pytest.mark.parametrize(("name", "array"), [("/layer/w", WEIGHT), ("o", OTHER), ("far/away", BESIDE)])
def test_a_tensor_is_what_was_written(client: httpx.Client, base: str, name: str, array: np.ndarray[Any, Any]) -> None:
    answer = client.get(f"{base}/tensors/{quote(name, safe='')}")
    assert answer.status_code == 200
    assert answer.content == array.tobytes()
    assert answer.headers["x-tensor-shape"] == ",".join(map(str, array.shape))
    loaded = np.load(io.BytesIO(client.get(f"{base}/tensors/{name}?format=npy").content))
    assert loaded.dtype == array.dtype
    np.testing.assert_array_equal(loaded, array)


def test_a_name_of_several_is_a_conflict_that_lists_them(client: httpx.Client, base: str) -> None:
    answer = client.get(f"{base}/tensors/twice")
    _refused(answer, 409, "conflict")
    addresses = [f"path:graph.node[{n}].attribute[0].t" for n in (0, 1)]
    assert all(address in answer.json()["detail"] for address in addresses)
    for n, address in enumerate(addresses):
        found = client.get(f"{base}/tensors/{quote(address, safe='')}").content
        assert found == np.array([n + 1], "<f4").tobytes()


def test_strings_are_json(client: httpx.Client, base: str) -> None:
    answer = client.get(f"{base}/tensors/words?format=json")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {"dtype": "STRING", "shape": [2], "values": ["YQ==", "/w=="]}
    _refused(client.get(f"{base}/tensors/words"), 422, "unsupported")


@pytest.mark.parametrize(
    ("path", "status", "slug"),
    [
        ("tensors/nothing", 404, "not-found"),
        ("tensors/o?slice=9", 400, "invalid-input"),
        ("tensors/o?format=png", 400, "invalid-input"),
        ("safetensors?name=nothing", 404, "not-found"),
        ("tensors/words/stats", 422, "unsupported"),
        ("tensors/o/stats?sample=some", 400, "invalid-input"),
        ("tensors/twice/stats", 409, "conflict"),
        ("tensors?dtype=F33", 400, "invalid-input"),
        ("tensors?regex=(a)%5C1", 400, "invalid-input"),
        ("tensors?sort=age", 400, "invalid-input"),
        (f"tensors?search={'+'.join('a' * 17)}", 400, "invalid-input"),
    ],
)
def test_what_makes_no_sense_is_refused(client: httpx.Client, base: str, path: str, status: int, slug: str) -> None:
    _refused(client.get(f"{base}/{path}"), status, slug)


def test_all_as_one_safetensors_file(client: httpx.Client, base: str) -> None:
    whole = client.get(f"{base}/safetensors").content
    loaded = safetensors.numpy.load(whole)
    np.testing.assert_array_equal(loaded["/layer/w"], WEIGHT)
    np.testing.assert_array_equal(loaded["o"], OTHER)
    np.testing.assert_array_equal(loaded["far/away"], BESIDE)
    some = safetensors.numpy.load(client.get(f"{base}/safetensors?name=o&name=far*").content)
    assert set(some) == {"o", "far/away"}
    assert metadata_of(client, f"{base}/safetensors/model.safetensors?name=o")["format"] == "pt"


def test_references_open_as_arrays(service: LiveServer, client: httpx.Client, base: str) -> None:
    document = client.get(f"{base}/references.json").json()
    files = fsspec.filesystem(
        "reference", fo=document, asynchronous=True, remote_options={"asynchronous": True}, skip_instance_cache=True
    )
    group: Any = zarr.open_group(zarr.storage.FsspecStore(files, read_only=True), mode="r")
    np.testing.assert_array_equal(group["far/away"][:], BESIDE)
    assert document["refs"]["far/away/0.0"] == [f"{service.url}{base}/files/weights.bin", 64, BESIDE.nbytes]


@pytest.fixture(scope="module")
def broken(client: httpx.Client) -> str:
    model = onnx.ModelProto()
    model.CopyFrom(helper.make_model(helper.make_graph([], "g", [], [], [numpy_helper.from_array(OTHER, "short")])))
    model.graph.initializer[0].dims[0] = 9
    answer = client.put("/v1/stores?filename=short.onnx", content=model.SerializeToString())
    return f"/v1/stores/{answer.json()['id']}"


def test_a_checksum_of_the_model_that_fails_is_the_models_fault(client: httpx.Client) -> None:
    """Our storage is sound, so no operator has to look for a damaged object."""
    folder, out = MODELS / "corrupt_bundle_data_flip", io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        tar.add(folder, ".")
    made = client.post(
        "/v1/stores?root=ck.index", content=out.getvalue(), headers={"content-type": "application/x-tar"}
    )
    answer = client.get(f"/v1/stores/{made.json()['id']}/tensors/a")
    _refused(answer, 422, "corrupt-part")
    assert (answer.json()["offset"], answer.json()["path"]) == (0, "ck.data-00000-of-00001")


def test_a_broken_tensor_is_listed_and_not_served(client: httpx.Client, broken: str) -> None:
    (row,) = client.get(f"{broken}/tensors").json()["items"]
    assert "432 bytes" in row["problem"]
    answer = client.get(f"{broken}/tensors/short")
    _refused(answer, 422, "corrupt-part")
    assert answer.json()["path"] == "graph.initializer[0]"
    assert json.loads(client.get(f"{broken}/safetensors").content[8:])["__metadata__"]


def test_levels_of_detail_have_a_path_of_their_own(client: httpx.Client) -> None:
    data = (MODELS / "paddle_dtypes_separate" / "lod_one").read_bytes()
    made = client.put("/v1/stores?filename=lod_one", content=data).json()
    base = f"/v1/stores/{made['id']}/tensors/lod_one"
    answer = client.get(f"{base}/lod")
    assert (answer.headers["content-type"], answer.json()) == ("application/json", {"levels": [[0, 2, 5]]})
    assert client.get(f"{base}?format=lod").content == answer.content
    assert client.get(f"{base}?format=json").json()["stored"] == answer.json()
    assert client.get(f"{base}/lod", headers={"range": "bytes=1-8"}).content == answer.content[1:9]
    _refused(client.get(f"/v1/stores/{made['id']}/tensors/other/lod"), 404, "not-found")


def test_a_tensor_called_lod_comes_first(client: httpx.Client) -> None:
    tensors = [numpy_helper.from_array(np.array([n], "<f4"), name) for n, name in enumerate(("w", "w/lod"))]
    model = helper.make_model(helper.make_graph([], "g", [], [], tensors))
    made = client.put("/v1/stores?filename=m.onnx", content=model.SerializeToString()).json()
    assert client.get(f"/v1/stores/{made['id']}/tensors/w/lod").content == np.array([1], "<f4").tobytes()
    _refused(client.get(f"/v1/stores/{made['id']}/tensors/w/lod/lod"), 404, "not-found")


def test_statistics_are_a_form_of_a_tensor(client: httpx.Client, base: str) -> None:
    for url in (f"{base}/tensors//layer/w/stats", f"{base}/tensors/%2Flayer%2Fw?format=stats"):
        answer = client.get(url)
        assert answer.headers["content-type"] == "application/json"
        told = answer.json()
        assert (told["address"], told["shape"], told["max"]) == ("path:graph.initializer[0]", [37, 11, 5], WEIGHT.max())
    part = client.get(f"{base}/tensors/far%2Faway/stats?slice=::7,3&sample=4").json()
    assert (part["shape"], part["elements"], part["looked_at"]) == ([10], 10, 4)


def test_the_list_is_searched_and_sorted(client: httpx.Client, base: str) -> None:
    def names(query: str) -> list[str]:
        found: list[str] = []
        url: str | None = f"{base}/tensors?limit=2&{query}"
        while url is not None:
            answer = client.get(url)
            found += [row["name"] for row in answer.json()["items"]]
            url = answer.links["next"]["url"] if "next" in answer.links else None
        return found

    assert sorted(names("")) == sorted(["twice", "twice", "/layer/w", "o", "far/away", "words"])
    assert names("sort=-size") == ["far/away", "/layer/w", "o", "twice", "twice", "words"]
    assert names("search=A+W&sort=-size&dtype=F64") == ["far/away"]
    assert names("dtype=F32&name=twice") == ["twice", "twice"]
    assert names("sort=-size&from=4") == names("sort=-size")[4:]
    assert client.get(f"{base}/tensors?search=nothing").json() | {"items": []} == {
        "items": [],
        "next": None,
        "total": 6,
    }
    assert names("regex=%5E(/|o$)") == ["/layer/w", "o"]
    assert names("prefix=/layer/") == ["/layer/w"]


def test_the_tree_of_names_leads_to_tensors(client: httpx.Client, base: str) -> None:
    root = client.get(f"{base}/tensortree").raise_for_status().json()
    assert (root["name"], root["start"], root["tensors"]) == ("", 0, 6)
    assert [child["name"] for child in root["children"]] == ["/layer/w", "far/away", "o", "twice", "words"]
    far, twice = root["children"][1], root["children"][3]
    assert far["address"] == client.get(f"{base}/tensors?name=far/away").json()["items"][0]["address"]
    assert (far["shape"], far["size"], far["elements"]) == (list(BESIDE.shape), BESIDE.nbytes, BESIDE.size)
    below = client.get(f"{base}/tensortree", params={"prefix": "twice", "start": 3, "tensors": 2}).json()
    assert (below["tensors"], below["children"]) == (2, twice["children"])


def test_the_summary_adds_up_all_tensors(client: httpx.Client, base: str) -> None:
    told = client.get(f"{base}/summary").json()
    assert (told["tensors"], told["duplicates"], told["complete"]) == (6, ["twice"], True)
    totals = {total["dtype"]: (total["tensors"], total["elements"], total["size"]) for total in told["dtypes"]}
    assert totals["F64"] == (1, BESIDE.size, BESIDE.nbytes)
    assert totals["F32"] == (3, WEIGHT.size + 2, WEIGHT.nbytes + 8)
    assert totals["STRING"] == (1, 2, 0)
    assert next(total["dtype"] for total in told["dtypes"]) == "F64"


def stored_file(metadata: dict[str, str], *names: str) -> bytes:
    """Return a safetensors file of one element for each name."""
    entries = {name: {"dtype": "F32", "shape": [1], "data_offsets": [4 * n, 4 * n + 4]} for n, name in enumerate(names)}
    text = json.dumps({"__metadata__": metadata, **entries}).encode()
    return len(text).to_bytes(8, "little") + text + bytes(4 * len(names))


def metadata_of(client: httpx.Client, path: str) -> dict[str, str]:
    data = client.get(path).content
    return dict(json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"])


def test_metadata_of_stored_files_is_in_every_file_that_is_made(client: httpx.Client) -> None:
    common = {"format": "flax", "sd_hash": "1", "text": 'a"\\ü'}
    files = {
        "model-00001-of-00002.safetensors": stored_file({**common, "part": "1"}, "a", "b"),
        "model-00002-of-00002.safetensors": stored_file({**common, "part": "2", "only": "x"}, "c"),
    }
    made = client.post("/v1/stores", files=[("f", (name, data)) for name, data in files.items()])
    base = f"/v1/stores/{made.json()['id']}"
    shards = client.get(f"{base}/safetensors/model.safetensors.index.json?shards=4").json()["weight_map"]
    assert len(set(shards.values())) == 3
    views = ["safetensors", "safetensors?name=a", "safetensors?align=64", "safetensors/model.safetensors"]
    views += [f"safetensors/{name}?shards=4" for name in set(shards.values())]
    # A fact in which the files differ is reported for none of them.
    expected = {**common, "only": "x"}
    assert {view: metadata_of(client, f"{base}/{view}") for view in views} == dict.fromkeys(views, expected)


def test_metadata_is_not_repeated_without_bounds(client: httpx.Client) -> None:
    data = stored_file({"long": "x" * 1_000_000}, *(f"w{n}" for n in range(1000)))
    made = client.put("/v1/stores?filename=model.safetensors", content=data)
    refused = client.get(f"/v1/stores/{made.json()['id']}/safetensors/model.safetensors.index.json?shards=4")
    assert_problem(refused.status_code, refused.headers, refused.content, expected=413, slug="limit-exceeded")
    assert "shards" in refused.json()["detail"]


GOOD, OMITTED, GONE = "tensor-good", "tensor-of-words", "tensor-gone"
LACKS = {"safetensors", "references.json"}
"""The views that cannot hold every tensor."""


def _model() -> bytes:
    """Return an ONNX model with a valid tensor, a tensor of strings, and a tensor whose file is missing."""
    good = onnx.numpy_helper.from_array(np.arange(4, dtype=np.float32), GOOD)
    words = onnx.helper.make_tensor(OMITTED, onnx.TensorProto.STRING, [1], [b"x"])  # type: ignore[list-item]  # strings are bytes
    gone = onnx.TensorProto(name=GONE, data_type=1, dims=[4], data_location=onnx.TensorProto.EXTERNAL)
    gone.external_data.add(key="location", value="missing.bin")
    graph = onnx.helper.make_graph([], "g", [], [], initializer=[good, words, gone])
    return onnx.helper.make_model(graph).SerializeToString()


@pytest.fixture(scope="module")
def omitting(client: httpx.Client) -> str:
    archive = tar_of({"model.onnx": _model()})
    answer = client.post("/v1/stores", content=archive, headers={"content-type": "application/x-tar"})
    assert answer.status_code == 201, answer.text
    return f"/v1/stores/{answer.json()['id']}"


def _views() -> Iterator[str]:
    """Return every GET below a store without more parameters in its path, from the application."""
    rows = (row.split(" ") for row in create_app(Settings(storage="memory://")).rules)
    for path in {path for method, path in rows if method == "GET"}:
        rest = path.removeprefix(f"{PREFIX}/")
        if rest != path and "{" not in rest:
            yield rest


def _check(client: httpx.Client, omitting: str, view: str) -> bool:
    """Assert that a view names its omitted tensors; return True if it has any."""
    answer = client.get(f"{omitting}/{view}")
    if answer.status_code != 200:
        return False
    body = answer.content
    if view == "safetensors":  # the metadata names them too, for programs that read no headers
        head = json.loads(body[8 : 8 + int.from_bytes(body[:8], "little")])
        head.pop("__metadata__")
        body = json.dumps(head).encode()
    lacking = {name for name in (GOOD, OMITTED, GONE) if name.encode() not in body}
    if GOOD in lacking or not lacking:  # no view of tensors, or one of all
        return False
    omitted = Omitted.parse(answer.headers.get("protoslice-omitted"))
    assert omitted is not None, f"{view} lacks {lacking} without a word"
    assert set(omitted.names) == lacking
    assert omitted.count == len(lacking)
    return True


VIEWED = sorted(_views())


@pytest.mark.parametrize("view", VIEWED)
def test_view_names_what_it_leaves_out(client: httpx.Client, omitting: str, view: str) -> None:
    assert _check(client, omitting, view) == (view in LACKS)


def test_view_that_leaves_out_silently_is_found(
    client: httpx.Client, omitting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(References, "omitted", None)
    with pytest.raises(AssertionError, match="without a word"):
        _check(client, omitting, "references.json?strict=false")  # which was not made before


@pytest.mark.parametrize("view", sorted(LACKS))
def test_strict_refuses_and_names(client: httpx.Client, omitting: str, view: str) -> None:
    assert view in VIEWED
    refused = client.get(f"{omitting}/{view}?strict=true")
    assert refused.status_code == 422
    assert OMITTED in refused.json()["detail"]
    assert GONE in refused.json()["detail"]
    assert client.get(f"{omitting}/{view}?strict=false").status_code == 200
    assert client.get(f"{omitting}/{view}?strict=perhaps").status_code in {400, 422}


def test_strict_lets_whole_answers_pass(client: httpx.Client, omitting: str) -> None:
    answer = client.get(f"{omitting}/safetensors?strict=true&name={GOOD}")
    assert answer.status_code == 200
    assert "protoslice-omitted" not in answer.headers
    part = client.get(f"{omitting}/safetensors", headers={"range": "bytes=0-7"})
    assert part.status_code == 206
    assert "protoslice-omitted" in part.headers
