"""MLflow's artifact proxy over a real socket: the requests of its client, and harmful ones."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.auth.closed import bearer
from tests.support.serve import serve
from tests.support.stores import onnx

from protoslice.server.app import create_app
from protoslice.server.settings import Settings

BASE = "/api/2.0/mlflow-artifacts"
RUN = f"{BASE}/artifacts/7/run/artifacts"


def listed(client: httpx.Client, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get(f"{BASE}/artifacts", params={"path": path}).json()["files"]
    return found


def test_artifacts_are_written_listed_read_and_removed(client: httpx.Client) -> None:
    model = onnx(3, 40_000)
    for name, data in (("model/model.onnx", model), ("model/MLmodel", b"flavors: {}"), ("a b+ü.txt", b"")):
        assert client.put(f"{RUN}/{name}", content=data).json() == {}
    assert listed(client, "7/run/artifacts") == [
        {"path": "model", "is_dir": True},
        {"path": "a b+ü.txt", "is_dir": False, "file_size": "0"},
    ]
    assert {each["path"]: each["file_size"] for each in listed(client, "7/run/artifacts/model")} == {
        "model.onnx": str(len(model)), "MLmodel": "11",
    }  # fmt: skip
    got = client.get(f"{RUN}/model/model.onnx")
    assert got.content == model
    assert client.get(f"/v1/stores/{got.headers['protoslice-store']}").json()["type"] == "onnx.ModelProto"
    assert client.delete(f"{RUN}/model").json() == {}
    assert [each["path"] for each in listed(client, "7/run/artifacts")] == ["a b+ü.txt"]


@pytest.mark.parametrize("size", [3, 100_000], ids=["small", "large"])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a", "a/b"),
        ("a", "a/b/c/d"),
        ("a/b", "a"),
        ("a/b/c/d", "a"),
        ("a/b/c", "a/b"),
        ("../artifacts/x", "../artifacts"),
    ],
)
def test_a_file_is_no_folder(client: httpx.Client, first: str, second: str, size: int) -> None:
    """A run that has both could neither be downloaded nor become a store."""
    run = "/" + f"{first}-{second}-{size}".replace("/", "_") + "/artifacts"
    paths = [os.path.normpath(f"{run}/{name}").lstrip("/") for name in (first, second)]
    assert client.put(f"{BASE}/artifacts/{paths[0]}", content=bytes(size)).status_code == 200
    for _ in range(2):
        told = client.put(f"{BASE}/artifacts/{paths[1]}", content=bytes(size))
        assert (told.status_code, told.json()["error_code"]) == (409, "RESOURCE_CONFLICT"), told.text
        assert min(paths, key=len) in told.json()["message"]
        assert client.put(f"{BASE}/artifacts/{paths[0]}", content=bytes(size)).status_code == 200, "it may be replaced"
    for path in (paths[0] + "0", paths[0] + " b", paths[0] + "-/c", "x" + paths[1]):
        assert client.put(f"{BASE}/artifacts/{path}", content=b"").status_code == 200, path
    assert client.post(f"/v1/drafts/{run.strip('/')}").is_success
    assert client.delete(f"{BASE}/artifacts/{paths[0]}").status_code == 200
    if len(paths[0]) < len(paths[1]):
        assert client.put(f"{BASE}/artifacts/{paths[1]}", content=bytes(size)).status_code == 200


def test_a_download_is_planned_and_read_by_range(client: httpx.Client) -> None:
    for name, data in (("small", b"0123456789"), ("large", bytes(range(256)) * 1000)):
        client.put(f"{RUN}/{name}", content=data)
        plan = client.get(f"{BASE}/presigned/7/run/artifacts/{name}").json()
        assert plan["file_size"] == len(data)
        part = httpx.get(plan["url"], headers={**plan["headers"], "range": "bytes=2-6"})
        assert (part.status_code, part.content) == (206, data[2:7])


def test_a_file_in_parts_is_whole_once_they_are_joined(client: httpx.Client) -> None:
    data = bytes(range(251)) * 400
    wanted = {"path": "C:\\models\\big.bin", "num_parts": 3}
    begun = client.post(f"{BASE}/mpu/create/7/run/artifacts/dir", json=wanted).json()
    sent = []
    for credential in reversed(begun["credentials"]):
        number = credential["part_number"]
        piece = data[(number - 1) * 40_000 : number * 40_000]
        put = httpx.put(credential["url"], content=piece, headers=credential["headers"])
        sent.append({"part_number": number, "etag": put.headers["etag"], "url": credential["url"]})
    done = {"path": "C:\\models\\big.bin", "upload_id": begun["upload_id"], "parts": sent}
    assert client.post(f"{BASE}/mpu/complete/7/run/artifacts/dir", json=done).json() == {}
    assert client.get(f"{RUN}/dir/big.bin").content == data
    assert client.post(f"{BASE}/mpu/abort/7/run/artifacts/dir", json=done).json() == {}


def test_a_folder_becomes_a_store_by_one_call(client: httpx.Client) -> None:
    client.put(f"{RUN}/whole/model.onnx", content=onnx(4, 30_000))
    client.put(f"{RUN}/whole/MLmodel", content=b"flavors: {}")
    made = client.post("/v1/drafts/7/run/artifacts/whole", params={"tag": "whole:1"})
    assert made.status_code == 201
    assert made.json()["root"] == "model.onnx"
    assert client.get("/v1/stores/whole:1/files/MLmodel").content == b"flavors: {}"
    assert client.post("/v1/drafts/7/run/artifacts/whole").status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/artifacts/none", None, 404, "RESOURCE_DOES_NOT_EXIST"),
        ("GET", "/presigned/none", None, 404, "RESOURCE_DOES_NOT_EXIST"),
        ("PUT", "/artifacts/a/%2E%2E/b", b"x", 400, "INVALID_PARAMETER_VALUE"),
        ("GET", "/artifacts?path=../x", None, 400, "INVALID_PARAMETER_VALUE"),
        ("PUT", "/parts/short/x?number=1", b"x", 400, "INVALID_PARAMETER_VALUE"),
        ("POST", "/mpu/create/x", b'{"path":"f","num_parts":10001}', 400, "INVALID_PARAMETER_VALUE"),
        ("POST", "/mpu/complete/x", b'{"path":"f","upload_id":"%s","parts":[]}' % (b"0" * 32), 413, "BAD_REQUEST"),
        ("POST", "/mpu/complete/x", b"{", 400, "INVALID_PARAMETER_VALUE"),
    ],
)
def test_failures_have_the_form_of_mlflow(
    client: httpx.Client, method: str, path: str, body: bytes | None, status: int, code: str
) -> None:
    told = client.request(method, BASE + path, content=body, headers={"content-type": "application/json"})
    assert (told.status_code, told.json()["error_code"]) == (status, code), told.text
    assert told.json()["message"]


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[tuple[httpx.Client, dict[str, str]]]:
    """Return a client of a service that requires tokens, and the headers of a caller with all rights."""
    settings = Settings(storage=tmp_path.as_uri(), space_watermark_bytes=0, auth="tokens")
    app = create_app(settings)
    with serve(app=app) as live, httpx.Client(base_url=live.url) as client:
        assert app.services.initial_admin_token is not None
        yield client, bearer(app.services.initial_admin_token.text)


def test_a_planned_download_is_a_signed_url_and_tells_no_credential(
    closed: tuple[httpx.Client, dict[str, str]],
) -> None:
    client, headers = closed
    assert client.put(f"{RUN}/f", content=b"secret").json()["error_code"] == "UNAUTHENTICATED"
    for name in ("f", "a%20b%C3%BC"):
        assert client.put(f"{RUN}/{name}", content=b"secret", headers=headers).status_code == 200
        told = client.get(f"{BASE}/presigned/7/run/artifacts/{name}", headers=headers)
        assert headers["authorization"].partition(" ")[2] not in told.text
        plan = told.json()
        assert plan["headers"] == {}
        got = client.get(plan["url"], headers={"range": "bytes=1-3"})
        assert (got.status_code, got.content) == (206, b"ecr"), got.text
        assert "private" in got.headers["cache-control"]
        assert client.get(plan["url"].replace(f"/{name}?", "/g?")).status_code == 401
        assert client.put(plan["url"], content=b"x").status_code == 401


def test_parts_go_to_signed_urls_each_for_its_own_number(closed: tuple[httpx.Client, dict[str, str]]) -> None:
    client, headers = closed
    told = client.post(f"{BASE}/mpu/create/run", json={"path": "f", "num_parts": 2}, headers=headers)
    assert headers["authorization"].partition(" ")[2] not in told.text
    begun, sent = told.json(), []
    for part in begun["credentials"]:
        assert part["headers"] == {}
        number = part["part_number"]
        changed = part["url"].replace(f"number={number}", "number=7")
        assert client.put(changed, content=b"x").status_code == 401
        assert client.get(part["url"]).status_code in {401, 405}
        put = client.put(part["url"], content=b"part%d" % number)
        assert put.status_code == 200, put.text
        sent.append({"part_number": number, "etag": put.headers["etag"]})
    done = {"path": "f", "upload_id": begun["upload_id"], "parts": sent}
    assert client.post(f"{BASE}/mpu/complete/run", json=done).status_code == 401
    assert client.post(f"{BASE}/mpu/complete/run", json=done, headers=headers).status_code == 200
    assert client.get(f"{BASE}/artifacts/run/f", headers=headers).content == b"part1part2"


def test_whoever_can_sign_nothing_gets_its_own_credential_back(client: httpx.Client) -> None:
    client.put(f"{RUN}/f", content=b"open")
    headers = {"authorization": "Basic Z2F0ZTpvZiBhIHByb3h5"}
    plan = client.get(f"{BASE}/presigned/7/run/artifacts/f", headers=headers).json()
    assert {name.lower(): value for name, value in plan["headers"].items()} == headers


def test_a_whole_run_is_removed_by_a_path_that_ends_with_a_slash(client: httpx.Client) -> None:
    run = f"{BASE}/artifacts/8/run/artifacts"
    for name in ("a", "sub/b"):
        assert client.put(f"{run}/{name}", content=b"x").status_code == 200
    assert client.delete(f"{run}/").status_code == 200
    assert client.get(f"{run}/a").status_code == 404
    assert client.get(f"{BASE}/artifacts", params={"path": "8/run/artifacts"}).json() == {"files": []}
    assert client.delete(f"{run}/").status_code == 200, "a run without artifacts, and an answer that was lost"
    assert client.delete(f"{BASE}/artifacts/").status_code == 400, "a slash alone names no run"


def test_a_slash_at_the_end_of_any_path_changes_nothing(client: httpx.Client) -> None:
    run = f"{BASE}/artifacts/8/slash/artifacts"
    assert client.put(f"{run}/f", content=b"x").status_code == 200
    assert client.get(f"{run}/f/").content == b"x"
    assert client.get(f"{BASE}/presigned/8/slash/artifacts/f/").json()["file_size"] == 1
    plan = client.post(f"{BASE}/mpu/create/8/slash/artifacts/", json={"path": "/tmp/g", "num_parts": 1}).json()
    part = plan["credentials"][0]
    etag = client.put(part["url"], content=b"parts").headers["etag"]
    end = {"path": "/tmp/g", "upload_id": plan["upload_id"], "parts": [{"part_number": 1, "etag": etag}]}
    assert client.post(f"{BASE}/mpu/complete/8/slash/artifacts/", json=end).status_code == 200
    assert client.get(f"{run}/g").content == b"parts"
    assert client.post(f"{BASE}/mpu/abort/8/slash/artifacts/", json={}).status_code == 200
