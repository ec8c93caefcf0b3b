"""Views of revisions: tensors of models in any format, as the safetensors files that clients expect."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from safetensors import deserialize
from tests.support.golden import folder
from tests.support.hub import commit
from tests.support.stores import onnx

from protoslice.views import tensors

Made = Callable[..., str]
VIEW = "views%2Fmain"
WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
GOLDEN = ("onnx_types_raw", "onnx_external_many", "tf_sm_variables", "paddle_combined", "coreml_nn_float32")


def golden(case: str) -> dict[str, bytes]:
    """Return the files of a golden model."""
    root = folder(case)
    found = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if name not in ("expected.json", "how.txt")}


def digests(data: bytes) -> dict[str, str]:
    """Return the SHA-256 of the elements of each tensor of a safetensors file."""
    found: list[tuple[str, dict[str, Any]]] = deserialize(data)  # type: ignore[no-untyped-call]
    return {name: hashlib.sha256(bytes(each["data"])).hexdigest() for name, each in found}


def listed(client: httpx.Client, name: str, revision: str = VIEW) -> dict[str, dict[str, Any]]:
    """Return the files and folders of a revision by path."""
    told = client.get(f"/api/models/{name}/tree/{revision}?recursive=true").json()
    return {each["path"]: each for each in told}


def read(client: httpx.Client, name: str, path: str, revision: str = VIEW) -> bytes:
    """Return the bytes of a file at a revision."""
    told = client.get(f"/{name}/resolve/{revision}/{path}")
    assert told.status_code == 200, told.text
    return told.content


@pytest.mark.parametrize("case", GOLDEN)
def test_a_model_of_any_format_is_one_file(client: httpx.Client, made: Made, case: str) -> None:
    files = golden(case)
    name = made(files)
    found = digests(read(client, name, WHOLE))
    expected = json.loads((Path(folder(case)) / "expected.json").read_text())["tensors"]
    # F4 is packed in both, under the digest of its packed form.
    whole = {each["name"]: {each.get("sha256"), each.get("sha256_packed")} for each in expected}
    compared = found.keys() & whole.keys()
    assert len(compared) > len([each for each in expected if each["dtype"] not in ("STRING", "C128")]) // 2
    assert {each for each in compared if found[each] not in whole[each]} == set()
    assert WHOLE not in listed(client, name, "main")
    assert {path for path, each in listed(client, name).items() if each["type"] == "file"} == {WHOLE, *files}
    assert all(read(client, name, path) == data for path, data in files.items())


def test_a_view_is_told_as_any_commit(client: httpx.Client, made: Made) -> None:
    name = made({"net/m.onnx": onnx(1000, 2000)})
    told = client.get(f"/api/models/{name}/revision/{VIEW}?blobs=true").json()
    plain = client.get(f"/api/models/{name}").json()
    assert len(told["sha"]) == 40
    assert told["sha"] != plain["sha"]
    (sibling,) = [each for each in told["siblings"] if each["rfilename"] == WHOLE]
    whole = read(client, name, WHOLE)
    assert sibling["size"] == len(whole)
    head = client.head(f"/{name}/resolve/{VIEW}/{WHOLE}", headers={"accept-encoding": "identity"})
    assert (head.headers["x-repo-commit"], head.headers["x-linked-size"]) == (told["sha"], str(len(whole)))
    entry = listed(client, name)[WHOLE]
    assert (entry["size"], "lfs" in entry) == (len(whole), False)
    assert head.headers["x-linked-etag"] == f'"{entry["oid"]}"' == f'"{sibling["blobId"]}"'
    assert len(entry["oid"]) == 40
    found = client.post(f"/api/models/{name}/paths-info/{VIEW}", data={"paths": [WHOLE], "expand": "false"}).json()
    assert found == [entry]
    history = [client.get(f"/api/models/{name}/commits/{revision}").json() for revision in (VIEW, "main")]
    assert history[0] == history[1]
    lasting = head.headers["content-location"]
    assert lasting == f"/{name}/resolve/{told['sha']}/{WHOLE}"
    assert client.get(lasting).content == whole
    part = client.get(f"/{name}/resolve/{VIEW}/{WHOLE}", headers={"range": "bytes=9-99"})
    assert (part.status_code, part.content) == (206, whole[9:100])


def test_the_id_of_a_view_never_shows_other_bytes(client: httpx.Client, made: Made) -> None:
    name = made({"m.onnx": onnx(1000, 2000)})
    first, whole = client.get(f"/api/models/{name}/revision/{VIEW}").json()["sha"], read(client, name, WHOLE)
    commit(client, f"models/{name}", {"m.onnx": onnx(3000, 4000)})
    assert read(client, name, WHOLE) != whole
    assert read(client, name, WHOLE, first) == whole
    assert client.get(f"/api/models/{name}/revision/{first}").json()["sha"] == first
    base = client.get(f"/api/models/{name}/commits/{first}").json()[0]["id"]
    assert read(client, name, WHOLE, f"views%2F{base}") == whole
    assert client.get(f"/{name}/resolve/{base}/{WHOLE}").status_code == 404


def test_views_are_told_beside_branches_and_tags(client: httpx.Client, made: Made) -> None:
    name = made({"m.onnx": onnx(1000, 2000)})
    assert client.post(f"/api/models/{name}/tag/main", json={"tag": "v1"}).status_code == 201
    assert client.post(f"/api/models/{name}/branch/feat%2Fx", json={}).status_code == 201
    told = client.get(f"/api/models/{name}/refs").json()
    shown = {each["name"]: (each["ref"], each["targetCommit"]) for each in told["converts"]}
    assert shown.keys() == {"views/main", "views/v1", "views/feat/x"}
    for view, (ref, id) in shown.items():
        assert ref == f"refs/{view}"
        for revision in (view, ref, id):
            assert client.get(f"/api/models/{name}/revision/{revision.replace('/', '%2F')}").json()["sha"] == id
    assert client.get(f"/api/models/{made()}/refs").json()["converts"] == []


def test_large_models_are_cut_and_indexed(client: httpx.Client, made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors, "SHARD_BYTES", 100)
    name = made({"README.md": b"# cut", **golden("tf_sm_variables")})  # a store that no other test has opened
    paths = [path for path in listed(client, name) if path.startswith("model")]
    parts = [path for path in paths if path != INDEX]
    assert INDEX in paths
    assert len(parts) > 1
    assert parts == [f"model-{number:05}-of-{len(parts):05}.safetensors" for number in range(1, len(parts) + 1)]
    index, found, size = json.loads(read(client, name, INDEX)), dict[str, str](), 0
    places = dict[str, str]()
    for path in parts:
        data = read(client, name, path)
        digest = digests(data)
        held = len(data) - 8 - int.from_bytes(data[:8], "little")
        assert held <= 100 or len(digest) == 1
        assert digest
        size += held
        found |= digest
        places |= dict.fromkeys(digest, path)
    assert index == {"metadata": {"total_size": size}, "weight_map": places}
    monkeypatch.undo()
    assert found == digests(read(client, made(golden("tf_sm_variables")), WHOLE))


@pytest.mark.parametrize("pushed", [WHOLE, INDEX])
def test_safetensors_that_were_pushed_stay_as_they_are(client: httpx.Client, made: Made, pushed: str) -> None:
    files = {"m.onnx": onnx(1000, 2000), pushed: b"pushed"}
    name = made(files)
    assert listed(client, name).keys() == files.keys()
    assert read(client, name, pushed) == b"pushed"


@pytest.mark.parametrize("files", [{}, {"README.md": b"# hi"}, {"t.tfrecord": b"no model"}])
def test_a_view_of_no_tensors_shows_the_files(client: httpx.Client, made: Made, files: dict[str, bytes]) -> None:
    name = made(files)
    assert listed(client, name).keys() == files.keys()
    assert client.get(f"/{name}/resolve/{VIEW}/{WHOLE}").headers["x-error-code"] == "EntryNotFound"


@pytest.mark.parametrize(
    "revision",
    ["views%2Fnone", "views%2F", "views%2Fviews%2Fmain", "views", "views%2F" + "0" * 40, "views%2F..%2Fmain"],
)
def test_a_view_of_nothing_is_not_there(client: httpx.Client, made: Made, revision: str) -> None:
    name = made({"m.onnx": onnx(1000, 2000)})
    told = client.get(f"/{name}/resolve/{revision}/{WHOLE}")
    assert (told.status_code, told.headers["x-error-code"]) == (404, "RevisionNotFound")


def test_views_are_read_alone(client: httpx.Client, made: Made) -> None:
    name = made({"m.onnx": onnx(1000, 2000)})
    api = f"/api/models/{name}"
    view = client.get(f"{api}/revision/{VIEW}").json()["sha"]
    for revision in (VIEW, view):
        assert commit(client, f"models/{name}", {"a": b"1"}, revision=revision).status_code == 404
        assert client.post(f"{api}/preupload/{revision}", json={"files": []}).status_code == 404
        assert client.get(f"{api}/xet-write-token/{revision}").status_code == 404
        assert client.post(f"{api}/branch/of", json={"startingPoint": revision.replace("%2F", "/")}).status_code == 404
    refused = client.post(f"{api}/branch/views%2Fx", json={})
    assert (refused.status_code, "is reserved for a view" in refused.headers["x-error-message"]) == (400, True)
    assert client.post(f"{api}/tag/main", json={"tag": "views/x"}).status_code == 400
    assert client.get(f"/v1/stores/{name.replace('/', '%2F')}@{VIEW}").status_code == 404


def test_a_view_of_a_damaged_model_tells_of_it(client: httpx.Client, made: Made) -> None:
    name = made(golden("corrupt_bundle_index_flip"))
    told = client.get(f"/{name}/resolve/{VIEW}/{WHOLE}")
    assert told.status_code == 422
    assert "damaged" in told.headers["x-error-message"]
