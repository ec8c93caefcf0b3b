"""One repository under one name, for clients of OCI, clients of the hub, and as a store."""

from __future__ import annotations

import httpx
import pytest
from tests.server.registries.test_oci import descriptor, digest_of, push, put_manifest
from tests.support.hub import commit
from tests.support.stores import onnx

OLD, NEW = onnx(1000, 2000), onnx(1000, 3000)
NAME = "team/resnet-one"
BASE = f"/v2/{NAME}"


@pytest.fixture(scope="module", autouse=True)
def pushed(client: httpx.Client) -> dict[str, str]:
    """Tags `v1` and `latest` of an artifact, which no client of the hub created; their stores."""
    stores = {}
    for tag, model in (("v1", OLD), ("latest", NEW)):
        push(client, model, BASE)
        stores[tag] = put_manifest(client, tag, BASE, layers=[descriptor(model, "net/m.onnx")]).headers[
            "protoslice-store"
        ]
    return stores


def resolved(client: httpx.Client, revision: str, name: str = NAME) -> httpx.Response:
    return client.get(f"/{name}/resolve/{revision}/net/m.onnx")


def test_a_pushed_tag_is_a_revision(client: httpx.Client, pushed: dict[str, str]) -> None:
    told = client.get(f"/api/models/{NAME}/revision/v1").json()
    assert told["sha"] == pushed["v1"][:40]
    assert [each["rfilename"] for each in told["siblings"]] == ["net/m.onnx"]
    assert told["lastModified"] > "2020"
    for revision in ("v1", "refs%2Ftags%2Fv1", told["sha"], pushed["v1"]):
        assert resolved(client, revision).content == OLD, revision
    assert client.get(f"/api/models/{NAME}/tree/v1?recursive=true").json()[-1]["lfs"]["size"] == len(OLD)
    assert [each["id"] for each in client.get(f"/api/models/{NAME}/commits/v1").json()] == [told["sha"]]


def test_main_is_the_latest_until_somebody_commits(client: httpx.Client, pushed: dict[str, str]) -> None:
    base = "/v2/team/both"
    push(client, OLD, base)
    assert put_manifest(client, "latest", base, layers=[descriptor(OLD, "net/m.onnx")]).status_code == 201
    assert resolved(client, "main", "team/both").content == OLD
    client.post("/api/repos/create", json={"organization": "team", "name": "both"})
    assert resolved(client, "main", "team/both").content == OLD
    assert commit(client, "models/team/both", {"net/m.onnx": NEW}).status_code == 200
    assert resolved(client, "main", "team/both").content == NEW
    assert resolved(client, "latest", "team/both").content == OLD
    refs = client.get("/api/models/team/both/refs").json()
    assert ([each["name"] for each in refs["branches"]], [each["name"] for each in refs["tags"]]) == (
        ["main"],
        ["latest"],
    )


def test_refs_are_tags_and_main(client: httpx.Client, pushed: dict[str, str]) -> None:
    refs = client.get(f"/api/models/{NAME}/refs").json()
    assert [(each["name"], each["targetCommit"]) for each in refs["tags"]] == [
        ("latest", pushed["latest"][:40]),
        ("v1", pushed["v1"][:40]),
    ]
    assert [(each["name"], each["targetCommit"]) for each in refs["branches"]] == [("main", pushed["latest"][:40])]


@pytest.mark.parametrize(("revision", "content"), [("v1", OLD), ("main", NEW), ("latest", NEW)])
def test_a_pushed_tag_names_a_store(client: httpx.Client, revision: str, content: bytes) -> None:
    name = NAME.replace("/", "%2F")
    assert client.get(f"/v1/stores/{name}@{revision}/files/net/m.onnx").content == content


def test_what_nobody_pushed_is_not_there(client: httpx.Client, pushed: dict[str, str]) -> None:
    """A revision, an id of another repository's store, a name, and a name that OCI does not know."""
    base, other = "/v2/team/other", onnx(1000, 4000)
    push(client, other, base)
    foreign = put_manifest(client, "v1", base, layers=[descriptor(other, "net/m.onnx")]).headers["protoslice-store"]
    assert resolved(client, foreign[:40], "team/other").content == other
    mixed = pushed["v1"][:40] + foreign[40:]
    for revision in ("v9", foreign[:40], foreign, mixed, "0" * 40, "sha256:00"):
        told = resolved(client, revision)
        assert (told.status_code, told.headers["x-error-code"]) == (404, "RevisionNotFound"), revision
    for name in ("team/nothing", "Team/Resnet"):
        told = resolved(client, "v1", name)
        assert (told.status_code, told.headers["x-error-code"]) == (404, "RepoNotFound"), name


def test_a_manifest_that_was_removed_is_no_commit(client: httpx.Client) -> None:
    base = "/v2/team/gone"
    push(client, OLD, base)
    put = put_manifest(client, "v1", base, layers=[descriptor(OLD, "net/m.onnx")])
    sha = put.headers["protoslice-store"][:40]
    put_manifest(client, "v2", base, layers=[descriptor(OLD, "other")])
    assert resolved(client, sha, "team/gone").status_code == 200
    client.delete(f"{base}/manifests/{put.headers['docker-content-digest']}")
    assert resolved(client, sha, "team/gone").status_code == 404
    assert resolved(client, "v1", "team/gone").status_code == 404


def test_a_commit_needs_a_repository_of_the_hub(client: httpx.Client) -> None:
    assert commit(client, f"models/{NAME}", {"README.md": b"#"}).status_code == 404


def test_a_commit_is_pulled_as_an_artifact(client: httpx.Client) -> None:
    client.post("/api/repos/create", json={"organization": "ann", "name": "exported"})
    assert commit(client, "models/ann/exported", {"net/m.onnx": OLD, "README.md": b"# old"}).status_code == 200
    client.post("/api/models/ann/exported/tag/main", json={"tag": "v1"})
    base = "/v2/ann/exported"
    found = {ref: client.get(f"{base}/manifests/{ref}") for ref in ("v1", "main", "latest")}
    digest = found["v1"].headers["docker-content-digest"]
    assert {(each.status_code, each.headers["docker-content-digest"]) for each in found.values()} == {(200, digest)}
    assert client.get(f"{base}/manifests/{digest}").content == found["v1"].content
    assert digest_of(found["v1"].content) == digest
    manifest = found["v1"].json()
    titles = {each["annotations"]["org.opencontainers.image.title"]: each["digest"] for each in manifest["layers"]}
    assert list(titles) == ["README.md", "net/m.onnx"]
    assert client.get(f"{base}/blobs/{titles['net/m.onnx']}").content == OLD
    assert client.get(f"{base}/blobs/{titles['README.md']}").content == b"# old"
    assert client.get(f"{base}/blobs/{manifest['config']['digest']}").content == b"{}"
    assert client.get(f"{base}/tags/list").json()["tags"] == ["main", "v1"]
    assert client.get(f"/v1/stores/ann%2Fexported@{digest}/files/README.md").content == b"# old"

    assert commit(client, "models/ann/exported", {"README.md": b"# new"}).status_code == 200
    moved = client.get(f"{base}/manifests/main")
    assert moved.headers["docker-content-digest"] != digest
    assert client.get(f"{base}/manifests/v1").headers["docker-content-digest"] == digest


def test_a_tag_that_was_pushed_goes_before_a_branch_of_its_name(client: httpx.Client) -> None:
    client.post("/api/repos/create", json={"organization": "ann", "name": "first"})
    commit(client, "models/ann/first", {"net/m.onnx": OLD})
    base = "/v2/ann/first"
    push(client, NEW, base)
    put = put_manifest(client, "main", base, layers=[descriptor(NEW, "net/m.onnx")])
    told = client.get(f"{base}/manifests/main").headers["docker-content-digest"]
    assert told == put.headers["docker-content-digest"]
    assert resolved(client, "main", "ann/first").content == OLD


def test_tags_of_both_come_in_pages_by_name(client: httpx.Client) -> None:
    client.post("/api/repos/create", json={"organization": "ann", "name": "pages"})
    commit(client, "models/ann/pages", {"net/m.onnx": OLD})
    base = "/v2/ann/pages"
    push(client, NEW, base)
    for tag in ("a", "main", "z", "Z", "_b"):
        put_manifest(client, tag, base, layers=[descriptor(NEW, "net/m.onnx")])
    for tag in ("b", "y", "Y"):
        client.post("/api/models/ann/pages/tag/main", json={"tag": tag})
    for size in (1, 2, 3, 8, 9):
        names, url = list[str](), f"{base}/tags/list?n={size}"
        while url:
            page = client.get(url)
            assert len(page.json()["tags"]) <= size
            names += page.json()["tags"]
            url = page.links.get("next", {}).get("url", "")
        assert sorted(names) == ["Y", "Z", "_b", "a", "b", "main", "y", "z"], size


def test_a_repository_without_commits_has_no_manifest(client: httpx.Client) -> None:
    client.post("/api/repos/create", json={"organization": "ann", "name": "empty"})
    for ref in ("main", "latest", "v1", "0" * 40, "sha256:" + "0" * 64):
        assert client.get(f"/v2/ann/empty/manifests/{ref}").status_code == 404
    assert client.get("/v2/ann/empty/tags/list").json()["tags"] == []
