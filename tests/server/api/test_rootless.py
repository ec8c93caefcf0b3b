"""Stores without a root over HTTP: every way in, what is told of them, and which views they have."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable
from random import Random

import httpx
import pytest
from tests.support.serve import assert_problem
from tests.support.streams import FRAMED
from tests.support.views import PLAIN

from protoslice.recipes import MEDIA_TYPE, RecipeWriter

TREE = {"README.md": b"# Words\n", "config.json": b'{"a": 1}', "weights.bin": Random(7).randbytes(70_000)}
OF_ROOT = ["chunks", "tree", "tensors", "references.json", "signatures", *(c.path for c in PLAIN if c.needs_root)]


def _form(client: httpx.Client) -> httpx.Response:
    return client.post("/v1/stores", files=[("file", item) for item in TREE.items()])


def _tar(client: httpx.Client) -> httpx.Response:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in TREE.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return client.put("/v1/stores", content=out.getvalue(), headers={"content-type": "application/x-tar"})


def _recipe(client: httpx.Client) -> httpx.Response:
    writer = RecipeWriter()
    body = b"".join(
        writer.file(name) + writer.literal(len(data)) + data + writer.end(len(data), hashlib.sha256(data).hexdigest())
        for name, data in TREE.items()
    )
    return client.put("/v1/stores", content=body + writer.done(), headers={"content-type": MEDIA_TYPE})


def _assembled(client: httpx.Client) -> httpx.Response:
    uploads = {}
    for name, data in TREE.items():
        headers = {"tus-resumable": "1.0.0", "upload-length": str(len(data)), "upload-concat": "partial"}
        begun = client.post(
            "/v1/uploads",
            content=data,
            headers={**headers, "content-type": "application/offset+octet-stream"},
        )
        assert begun.status_code == 201, begun.text
        uploads[name] = begun.headers["location"]
    return client.post("/v1/stores/assemble", json={"uploads": uploads})


@pytest.mark.parametrize("send", [_form, _tar, _recipe, _assembled])
def test_a_tree_is_taken_however_it_comes(client: httpx.Client, send: Callable[[httpx.Client], httpx.Response]) -> None:
    answer = send(client)
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


@pytest.mark.parametrize("view", OF_ROOT)
def test_views_of_a_proto_are_no_root(client: httpx.Client, view: str) -> None:
    store = _form(client).json()
    url = f"/v1/stores/{store['id']}/{view}"
    assert client.head(url).status_code == 404
    answer = client.get(url)
    problem = assert_problem(answer.status_code, answer.headers, answer.content, expected=404, slug="no-root")
    assert problem["detail"] == f"This store has files, but no root proto: {store['why']}"


def test_one_file_is_a_store_too(client: httpx.Client) -> None:
    answer = client.put("/v1/stores?filename=passwd", content=b"root:x:0:0:root:/root:/bin/sh\n")
    assert answer.status_code == 201
    assert answer.json()["root"] is None
    assert answer.json()["why"].startswith("passwd is not in a supported format (")


@pytest.mark.parametrize("query", ["root=README.md", "type=onnx.ModelProto", "root=weights.bin&type=unknown"])
def test_what_is_named_must_be_there(client: httpx.Client, query: str) -> None:
    answer = client.post(f"/v1/stores?{query}", files=[("file", item) for item in TREE.items()])
    assert answer.status_code in {400, 422}, answer.text


def test_an_upload_that_survives_is_one_too(client: httpx.Client) -> None:
    headers = {"tus-resumable": "1.0.0", "upload-length": "9", "content-type": "application/offset+octet-stream"}
    begun = client.post("/v1/uploads?filename=notes.txt", content=b"some text", headers=headers)
    assert begun.status_code == 201, begun.text
    told = client.get(begun.headers["location"]).json()
    assert told["state"] == "stored", told
    assert client.get(f"/v1/stores/{told['store']}").json()["root"] is None


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
    refused = client.get(f"/v1/stores/{store['id']}/merge")
    assert_problem(refused.status_code, refused.headers, refused.content, expected=404, slug="no-root")
    assert kind in refused.json()["detail"]


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
