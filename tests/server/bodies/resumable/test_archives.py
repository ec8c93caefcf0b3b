"""Uploaded archives: stores made of the files in them, which one upload brings."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping

import httpx
import pytest
from tests.support.stores import onnx
from tests.support.tus import TusClient

pytestmark = pytest.mark.contract

FILES = {"model.onnx": onnx(300_000), "empty": b""} | {f"{'deep/' * 30}{n}.txt": b"%d" % n for n in range(250)}


def archive(files: Mapping[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for path, data in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return made.getvalue()


def assembled(tus: TusClient, data: bytes, **said: object) -> httpx.Response:
    part = tus.url(len(data), upload_concat="partial")
    half = len(data) // 2
    for at, piece in ((0, data[:half]), (half, data[half:])):
        assert tus.patch(part, at, piece).status_code == 204
    return tus.http.post("/v1/stores/assemble", json={"archive": part, **said})


def test_the_files_of_an_archive_become_a_store(tus: TusClient) -> None:
    made = assembled(tus, archive(FILES), tags=["archived:1"])
    assert made.status_code == 201, made.text
    assert {each["path"]: each["size"] for each in made.json()["files"]} == {k: len(v) for k, v in FILES.items()}
    assert (made.json()["root"], made.json()["tags"]) == ("model.onnx", ["archived:1"])
    for path in ("model.onnx", f"{'deep/' * 30}7.txt", "empty"):
        assert tus.http.get(f"/v1/stores/archived:1/files/{path}").content == FILES[path]
    again = assembled(tus, archive(FILES))
    assert (again.status_code, again.json()["id"]) == (200, made.json()["id"])


@pytest.mark.parametrize("data", [b"no archive at all" * 100, archive(FILES)[:300_000], archive({"../x": b"1"})])
def test_an_archive_that_is_none_makes_no_store(tus: TusClient, data: bytes) -> None:
    assert assembled(tus, data, tags=["none:1"]).status_code in {400, 422}
    assert tus.http.get("/v1/stores/none:1").status_code == 404


def test_an_archive_stands_alone(tus: TusClient) -> None:
    for more in ({"recipe": "x"}, {"uploads": {"a": "x"}}, {"sha256": {"a": "0" * 64}}):
        assert tus.http.post("/v1/stores/assemble", json={"archive": "x", **more}).status_code == 400
