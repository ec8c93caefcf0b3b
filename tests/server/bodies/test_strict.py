"""Reports on sent models: given on demand, and a reason to refuse where only a sound one is wanted."""

from __future__ import annotations

import hashlib
import io
import tarfile
from base64 import b64encode
from typing import Any

import httpx
import pytest
from tests.support.bundles import Variable, bundle
from tests.support.problems import assert_problem

from protoslice import schema
from protoslice.recipes import MEDIA_TYPE, RecipeWriter

pytestmark = pytest.mark.contract
WEIGHTS = bytes(range(200)) * 2


def model_of(*names: str) -> bytes:
    """An ONNX model whose tensors of these names lie in `weights.bin`."""
    model: Any = schema.bundled().message_class("onnx.ModelProto")()
    model.graph.name = "g"
    for name in names:
        tensor = model.graph.initializer.add(name=name, data_type=1, dims=[100], data_location=1)
        tensor.external_data.add(key="location", value="weights.bin")
        tensor.external_data.add(key="length", value="400")
    return bytes(model.SerializeToString())


def tar(files: dict[str, bytes]) -> bytes:
    with io.BytesIO() as held:
        with tarfile.open(fileobj=held, mode="w") as archive:
            for name, data in files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
        return held.getvalue()


def send(client: httpx.Client, files: dict[str, bytes], **query: str) -> httpx.Response:
    """Send files, as one body or as a tar."""
    if len(files) > 1:
        return client.post(
            "/v1/stores", params=query, content=tar(files), headers={"content-type": "application/x-tar"}
        )
    ((name, data),) = files.items()
    return client.post("/v1/stores", params={**query, "filename": name}, content=data)


def refused(answer: httpx.Response, status: int, slug: str) -> Any:
    return assert_problem(answer.status_code, answer.headers, answer.content, expected=status, slug=slug)


def stores(client: httpx.Client) -> set[str]:
    return {store["id"] for store in client.get("/v1/stores?limit=1000").json()["items"]}


def damaged() -> dict[str, bytes]:
    """A bundle of two tensors, one of which fails its checksum."""
    files = bundle("v", [Variable(name, 1, (100,), WEIGHTS) for name in ("one", "two")])
    shard = next(name for name in files if ".data-" in name)
    data = bytearray(files[shard])
    data[600] ^= 1
    return files | {shard: bytes(data)}


def test_a_report_comes_when_it_is_asked_for(client: httpx.Client) -> None:
    plain = send(client, {"m.onnx": model_of("a", "b", "a")})
    told = send(client, {"m.onnx": model_of("a", "b", "a")}, report="true")
    assert told.json().pop("report") == {
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
    assert {name: value for name, value in told.json().items() if name != "report"} == plain.json()
    assert (plain.status_code, told.status_code) == (201, 200)
    assert told.headers["etag"] == plain.headers["etag"], "it is of the store, which is the same"
    assert told.headers["repr-digest"] != plain.headers["repr-digest"]


def test_a_strict_upload_without_its_files_is_refused(client: httpx.Client) -> None:
    before = stores(client)
    problem = refused(send(client, {"m.onnx": model_of("lonely")}, strict="true"), 422, "unsound-model")
    assert "'weights.bin'" in problem["detail"]
    assert stores(client) == before
    whole = {"m.onnx": model_of("lonely"), "weights.bin": WEIGHTS}
    made = send(client, whole, strict="true", report="true")
    assert made.status_code == 201
    assert made.json()["report"]["missing"] == []


def test_a_strict_upload_that_fails_its_checksums_is_refused(client: httpx.Client) -> None:
    problem = refused(send(client, damaged(), strict="true", tag="strict:1"), 422, "unsound-model")
    assert problem["detail"].startswith("two: ")
    assert client.get("/v1/tags/strict:1").status_code == 404
    lenient = send(client, damaged(), report="true")
    assert (lenient.status_code, lenient.json()["report"]["damaged"]) == (201, [])
    sound = bundle("v", [Variable(name, 1, (100,), WEIGHTS) for name in ("one", "two")])
    assert send(client, sound, strict="true").status_code == 201


def test_the_records_of_a_chunked_file_are_compared(client: httpx.Client, model: bytes) -> None:
    made = send(client, {"m.onnx": model}).json()["id"]
    chunked = bytearray(client.get(f"/v1/stores/{made}/cpb").content)
    chunked[chunked.index(b"weights!" * 100) + 64] ^= 1
    problem = refused(send(client, {"m.cpb": bytes(chunked)}, strict="true"), 422, "unsound-model")
    assert "m.cpb: Corrupted" in problem["detail"]
    assert send(client, {"m.cpb": bytes(chunked)}).status_code == 201


@pytest.mark.parametrize("files", [{"notes.txt": b"root:x:0:0\n"}, {"a.bin": b"\xff" * 100, "b.txt": b"words"}])
def test_what_is_no_model_has_nothing_that_could_be_missing(client: httpx.Client, files: dict[str, bytes]) -> None:
    made = send(client, files, strict="true", report="true")
    assert made.status_code == 201
    report = made.json()["report"]
    assert (report["tensors"], report["missing"], report["damaged"]) == (None, [], [])


def test_a_recipe_and_an_assembly_may_be_strict(client: httpx.Client) -> None:
    data, writer = model_of("by recipe"), RecipeWriter()
    lines = [writer.file("m.onnx"), writer.literal(len(data)), data]
    lines += [writer.end(len(data), hashlib.sha256(data).hexdigest()), writer.done()]
    headers = {"content-type": MEDIA_TYPE}
    answer = client.post("/v1/stores?strict=true", content=b"".join(lines), headers=headers)
    refused(answer, 422, "unsound-model")
    upload = resumable(client, data, {}, **{"upload-concat": "partial"}).headers["location"]
    asked = {"uploads": {"m.onnx": upload}, "strict": True, "report": True}
    refused(client.post("/v1/stores/assemble", json=asked), 422, "unsound-model")
    made = client.post("/v1/stores/assemble", json=asked | {"strict": False})
    assert made.json()["report"]["missing"] == ["weights.bin"]


def resumable(client: httpx.Client, data: bytes, words: dict[str, bytes], **more: str) -> httpx.Response:
    """A resumable upload with all its bytes in the first request."""
    told = ",".join(f"{name} {b64encode(word).decode()}" for name, word in words.items())
    headers = {"tus-resumable": "1.0.0", "upload-length": str(len(data)), "upload-metadata": told, **more}
    headers["content-type"] = "application/offset+octet-stream"
    return client.post("/v1/uploads", content=data, headers=headers)


@pytest.mark.parametrize(("said", "status"), [("true", 422), ("1", 422), ("false", 201), ("maybe", 400)])
def test_a_resumable_upload_may_be_strict(client: httpx.Client, said: str, status: int) -> None:
    data = model_of(f"resumable {said}")
    answer = resumable(client, data, {"filename": b"m.onnx", "strict": said.encode()})
    assert answer.status_code == status, answer.text
    if status == 422:
        refused(answer, 422, "unsound-model")


def test_a_query_that_is_neither(client: httpx.Client) -> None:
    refused(send(client, {"m.onnx": model_of("x")}, strict="maybe"), 400, "invalid-input")
