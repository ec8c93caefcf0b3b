"""One repository under one name, for OCI clients, hub clients, and as a store."""

from __future__ import annotations

import json

import httpx
import pytest
from tests.server.auth.closed import bearer, closed_service, token_for
from tests.server.auth.test_quotas import entries
from tests.server.registries.test_oci import MANIFEST, descriptor, digest_of, push, put_manifest
from tests.support.hub import commit
from tests.support.serve import ask
from tests.support.stores import onnx

from protoslice.server.auth.permissions import Scope

OLD, NEW = onnx(1000, 2000), onnx(1000, 3000)
NAME = "team/resnet-one"
BASE = f"/v2/{NAME}"


@pytest.fixture(scope="module", autouse=True)
def pushed(client: httpx.Client) -> dict[str, str]:
    """Push an artifact that no hub client created, with the tags `v1` and `latest`; return the stores."""
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
    """The missing things are a revision, another repository's store, a name, and a name that is invalid for OCI."""
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


def pushed_store(client: httpx.Client, name: str, model: bytes, tag: str = "v1") -> tuple[str, str]:
    """Push a model; return the store and the digest of its manifest."""
    base = f"/v2/{name}"
    push(client, model, base)
    put = put_manifest(client, tag, base, layers=[descriptor(model, "m.onnx")])
    return put.headers["protoslice-store"], put.headers["docker-content-digest"]


def is_there(client: httpx.Client, store: str) -> bool:
    return client.get(f"/v1/stores/{store}").status_code == 200


def removed(client: httpx.Client, name: str) -> int:
    return client.request("DELETE", "/api/repos/delete", json={"name": name}).status_code


def test_a_store_goes_with_its_last_manifest_and_can_be_restored(client: httpx.Client) -> None:
    model = onnx(1000, 5001)
    store, digest = pushed_store(client, "gone/one", model)
    assert pushed_store(client, "gone/two", model) == (store, digest)
    mounted = client.post(f"/v2/gone/three/blobs/uploads/?mount={digest_of(model)}&from=gone/one")
    assert mounted.status_code == 201
    shared = put_manifest(client, "v1", "/v2/gone/three", layers=[descriptor(model, "shared.onnx")])
    assert client.delete("/v2/gone/one/manifests/v1").status_code == 202
    assert client.delete(f"/v2/gone/one/manifests/{digest}").status_code == 202
    assert is_there(client, store), "another repository names it"
    assert client.delete(f"/v2/gone/two/manifests/{digest}").status_code == 202
    assert not is_there(client, store)
    assert is_there(client, shared.headers["protoslice-store"])
    assert client.get(f"/v2/gone/three/blobs/{digest_of(model)}").content == model
    assert client.post(f"/v1/stores/{store}/restore").status_code == 200
    assert client.get(f"/v1/stores/{store}/files/m.onnx").content == model
    client.delete(f"/v1/stores/{store}")
    assert client.head(f"/v2/gone/one/blobs/{digest_of(model)}").status_code == 404, "clients send it again"
    assert pushed_store(client, "gone/one", model)[0] == store


@pytest.mark.parametrize("by", ["tag", "upload before", "upload after", "commit"])
def test_a_store_of_a_manifest_stays_by_another_name(client: httpx.Client, by: str) -> None:
    model = f"stays by {by}".encode()

    def upload() -> None:
        client.put("/v1/stores?filename=m.onnx", content=model).raise_for_status()

    if by == "upload before":
        upload()
    store, digest = pushed_store(client, "stays/one", model)
    if by == "tag":
        client.put("/v1/tags/stays", json={"store": store}).raise_for_status()
    elif by == "upload after":
        upload()
    elif by == "commit":
        client.post("/api/repos/create", json={"organization": "stays", "name": "committed"})
        assert commit(client, "models/stays/committed", {"m.onnx": model}).status_code == 200
    assert client.delete(f"/v2/stays/one/manifests/{digest}").status_code == 202
    assert is_there(client, store)
    client.delete("/v1/tags/stays")


def test_the_artifacts_of_a_name_go_with_its_repository(client: httpx.Client) -> None:
    client.post("/api/repos/create", json={"organization": "gone", "name": "both"})
    assert commit(client, "models/gone/both", {"m.onnx": b"committed"}).status_code == 200
    committed = client.get("/v2/gone/both/manifests/main").headers["protoslice-store"]
    first, _ = pushed_store(client, "gone/both", b"pushed with a commit")
    only, _ = pushed_store(client, "gone/only", b"pushed alone")
    assert {is_there(client, each) for each in (committed, first, only)} == {True}
    assert removed(client, "gone/Only") == 404, "its name is in lower case"
    assert (removed(client, "gone/both"), removed(client, "gone/only")) == (200, 200)
    assert {is_there(client, each) for each in (committed, first, only)} == {False}
    assert client.get("/v2/gone/both/manifests/v1").status_code == 404
    assert client.get("/api/models/gone/only").status_code == 404
    assert removed(client, "gone/only") == 404


def test_a_squashed_commit_that_was_pulled_as_an_artifact_goes(client: httpx.Client) -> None:
    client.post("/api/repos/create", json={"organization": "gone", "name": "squashed"})
    stores = []
    for text in (b"first of two", b"second of two"):
        assert commit(client, "models/gone/squashed", {"m.onnx": text}).status_code == 200
        stores.append(client.get("/v2/gone/squashed/manifests/main").headers["protoslice-store"])
    pulled = client.get("/v2/gone/squashed/manifests/main")
    digest = pulled.headers["docker-content-digest"]
    assert client.post("/api/models/gone/squashed/super-squash/main", json={}).status_code == 200
    assert [is_there(client, each) for each in stores] == [False, True]
    kind = {"content-type": pulled.headers["content-type"]}
    url = f"/v2/gone/squashed/manifests/{digest}"
    made = client.put(url, content=pulled.content, headers=kind).headers["protoslice-store"]
    commit(client, "models/gone/squashed", {"m.onnx": b"third"})
    client.post("/api/models/gone/squashed/super-squash/main", json={}).raise_for_status()
    assert is_there(client, made), "that of a manifest that was pushed, with its config"
    assert removed(client, "gone/squashed") == 200
    assert not is_there(client, made)


@pytest.mark.anyio
async def test_a_removed_repository_counts_no_more() -> None:
    async with closed_service() as app:
        caller = bearer(await token_for(app, *Scope))

        async def push_to(name: str, query: str) -> None:
            base = f"/spaces/own/v2/{name}"
            url = f"{base}/blobs/uploads/?{query}={digest_of(OLD)}"
            assert (await ask(app, "POST", url, OLD if query == "digest" else b"", caller)).status == 201
            body = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "layers": [descriptor(OLD)]}).encode()
            for ref in ("v1", digest_of(body)):
                kind = {"content-type": MANIFEST}
                assert (await ask(app, "PUT", f"{base}/manifests/{ref}", body, caller | kind)).status == 201

        async def counted() -> tuple[int, ...]:
            sql = "SELECT sum(stored_bytes), sum(stores), sum(logical_bytes) FROM usage WHERE space = 'own'"
            assert app.services.opened is not None
            there = await app.services.opened.database.read(lambda tx: tx.all(sql)[0])
            one_by_one, together = await entries(app)
            assert one_by_one == together
            return (*map(int, there), together)

        await push_to("a/x", "digest")
        before = await counted()
        await push_to("a/y", "from=a%2Fx&mount")
        assert all(each > one for each, one in zip((await counted())[::3], before[::3], strict=True))
        body, path = json.dumps({"name": "a/y"}).encode(), "/spaces/own/api/repos/delete"
        kind = {"content-type": "application/json"}
        assert (await ask(app, "DELETE", path, body, caller | kind)).status == 200
        assert await counted() == before


def test_a_name_in_another_case_is_one_repository(client: httpx.Client) -> None:
    client.post("/api/repos/create", json={"organization": "kim", "name": "Case"})
    assert commit(client, "models/kim/Case", {"net/m.onnx": OLD}).status_code == 200
    committed = client.get("/v2/kim/case/manifests/main")
    assert committed.status_code == 200
    store, digest = pushed_store(client, "kim/case", NEW)
    assert [each["id"] for each in client.get("/api/models?author=kim").json()] == ["kim/Case"]
    listed = client.get("/v1/repositories?prefix=kim/").json()["items"]
    assert [each["name"] for each in listed] == ["kim/Case"]
    assert client.get("/kim/Case/resolve/v1/m.onnx").content == NEW
    assert [each["name"] for each in client.get("/api/models/kim/Case/refs").json()["tags"]] == ["v1"]
    assert client.get("/kim/case/resolve/v1/m.onnx").headers["location"].startswith("/kim/Case/")
    assert client.get("/v2/kim/case/tags/list").json()["tags"] == ["main", "v1"]
    for name in ("kim/Case:v1", "kim/case:v1", "KIM/CASE:v1", "kim/case@v1", f"KIM/case@{digest}"):
        assert client.get(f"/v1/stores/{name.replace('/', '%2F')}").json()["id"] == store, name
    for name in ("kim/case:main", "KIM/case@main"):
        found = client.get(f"/v1/stores/{name.replace('/', '%2F')}").json()["id"]
        assert found == committed.headers["protoslice-store"], name
    for name in ("kim/Case", "kim/case"):
        first = client.get(f"/v1/repositories/{name}").json()
        second = client.get(f"/v1/repositories/{name}?cursor={first['next']}").json()
        assert [each["ref"] for each in first["items"] + second["items"]] == ["kim/Case@main", "kim/Case:v1"]


def test_artifacts_alone_are_found_in_another_case(client: httpx.Client) -> None:
    pushed_store(client, "kim/alone", OLD)
    answer = client.get("/KIM/Alone/resolve/v1/m.onnx")
    assert (answer.status_code, answer.headers["location"]) == (307, "/kim/alone/resolve/v1/m.onnx")
    client.post("/api/repos/create", json={"organization": "Kim", "name": "Alone"})
    assert client.get("/Kim/Alone/resolve/v1/m.onnx").content == OLD
    assert [each["id"] for each in client.get("/api/models?author=Kim").json()] == ["Kim/Alone"]


def test_artifacts_move_with_their_repository_and_are_read_by_its_former_name(client: httpx.Client) -> None:
    def move(start: str, end: str) -> int:
        return client.post("/api/repos/move", json={"fromRepo": start, "toRepo": end}).status_code

    client.post("/api/repos/create", json={"organization": "kim", "name": "Before"})
    commit(client, "models/kim/Before", {"net/m.onnx": OLD})
    _, digest = pushed_store(client, "kim/before", NEW)
    pushed_store(client, "kim/taken", OLD)
    assert move("kim/Before", "kim/Taken") == 409, "it has artifacts too"
    assert move("kim/Before", "kim/After") == 200
    assert client.get("/kim/After/resolve/v1/m.onnx").content == NEW
    for name in ("kim/before", "kim/after"):
        base = f"/v2/{name}"
        assert client.get(f"{base}/manifests/v1").headers["docker-content-digest"] == digest
        assert client.get(f"{base}/blobs/{digest_of(NEW)}").content == NEW
        committed = client.get(f"{base}/manifests/main")
        assert client.get(f"{base}/manifests/{committed.headers['docker-content-digest']}").status_code == 200
        assert client.get(f"{base}/blobs/{digest_of(OLD)}").content == OLD
        assert client.get(f"/v1/stores/{name.replace('/', '%2F')}:v1").status_code == 200
    for name, found in (("kim/after:v1", 1), ("kim/before:v1", 0)):
        assert len(client.get(f"/v1/stores?name={name}").json()["items"]) == found
    base = "/v2/kim/before"
    for answer in (
        client.post(f"{base}/blobs/uploads/"),
        put_manifest(client, "v2", base, layers=[descriptor(NEW)]),
        put_manifest(client, "v1", base, layers=[descriptor(NEW)]),
    ):
        assert (answer.status_code, answer.json()["errors"][0]["code"]) == (404, "NAME_UNKNOWN")
        assert "moved: push to its current name" in answer.text
    for url in (f"{base}/manifests/v1", f"{base}/manifests/{digest}", f"{base}/blobs/{digest_of(NEW)}"):
        assert client.delete(url).status_code == 404, "the token may be for the former name alone"
    assert client.get("/kim/After/resolve/v1/m.onnx").content == NEW
    client.post("/api/repos/create", json={"organization": "kim", "name": "before"})
    assert client.get(f"{base}/manifests/v1").status_code == 404
    pushed_store(client, "kim/before", OLD, "v3")
    assert client.get(f"{base}/tags/list").json()["tags"] == ["v3"]
    assert client.get("/v2/kim/after/tags/list").json()["tags"] == ["main", "v1"]
