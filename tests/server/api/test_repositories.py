"""Lists of repositories: of every protocol, by pages, at a cost that depends on the page alone."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.server.registries.test_oci import descriptor, push, put_manifest
from tests.support.hub import commit
from tests.support.serve import LiveServer
from tests.support.stores import onnx

from protoslice.client import Client
from protoslice.errors import NotFound

OLD, NEW = onnx(1000, 2000), onnx(1000, 3000)
RUN = "listed/7/models/m-1/artifacts"


@pytest.fixture(scope="module", autouse=True)
def repositories(client: httpx.Client) -> None:
    """Repositories of the hub, one empty and one with a tag of OCI; two of OCI; two folders of MLflow's."""
    for name in ("bare", "both"):
        client.post("/api/repos/create", json={"organization": "listed", "name": name})
    commit(client, "models/listed/both", {"m.onnx": OLD})
    client.post("/api/models/listed/both/tag/main", json={"tag": "v1"})
    commit(client, "models/listed/both", {"m.onnx": NEW, "README.md": b"# second"})
    for name, tags in (("listed/both", ["pushed"]), ("listed/img", ["1", "latest", "0"]), ("listed/img-2", ["a", "b"])):
        push(client, OLD, f"/v2/{name}")
        for tag in tags:
            put_manifest(client, tag, f"/v2/{name}", layers=[descriptor(OLD, f"{tag}/m.onnx")])
    for name in ("m.onnx", "deeper/a.txt", "deeper/b.txt"):
        client.put(f"/api/2.0/mlflow-artifacts/artifacts/{RUN}/{name}", content=OLD)
    client.put("/api/2.0/mlflow-artifacts/artifacts/listed/plain/a.txt", content=b"x")


def listed(client: httpx.Client, path: str = "", **query: Any) -> list[dict[str, Any]]:
    """Items of all pages."""
    found, cursor = list[dict[str, Any]](), ""
    while True:
        told = client.get(f"/v1/repositories{path}", params={**query, **({"cursor": cursor} if cursor else {})}).json()
        found += told["items"]
        if told["next"] is None:
            return found
        cursor = told["next"]


NAMES = [f"listed/{name}" for name in ("bare", "both", "img", "img-2")]
NAMES += [f"mlflow-artifacts:/{folder}" for folder in (RUN, "listed/plain")]


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_every_repository_is_listed_once(client: httpx.Client, limit: int) -> None:
    assert [each["name"] for each in listed(client, limit=limit)] == NAMES


def test_a_repository_tells_of_its_head(client: httpx.Client) -> None:
    bare, both, image, second, run, _ = listed(client)
    assert (bare["protocol"], bare["ref"], bare["store"], bare["files"]) == ("hub", None, None, None)
    head = client.get("/v1/stores/listed%2Fboth@main").json()
    assert (both["protocol"], both["ref"], both["store"], both["type"]) == (
        "hub", "listed/both@main", head["id"], "onnx.ModelProto",
    )  # fmt: skip
    assert (both["size"], both["files"]) == (len(NEW) + 8, 2)
    assert (image["protocol"], image["ref"], image["files"]) == ("oci", "listed/img:latest", 1)
    assert second["ref"] == "listed/img-2:b", "the tag set last, where there is no latest"
    assert (run["protocol"], run["ref"], run["store"]) == ("mlflow", f"mlflow-artifacts:/{RUN}", None)
    made = client.get(f"/v1/stores/{run['ref'].replace('/', '%2F')}").json()
    asked = listed(client, prefix=run["name"])[0]
    assert (asked["store"], asked["type"], asked["files"]) == (made["id"], "onnx.ModelProto", 3)


@pytest.mark.parametrize(
    ("prefix", "names"),
    [
        ("listed/b", NAMES[:2]),
        ("listed/img-", NAMES[3:4]),
        ("mlflow-artifacts:/listed/7/mod", NAMES[4:5]),
        ("mlflow", NAMES[4:]),
        ("LISTED", []),
        ("<ü>", []),
        ("x" * 300, []),
    ],
)
def test_repositories_are_found_by_the_beginning_of_their_names(
    client: httpx.Client, prefix: str, names: list[str]
) -> None:
    for limit in (1, 50):
        assert [each["name"] for each in listed(client, prefix=prefix, limit=limit)] == names


def test_branches_and_tags_are_versions(client: httpx.Client) -> None:
    found = listed(client, "/listed/both", limit=1)
    assert [(each["name"], each["kind"], each["ref"]) for each in found] == [
        ("main", "branch", "listed/both@main"),
        ("v1", "tag", "listed/both@v1"),
        ("pushed", "tag", "listed/both:pushed"),
    ]
    for each in found:
        assert client.get(f"/v1/stores/{each['ref'].replace('/', '%2F')}").json()["id"] == each["store"]
    bare = client.get("/v1/repositories/listed/bare").json()
    assert (bare["items"], bare["next"].partition(" ")[0]) == ([], "oci")
    assert client.get("/v1/repositories/listed/none").status_code == 404


@pytest.mark.parametrize("cursor", ["else x", "hub " + "x" * 2000, "mlflow ../x", "hub a/b"])
def test_a_cursor_of_another_call_is_refused(client: httpx.Client, cursor: str) -> None:
    for path in ("/v1/repositories", "/v1/repositories/listed/both"):
        assert client.get(path, params={"cursor": cursor}).status_code in {200, 400}
    assert client.get("/v1/repositories", params={"cursor": "else x"}).status_code == 400


def test_the_client_lists_them(service: LiveServer) -> None:
    with Client(service.url) as client:
        assert [each.name for each in client.repositories("listed/")] == NAMES[:4]
        assert [each.ref for each in client.versions("listed/img")] == [
            f"listed/img:{tag}" for tag in ("0", "1", "latest")
        ]
        with pytest.raises(NotFound):
            list(client.versions("listed/none"))
