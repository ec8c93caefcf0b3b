"""Stores without a root over HTTP: every way in, what is told of them, and which views they have."""

from __future__ import annotations

from pathlib import Path
from random import Random

import httpx
import pytest
from tests.server.bodies.ways import Site, Way, assembled, form, recipe, tar
from tests.support.serve import assert_problem
from tests.support.streams import FRAMED
from tests.support.views import PLAIN

TREE = {"README.md": b"# Words\n", "config.json": b'{"a": 1}', "weights.bin": Random(7).randbytes(70_000)}
OF_ROOT = ["chunks", "tree", "tensors", "references.json", "signatures", *(c.path for c in PLAIN if c.needs_root)]


@pytest.mark.parametrize("send", [form, tar, recipe, assembled])
def test_a_tree_is_taken_however_it_comes(client: httpx.Client, tmp_path: Path, send: Way) -> None:
    answer = send(Site(client, tmp_path), TREE)
    assert answer.status_code in {200, 201}, answer.text
    store = answer.json()
    assert (store["root"], store["type"], store["chunks"], store["schema"], store["planner"]) == (
        None, None, 0, None, None
    )  # fmt: skip
    assert store["why"].startswith("none of the 3 files is in a supported format")
    for name, data in TREE.items():
        assert client.get(f"/v1/stores/{store['id']}/files/{name}").content == data
    pieces = client.get(f"/v1/stores/{store['id']}/pieces").json()
    assert {piece["file"] for piece in pieces["items"]} == set(TREE)


def test_views_of_a_proto_are_no_root(client: httpx.Client, tmp_path: Path) -> None:
    store = form(Site(client, tmp_path), TREE).json()
    for view in OF_ROOT:
        url = f"/v1/stores/{store['id']}/{view}"
        assert client.head(url).status_code == 404
        answer = client.get(url)
        problem = assert_problem(answer.status_code, answer.headers, answer.content, expected=404, slug="no-root")
        assert problem["detail"] == f"This store has files, but no root proto: {store['why']}"


@pytest.mark.parametrize(
    ("name", "head", "kind"), [("m.onnx.gz", b"\x1f\x8b\x08\0", "gzip"), ("m.pb.zst", b"\x28\xb5\x2f\xfd", "zstd")]
)
def test_a_packed_file_stays_as_it_is(client: httpx.Client, name: str, head: bytes, kind: str) -> None:
    data = head + Random(3).randbytes(5000)
    answer = client.put(f"/v1/stores?filename={name}", content=data)
    assert answer.status_code == 201, answer.text
    store = answer.json()
    assert (store["root"], store["type"], store["files"][0]["path"]) == (None, None, name)
    assert f"this is {kind}: decompress it first" in store["why"]
    file = client.get(f"/v1/stores/{store['id']}/files/{name}")
    assert file.content == data
    assert "content-encoding" not in file.headers


def test_a_stream_of_records_is_a_fact_of_the_store(client: httpx.Client) -> None:
    stream = FRAMED["tfrecord"]([b"\x08\x01", b"\x08\x02"])
    for files in ([("a", b"words")], [("train", stream)], [("README.md", b"# Words\n"), ("a/train", stream)]):
        sent = client.post("/v1/stores", files=[("file", item) for item in files]).json()
        found = [item["records_file"] for item in (sent, client.get(f"/v1/stores/{sent['id']}").json())]
        (listed,) = [item for item in client.get("/v1/stores").json()["items"] if item["id"] == sent["id"]]
        path = next((path for path, data in files if data == stream), None)
        assert [*found, listed["records_file"]] == [path] * 3
        answer = client.get(f"/v1/stores/{sent['id']}/records", params={"file": path or "a", "summary": "true"})
        assert (answer.status_code == 200) == (path is not None), answer.text
