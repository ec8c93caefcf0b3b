"""Tags of one request are at most 64, for each way to make a store; more are refused beforehand."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.problems import assert_problem
from tests.support.stores import onnx
from tests.support.tus import BODY, base64

from protoslice.recipes import MEDIA_TYPE, RecipeWriter

MOST = 64
MODEL = onnx(100)
TUS = {"tus-resumable": "1.0.0", "upload-length": str(len(MODEL))}

Make = Callable[[httpx.Client, str, list[str]], httpx.Response]


def query(tags: list[str]) -> str:
    return "&".join(["filename=model.onnx", *(f"tag={tag}" for tag in tags)])


def raw(client: httpx.Client, uri: str, tags: list[str]) -> httpx.Response:
    return client.put(f"/v1/stores?{query(tags)}", content=MODEL)


def form(client: httpx.Client, uri: str, tags: list[str]) -> httpx.Response:
    return client.post(f"/v1/stores?{query(tags)}", files={"file": ("model.onnx", MODEL)})


def tar(client: httpx.Client, uri: str, tags: list[str]) -> httpx.Response:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        head = tarfile.TarInfo("model.onnx")
        head.size = len(MODEL)
        archive.addfile(head, io.BytesIO(MODEL))
    kind = {"content-type": "application/x-tar"}
    return client.post(f"/v1/stores?{query(tags)}", content=out.getvalue(), headers=kind)


def recipe(client: httpx.Client, uri: str, tags: list[str]) -> httpx.Response:
    writer = RecipeWriter()
    lines = writer.file("model.onnx") + writer.literal(len(MODEL)) + MODEL
    lines += writer.end(len(MODEL), hashlib.sha256(MODEL).hexdigest())
    kind = {"content-type": MEDIA_TYPE}
    return client.post(f"/v1/stores?{query(tags)}", content=lines + writer.done(), headers=kind)


def registered(client: httpx.Client, uri: str, tags: list[str]) -> httpx.Response:
    return client.post("/v1/stores/register", json={"files": {"model.onnx": uri}, "tags": tags})


def told(client: httpx.Client, uri: str, tags: list[str]) -> httpx.Response:
    said = f"filename {base64(b'model.onnx')},tag {base64(' '.join(tags).encode())}"
    return whole(client, client.post("/v1/uploads", headers=TUS | {"upload-metadata": said}))


def asked(client: httpx.Client, uri: str, tags: list[str]) -> httpx.Response:
    return whole(client, client.post(f"/v1/uploads?{query(tags)}", headers=TUS))


def assembled(client: httpx.Client, uri: str, tags: list[str]) -> httpx.Response:
    part = whole(client, client.post("/v1/uploads", headers=TUS | {"upload-concat": "partial"}))
    return client.post("/v1/stores/assemble", json={"uploads": {"model.onnx": part.headers["location"]}, "tags": tags})


def whole(client: httpx.Client, begun: httpx.Response) -> httpx.Response:
    """The answer to the upload's only PATCH, if it could be begun."""
    if begun.status_code != 201:
        return begun
    url = begun.headers["location"]
    sent = client.patch(url, content=MODEL, headers=TUS | {"upload-offset": "0", "content-type": BODY})
    assert sent.status_code == 204, sent.text
    sent.headers["location"] = url
    return sent


@pytest.mark.parametrize(
    "make", [raw, form, tar, recipe, registered, told, asked, assembled], ids=lambda make: make.__name__
)
def test_a_request_sets_only_so_many(serving: Any, tmp_path: Path, make: Make) -> None:
    (tmp_path / "model.onnx").write_bytes(MODEL)
    uri = (tmp_path / "model.onnx").as_uri()
    with serving(register_allow=(tmp_path.as_uri(),)) as live, httpx.Client(base_url=live.url) as client:
        refused = make(client, uri, [f"t:{n}" for n in range(MOST + 1)])
        assert refused.status_code in {400, 422}, refused.text
        assert_problem(refused.status_code, refused.headers, refused.content, expected=refused.status_code)
        assert str(MOST) in refused.text
        assert client.get("/v1/stores").json()["items"] == client.get("/v1/tags").json()["items"] == []
        tags = [f"t:{n}" for n in range(MOST)]
        assert make(client, uri, tags).is_success
        (store,) = client.get("/v1/stores").json()["items"]
        assert store["tags"] == sorted(tags)
