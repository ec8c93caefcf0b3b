"""Stores by their names in registries, on every way that takes the reference of a store."""

from __future__ import annotations

from urllib.parse import quote

import httpx
import pytest
from tests.server.registries.test_oci import descriptor, push, put_manifest
from tests.support.hub import commit
from tests.support.serve import LiveServer
from tests.support.stores import onnx

from protoslice.client import Client
from protoslice.errors import NotFound

OLD, NEW = onnx(1000, 2000), onnx(1000, 3000)


@pytest.fixture(scope="module", autouse=True)
def repository(client: httpx.Client) -> None:
    """Repository `ann/named` of two commits, a branch at the first; artifact `team/named:v1`."""
    client.post("/api/repos/create", json={"organization": "ann", "name": "named"})
    commit(client, "models/ann/named", {"m.onnx": OLD})
    client.post("/api/models/ann/named/branch/feat%2Fx", json={})
    commit(client, "models/ann/named", {"m.onnx": NEW, "README.md": b"# second"})
    base = "/v2/team/named"
    push(client, OLD, base)
    assert put_manifest(client, "v1", base, layers=[descriptor(OLD, "m.onnx")]).status_code == 201


@pytest.mark.parametrize(
    ("ref", "content"),
    [
        ("ann/named@main", NEW),
        ("ann/named@feat/x", OLD),
        ("ann/named@refs/heads/feat/x", OLD),
        ("team/named:v1", OLD),
        ("team/named@v1", OLD),
        ("ann/named:latest", NEW),
    ],
)
def test_a_store_is_had_by_its_name(client: httpx.Client, ref: str, content: bytes) -> None:
    for spelled in (quote(ref, safe=""), quote(ref, safe="@:")):
        base = f"/v1/stores/{spelled}"
        found = client.get(base)
        store = found.json()["id"]
        assert found.headers["content-location"] == f"/v1/stores/{store}"
        got = client.get(f"{base}/files/m.onnx")
        assert got.content == content
        assert got.headers["content-location"] == f"/v1/stores/{store}/files/m.onnx"
        assert "immutable" not in got.headers["cache-control"]
        assert client.get(f"{base}/tree").json() == client.get(f"/v1/stores/{store}/tree").json()
        assert client.get(f"{base}/pieces").status_code == 200


def test_a_name_follows_its_branch(client: httpx.Client) -> None:
    client.post("/api/repos/create", json={"organization": "ann", "name": "moving"})
    for content in (OLD, NEW):
        commit(client, "models/ann/moving", {"m.onnx": content})
        assert client.get("/v1/stores/ann%2Fmoving@main/files/m.onnx").content == content


@pytest.mark.parametrize(
    "name", ["mlflow-artifacts:/named/models/m/artifacts", "mlflow-artifacts://host:80/named/models/m/artifacts/"]
)
def test_a_folder_of_mlflow_is_a_store_by_its_uri(client: httpx.Client, name: str) -> None:
    base = f"/v1/stores/{quote(name, safe='')}"
    for content in (OLD, NEW):
        client.put("/api/2.0/mlflow-artifacts/artifacts/named/models/m/artifacts/m.onnx", content=content)
        assert client.get(f"{base}/files/m.onnx").content == content
        told = client.get(f"{base}/tensors")
        assert told.headers["content-location"] == f"/v1/stores/{client.get(base).json()['id']}/tensors"


def test_the_client_takes_names(service: LiveServer) -> None:
    with Client(service.url) as client:
        assert client.store("ann/named@main").id == client.store(client.store("ann/named@main").id).id
        assert len(client.merge("team/named:v1")) == len(OLD)
        with pytest.raises(NotFound):
            client.store("ann/nothing@main")


@pytest.mark.parametrize(
    "ref",
    [
        *(f"ann%2Fnamed{revision}" for revision in ("@nothing", ":v9", "@sha256:00")),
        *("nobody%2Fnamed@main", "a%2F..%2Fb@main"),
        *(f"mlflow-artifacts:%2F{folder}" for folder in ("none", "..%2Fx", "%2Fhost")),
    ],
)
def test_names_of_nothing_are_not_found(client: httpx.Client, ref: str) -> None:
    for view in ("", "/tree", "/files/m.onnx"):
        assert client.get(f"/v1/stores/{ref}{view}").status_code in {400, 404, 422}, ref


def test_a_store_is_not_removed_by_a_name(client: httpx.Client) -> None:
    assert client.delete("/v1/stores/ann%2Fnamed@main").status_code == 409
    assert client.get("/v1/stores/ann%2Fnamed@main").status_code == 200
