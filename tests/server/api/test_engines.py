"""Files for engines over a real socket: GGUF and safetensors as uploads; ONNX and laid-out safetensors as views.

Clients that follow links read the index of `files/`.
"""

from __future__ import annotations

import io
import json
import tarfile
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from safetensors import safe_open
from safetensors.numpy import save_file
from tests.server.bodies.ways import tar_of
from tests.support.golden import MODELS, folder
from tests.support.serve import assert_problem

from protoslice.client import Client

TAR = {"content-type": "application/x-tar"}


def packed(root: Path) -> bytes:
    """Return the files below `root` as a tar archive."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        tar.add(
            root, arcname=".", filter=lambda entry: None if entry.name.endswith(("expected.json", "how.txt")) else entry
        )
    return out.getvalue()


def pushed(client: httpx.Client, data: bytes, query: str = "", headers: dict[str, str] | None = None) -> dict[str, Any]:
    answer = client.post(f"/v1/stores{query}", content=data, headers=headers)
    assert answer.status_code in {200, 201}, answer.text
    made: dict[str, Any] = answer.json()
    return made


def got(client: httpx.Client, path: str, **headers: str) -> bytes:
    answer = client.get(path, headers=headers)
    assert answer.status_code in {200, 206}, answer.text
    return answer.content


@pytest.fixture(scope="module")
def layers(client: httpx.Client, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Return the URL of a store of two layers, and the file."""
    random = np.random.default_rng(3)
    weights = [numpy_helper.from_array(random.standard_normal((40, 40)).astype("f4"), f"w{n}") for n in range(2)]
    nodes = [helper.make_node("MatMul", ["x", "w0"], ["h"]), helper.make_node("MatMul", ["h", "w1"], ["y"])]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 40]) for name in ("x", "y")]
    model = helper.make_model(helper.make_graph(nodes, "g", infos[:1], infos[1:], weights))
    path = tmp_path_factory.mktemp("onnx") / "layers.onnx"
    onnx.save(model, path)
    return f"/v1/stores/{pushed(client, path.read_bytes(), '?filename=layers.onnx')['id']}", path


def test_onnx_files_are_the_model(client: httpx.Client, layers: tuple[str, Path], tmp_path: Path) -> None:
    base, path = layers
    for name in ("weights.bin", "model.onnx", "single.onnx"):
        (tmp_path / name).write_bytes(got(client, f"{base}/onnx/{name}"))
    assert (tmp_path / "single.onnx").read_bytes() == path.read_bytes()
    assert (tmp_path / "model.onnx").stat().st_size < 1000
    given = {"x": np.ones((2, 40), "f4")}
    (whole,), (found,) = (
        ReferenceEvaluator(onnx.load(each)).run(None, given) for each in (path, tmp_path / "model.onnx")
    )
    assert np.array_equal(whole, found)
    aligned = client.get(f"{base}/onnx/weights.bin?align=256")
    assert aligned.headers["etag"] != client.get(f"{base}/onnx/weights.bin").headers["etag"]
    part = onnx.load_from_string(got(client, f"{base}/onnx/single.onnx?inputs=h"))
    assert [each.name for each in part.graph.initializer] == ["w1"]


@pytest.mark.parametrize(
    ("query", "status", "slug"),
    [
        ("onnx/other.onnx", 404, "not-found"),
        ("onnx/model.onnx?align=3", 400, "invalid-input"),
        ("onnx/model.onnx?outputs=z", 404, "not-found"),
        ("onnx/model.onnx?inputs=y&outputs=h", 400, "invalid-input"),
        ("safetensors?align=3", 400, "invalid-input"),
        ("safetensors?dtype=I8", 400, "invalid-input"),
        ("safetensors/model.safetensors?shards=0", 400, "invalid-input"),
        ("safetensors/model.safetensors?shards=1", 404, "not-found"),
        ("safetensors/model-00001-of-00002.safetensors", 404, "not-found"),
    ],
)
def test_impossible_files_say_why(
    client: httpx.Client, layers: tuple[str, Path], query: str, status: int, slug: str
) -> None:
    answer = client.get(f"{layers[0]}/{query}")
    assert_problem(answer.status_code, answer.headers, answer.content, expected=status, slug=slug)


def test_onnx_files_need_an_onnx_model(client: httpx.Client) -> None:
    base = f"/v1/stores/{pushed(client, packed(folder('gguf_types')), headers=TAR)['id']}"
    answer = client.get(f"{base}/onnx/model.onnx")
    assert_problem(answer.status_code, answer.headers, answer.content, expected=422, slug="unsupported")


def test_safetensors_come_in_shards_of_a_type(client: httpx.Client, layers: tuple[str, Path], tmp_path: Path) -> None:
    query = "shards=4KiB&align=4096&dtype=bf16"
    index = json.loads(got(client, f"{layers[0]}/safetensors/model.safetensors.index.json?{query}"))
    assert sorted(index["weight_map"]) == ["w0", "w1"]
    for name in set(index["weight_map"].values()):
        (tmp_path / name).write_bytes(got(client, f"{layers[0]}/safetensors/{name}?{query}"))
        with safe_open(tmp_path / name, "np") as file:
            (key,) = file.keys()
            assert file.get_slice(key).get_dtype() == "BF16"
    one = got(client, f"{layers[0]}/safetensors/model.safetensors?name=w1")
    assert list(json.loads(one[8 : 8 + int.from_bytes(one[:8], "little")])) == ["__metadata__", "w1"]


@pytest.mark.parametrize("case", ["gguf_types", "gguf_splits", "safetensors_shards", "safetensors_pipeline"])
def test_weights_are_a_model(client: httpx.Client, case: str) -> None:
    expected = json.loads((MODELS / case / "expected.json").read_text())
    store = pushed(client, packed(folder(case)), headers=TAR)
    assert (store["root"], store["type"], store["chunks"]) == (expected["root"], expected["root_type"], 0)
    base = f"/v1/stores/{store['id']}"
    rows = {each["name"]: each for each in client.get(f"{base}/tensors?limit=1000").json()["items"]}
    assert {name: (row["dtype"], row["shape"], row["size"]) for name, row in rows.items()} == {
        each["name"]: (each["dtype"], each["shape"], each["nbytes"]) for each in expected["tensors"]
    }
    assert client.get(f"{base}/summary").json()["tensors"] == len(rows)
    assert client.get(f"{base}/tensortree").json()["children"]
    assert client.get(f"{base}/references.json").status_code == 200
    if case != "safetensors_pipeline":
        tree = client.get(f"{base}/tree").json()["items"]
        assert {"tensors", "weight_map"} & {each["path"] for each in tree}


def test_quantized_tensors_are_blocks_or_floats(client: httpx.Client) -> None:
    base = f"/v1/stores/{pushed(client, packed(folder('gguf_types')), headers=TAR)['id']}/tensors/q.Q4_K"
    blocks, floats = client.get(base), client.get(f"{base}?dequantize=true")
    assert (blocks.headers["x-tensor-dtype"], len(blocks.content)) == ("Q4_K", 4 * 2 * 144)
    assert (floats.headers["x-tensor-dtype"], len(floats.content)) == ("F32", 4 * 512 * 4)
    assert floats.headers["etag"] != blocks.headers["etag"]
    part = client.get(f"{base}?dequantize=true&slice=1,3:300")
    assert part.content == floats.content[4 * (512 + 3) : 4 * (512 + 300)]
    answer = client.get(base.replace("Q4_K", "IQ2_S") + "?dequantize=true")
    assert_problem(answer.status_code, answer.headers, answer.content, expected=422, slug="unsupported")


def test_metadata_is_found_by_path(client: httpx.Client) -> None:
    base = f"/v1/stores/{pushed(client, packed(folder('gguf_types')), headers=TAR)['id']}"
    assert got(client, f'{base}/merge?path=metadata["general.name"].text') == b"tiny"
    whole = client.get(f"{base}/merge", headers={"accept": "application/json"}).json()
    assert whole["metadata"]["x.big"] == {"unsigned_integer": str(1 << 40)}
    assert whole["metadata"]["x.a"]["list"] == {"integers": ["1", "2", "3"]}


def test_models_of_different_formats_are_compared_by_name(
    client: httpx.Client, layers: tuple[str, Path], tmp_path: Path
) -> None:
    file = got(client, f"{layers[0]}/safetensors")
    other = pushed(client, file, "?filename=layers.safetensors")["id"]
    found = client.get(f"/v1/stores/{other}/diff?before={layers[0].rpartition('/')[2]}").json()
    assert [(each["what"], each["change"]) for each in found["items"]] == [("file", "changed")]
    halves = pushed(client, got(client, f"{layers[0]}/safetensors?dtype=F16"), "?filename=halves.safetensors")["id"]
    delta = client.get(f"/v1/stores/{halves}/diff/w0?before={other}").json()
    assert 0 < delta["max"] < 0.002


def test_a_push_of_a_changed_safetensors_file_sends_what_changed(client: httpx.Client, tmp_path: Path) -> None:
    random = np.random.default_rng(6)
    arrays = {f"layer.{n}": random.standard_normal((512, 512)).astype("f4") for n in range(16)}
    path = tmp_path / "model.safetensors"
    with Client(str(client.base_url)) as ours:
        save_file(arrays, path)
        ours.push(path, tags=["delta:1"])
        arrays["layer.7"] = arrays["layer.7"] + 1
        save_file(arrays, path)
        pushed = ours.push(path, tags=["delta:2"], base=["delta:1"])
        assert pushed.sent < 3 * arrays["layer.7"].nbytes
        assert np.array_equal(ours.tensor("delta:2", "layer.7"), arrays["layer.7"])
        changed = [each.path for each in ours.diff("delta:1", "delta:2") if each.what == "tensor"]
        assert changed == ["layer.7"]


HOSTILE = ["<script>alert(1)", '" onmouseover="x', "http:evil", "javascript:alert(1)", "a?b#%20&amp;", "模型 ü"]
FILES = {
    "model.onnx": b"m", "sub/deep/x.bin": b"x" * 5000, "sub/y": b"", **{name: b"h" for name in HOSTILE},
    "{title}/{rows}": b"f",
}  # fmt: skip


class Links(HTMLParser):
    """The links and elements of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.hrefs: list[str] = []
        self.texts: list[str] = []
        self.elements: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        assert {name for name, _ in attributes} <= {"href", "lang", "charset"}
        self.hrefs += [value for name, value in attributes if name == "href" and value]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture(scope="module")
def store(client: httpx.Client) -> str:
    headers = {"content-type": "application/x-tar"}
    made = client.put("/v1/stores", params={"tag": "index:1"}, content=tar_of(FILES), headers=headers)
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


@pytest.mark.parametrize("by", ["id", "tag"])
def test_all_files_are_found_by_following_links(client: httpx.Client, store: str, by: str) -> None:
    root = f"/v1/stores/{store if by == 'id' else 'index:1'}/files/"
    found: dict[str, bytes] = {}
    left, seen = [root], set[str]()
    while left:
        url = left.pop()
        seen.add(url)
        answer = client.get(url)
        assert answer.status_code == 200, url
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        for href in Links(answer.text).hrefs:
            below = urljoin(url, href)
            assert below.startswith(root), "no link leaves the folder"
            if below.endswith("/"):
                left += [below] if below not in seen else []
            else:
                found[below] = client.get(below).content
    paths = {httpx.URL(url).path.removeprefix(root): data for url, data in found.items()}
    assert paths == FILES


def test_names_are_text_and_nothing_may_run(client: httpx.Client, store: str) -> None:
    for below in ("", "sub/", "{title}/"):
        answer = client.get(f"/v1/stores/{store}/files/{below}")
        assert Links(answer.text).elements <= {"html", "meta", "title", "h1", "ul", "li", "a"}
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert client.head(f"/v1/stores/{store}/files/{below}").headers["content-type"] == "text/html; charset=utf-8"
    texts = Links(client.get(f"/v1/stores/{store}/files/").text).texts
    assert set(HOSTILE) < set(texts)


@pytest.mark.parametrize("path", ["none/", "sub/y/", "su/", "/", "sub//", "../"])
def test_other_folders_are_missing(client: httpx.Client, store: str, path: str) -> None:
    url = f"{client.base_url}/v1/stores/{store}/files/{path.replace('.', '%2e')}"
    answer = client.get(url)
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
