"""Files that are uploaded before the commit that names them."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from tests.support.hub import header, send
from tests.support.stores import onnx

Made = Callable[..., str]

DATA = onnx(200_000, 300_000)
OID = hashlib.sha256(DATA).hexdigest()


def batch(client: httpx.Client, name: str, oid: str = OID, size: int = len(DATA)) -> dict[str, Any]:
    """The answer about one object."""
    body = {"operation": "upload", "transfers": ["basic", "multipart"], "objects": [{"oid": oid, "size": size}]}
    kind = {"content-type": "application/vnd.git-lfs+json"}
    told = client.post(f"/{name}.git/info/lfs/objects/batch", json=body, headers=kind).json()
    assert told["transfer"] == "basic"
    found: dict[str, Any] = told["objects"][0]
    return found


def commit(client: httpx.Client, name: str, *paths: str, oid: str = OID) -> httpx.Response:
    """The answer to a commit of one object at some paths."""
    files = [("lfsFile", {"path": path, "algo": "sha256", "oid": oid, "size": len(DATA)}) for path in paths]
    return send(client, f"models/{name}", header(), *files)


def pushed(client: httpx.Client, name: str) -> None:
    """Uploads the object."""
    assert client.put(batch(client, name)["actions"]["upload"]["href"], content=DATA).status_code == 200


def test_an_upload_becomes_files_of_a_commit(client: httpx.Client, made: Made) -> None:
    name = made({"a": b"1"})
    pushed(client, name)
    assert "actions" not in batch(client, name)
    told = commit(client, name, "model.onnx", "twice.bin")
    assert told.status_code == 200
    for path in ("model.onnx", "twice.bin"):
        assert client.get(f"/{name}/resolve/main/{path}").content == DATA
    assert client.get(f"/v1/stores/{told.json()['commitOid']}").json()["root"] == "model.onnx"
    assert "actions" not in batch(client, name)


def test_a_dataset_has_a_url_of_its_own(client: httpx.Client, made: Made) -> None:
    name = made(kind="dataset")
    href = batch(client, f"datasets/{name}")["actions"]["upload"]["href"]
    assert client.put(href, content=DATA).status_code == 200
    files = ("lfsFile", {"path": "d", "algo": "sha256", "oid": OID})
    assert send(client, f"datasets/{name}", header(), files).status_code == 200


def test_bytes_that_are_sent_again_are_taken_once(client: httpx.Client, made: Made) -> None:
    name = made()
    href = batch(client, name)["actions"]["upload"]["href"]
    assert [client.put(href, content=DATA).status_code for _ in range(2)] == [200, 200]
    assert commit(client, name, "x").status_code == 200


@pytest.mark.parametrize("data", [DATA[:-1] + b"?", DATA[:-1], b""])
def test_other_bytes_are_refused_and_may_be_sent_again(client: httpx.Client, made: Made, data: bytes) -> None:
    name = made()
    href = batch(client, name)["actions"]["upload"]["href"]
    assert 400 <= client.put(href, content=data).status_code < 500
    assert commit(client, name, "x").status_code == 400
    assert client.put(href, content=DATA).status_code == 200
    assert commit(client, name, "x").status_code == 200


def test_more_bytes_than_were_told_are_refused(client: httpx.Client, made: Made) -> None:
    name = made()
    href = batch(client, name)["actions"]["upload"]["href"]
    assert client.put(href, content=DATA + b"?").status_code == 413


def test_uploads_of_another_repository_are_unknown(client: httpx.Client, made: Made) -> None:
    pushed(client, made())
    name = made({"a": b"1"})
    assert "actions" in batch(client, name)
    assert commit(client, name, "x").status_code == 400


def test_an_upload_that_no_batch_began_is_none(client: httpx.Client, made: Made) -> None:
    name = made()
    tus = {"tus-resumable": "1.0.0", "upload-length": "3"}
    digest = f"sha-256=:{b64encode(hashlib.sha256(b'abc').digest()).decode()}:"
    others = [client.post("/v1/uploads", headers=tus | more) for more in ({}, {"repr-digest": digest})]
    for upload in (*(other.headers["location"].rpartition("/")[2] for other in others), "0" * 31, "x"):
        assert client.put(f"/api/lfs-uploads/models/{name}/{upload}", content=b"abc").status_code == 404


@pytest.mark.parametrize(
    "wanted",
    [{"oid": "../x", "size": 1}, {"oid": OID, "size": 0}, {"oid": OID, "size": -1}, {"oid": OID.upper(), "size": 1}],
)
def test_a_batch_names_digests_and_sizes(client: httpx.Client, made: Made, wanted: dict[str, object]) -> None:
    body = {"operation": "upload", "objects": [wanted]}
    assert client.post(f"/{made()}.git/info/lfs/objects/batch", json=body).status_code == 400


def test_a_file_is_no_larger_than_an_upload_may_be(client: httpx.Client, made: Made) -> None:
    body = {"operation": "upload", "objects": [{"oid": OID, "size": 1 << 62}]}
    assert client.post(f"/{made()}.git/info/lfs/objects/batch", json=body).status_code == 413


def test_people_are_shown_why_a_batch_is_refused(client: httpx.Client, made: Made) -> None:
    refused = {
        "Invalid operation 'delete'": (made(), "delete", 400),
        "team/none": ("team/none", "upload", 404),
    }
    for words, (name, operation, status) in refused.items():
        body = {"operation": operation, "objects": []}
        told = client.post(f"/{name}.git/info/lfs/objects/batch", json=body)
        assert told.status_code == status
        assert told.headers["content-type"] == "application/json", "git-lfs reads no other"
        assert words in told.json()["message"]


@pytest.mark.parametrize("path", ["a/x.git/info/lfs/objects/batch", "a/x.git/info/refs?service=git-upload-pack"])
def test_clients_read_the_code_of_the_problem_on_paths_of_git_too(client: httpx.Client, path: str) -> None:
    method = "POST" if path.endswith("batch") else "GET"
    missing = client.request(method, f"/{path}", json={"operation": "upload", "objects": []})
    assert (missing.status_code, missing.headers["x-error-code"]) == (404, "RepoNotFound")
    assert missing.headers["x-error-message"] == "No repository 'a/x'"
