"""Writes as the hub's clients make them, request by request."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from tests.support.hub import commit, header, inline, send

Made = Callable[..., str]


def paths(client: httpx.Client, name: str) -> list[str]:
    """Paths of the files on `main`."""
    return [each["rfilename"] for each in client.get(f"/api/models/{name}").json()["siblings"]]


def test_a_repository_is_created_once(client: httpx.Client) -> None:
    body = {"name": "once", "organization": "Ann", "private": False}
    first, again = (client.post("/api/repos/create", json=body) for _ in range(2))
    assert (first.status_code, again.status_code) == (200, 409)
    assert first.json()["url"] == again.json()["url"] == f"{client.base_url}/Ann/once"
    dataset = client.post("/api/repos/create", json={**body, "type": "dataset"})
    assert dataset.json()["url"] == f"{client.base_url}/datasets/Ann/once"
    assert client.post("/api/repos/create", json={"name": "own"}).json()["name"] == "default/own"


@pytest.mark.parametrize("name", ["../m", "a/b/c/d", "", ".m", "a..b", "x" * 97, "a b", "%2e%2e"])
def test_names_that_climb_are_refused(client: httpx.Client, name: str) -> None:
    assert client.post("/api/repos/create", json={"organization": "Ann", "name": name}).status_code == 400


@pytest.mark.parametrize("owner", ["api", "v1", "v2", "spaces", "datasets", "models"])
def test_names_of_our_own_paths_are_taken(client: httpx.Client, owner: str) -> None:
    assert client.post("/api/repos/create", json={"organization": owner, "name": "m"}).status_code == 404


def test_a_commit_deletes_copies_and_adds_in_one_step(client: httpx.Client, made: Made) -> None:
    name = made({"a": b"1", "b": b"2", "sub/c": b"3", "sub/d": b"4"})
    digest = hashlib.sha256(b"3").hexdigest()
    told = send(
        client,
        f"models/{name}",
        header(),
        ("deletedFile", {"path": "a"}),
        ("deletedFolder", {"path": "sub/"}),
        ("lfsFile", {"path": "kept", "algo": "sha256", "oid": digest}),
        inline("new", b"5"),
    ).json()
    assert told["commitUrl"] == f"{client.base_url}/{name}/commit/{told['commitOid']}"
    assert paths(client, name) == ["b", "kept", "new"]
    assert client.get(f"/{name}/resolve/main/kept").content == b"3"
    assert client.get(f"/{name}/resolve/{told['commitOid']}/new").content == b"5"


def test_a_commit_is_a_store(client: httpx.Client, made: Made) -> None:
    name = made({"a": b"1"})
    store = client.get(f"/v1/stores/{client.get(f'/api/models/{name}').json()['sha']}").json()
    assert [file["path"] for file in store["files"]] == ["a"]


def test_a_parent_that_is_not_the_head_is_refused(client: httpx.Client, made: Made) -> None:
    name = made({"a": b"1"})
    first = client.get(f"/api/models/{name}").json()["sha"]
    assert commit(client, f"models/{name}", {"a": b"2"}, parentCommit=first[:7]).status_code == 200
    assert commit(client, f"models/{name}", {"a": b"3"}, parentCommit=first).status_code == 412
    assert client.get(f"/{name}/resolve/main/a").content == b"2"


def test_a_digest_of_another_repository_is_unknown_here(client: httpx.Client, made: Made) -> None:
    made({"secret": b"of another"})
    name = made({"a": b"1"})
    oid = hashlib.sha256(b"of another").hexdigest()
    told = send(client, f"models/{name}", header(), ("lfsFile", {"path": "x", "algo": "sha256", "oid": oid}))
    assert (told.status_code, paths(client, name)) == (400, ["a"])


@pytest.mark.parametrize(
    ("operations", "status"),
    [
        ([("deletedFile", {"path": "none"})], 404),
        ([("deletedFolder", {"path": "none/"})], 404),
        ([inline("x", b"1"), inline("x", b"2")], 400),
        ([inline("../x", b"1")], 400),
        ([inline("/x", b"1")], 400),
        ([inline("a/x", b"1")], 400),
        ([("file", {"content": "?", "path": "x"})], 400),
        ([("file", {"content": "eA==", "path": 7})], 400),
        ([("lfsFile", {"algo": "md5", "oid": "0", "path": "x"})], 400),
        ([("strange", {"path": "x"})], 400),
        ([header()], 400),
    ],
)
def test_a_bad_operation_changes_nothing(
    client: httpx.Client, made: Made, operations: list[tuple[str, dict[str, object]]], status: int
) -> None:
    name = made({"a": b"1"})
    before = client.get(f"/api/models/{name}").json()["sha"]
    assert send(client, f"models/{name}", header(), inline("good", b"1"), *operations).status_code == status
    assert client.get(f"/api/models/{name}").json()["sha"] == before


@pytest.mark.parametrize("body", [b"", b"[]", b'{"key":"file","value":{}}', b"{", b"\xff", b"[" * 100_000])
def test_a_commit_begins_with_its_header(client: httpx.Client, made: Made, body: bytes) -> None:
    assert client.post(f"/api/models/{made()}/commit/main", content=body).status_code == 400


def test_branches_and_tags_come_and_go(client: httpx.Client, made: Made) -> None:
    name = made({"a": b"1"})
    api = f"/api/models/{name}"
    assert [client.post(f"{api}/branch/b", json={}).status_code for _ in range(2)] == [201, 409]
    assert [client.post(f"{api}/tag/main", json={"tag": "v1"}).status_code for _ in range(2)] == [201, 409]
    commit(client, f"models/{name}", {"a": b"2"})
    assert client.get(f"/{name}/resolve/v1/a").content == b"1"
    assert client.post(f"{api}/branch/old", json={"startingPoint": "v1"}).status_code == 201
    assert client.get(f"/{name}/resolve/old/a").content == b"1"
    assert [client.delete(f"{api}/tag/v1").status_code for _ in range(2)] == [200, 404]
    assert client.delete(f"{api}/branch/main").status_code == 409
    assert client.post(f"{api}/branch/a..b", json={}).status_code == 400


def test_a_deleted_repository_is_gone(client: httpx.Client, made: Made) -> None:
    owner, name = made({"a": b"1"}).split("/")
    body = json.dumps({"name": name, "organization": owner}).encode()
    kind = {"content-type": "application/json"}
    answers = [client.request("DELETE", "/api/repos/delete", content=body, headers=kind) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 404]
    assert client.get(f"/{owner}/{name}/resolve/main/a").headers["x-error-code"] == "RepoNotFound"


def test_small_files_travel_within_the_commit_and_large_ones_before_it(client: httpx.Client, made: Made) -> None:
    files = [{"path": "small", "size": 10 << 20, "sample": ""}, {"path": "large", "size": (10 << 20) + 1, "sample": ""}]
    told = client.post(f"/api/models/{made()}/preupload/main", json={"files": files}).json()["files"]
    assert [(each["path"], each["uploadMode"]) for each in told] == [("small", "regular"), ("large", "lfs")]


def test_tables_come_before_the_commit_as_datasets_has_removed_them_by_then(client: httpx.Client, made: Made) -> None:
    files = [
        {"path": f"data/train.{suffix}", "size": size} for suffix, size in (("parquet", 9), ("csv", 9), ("parquet", 0))
    ]
    told = client.post(f"/api/datasets/{made(kind='dataset')}/preupload/main", json={"files": files}).json()["files"]
    assert [each["uploadMode"] for each in told] == ["lfs", "regular", "regular"]


def test_any_card_is_accepted(client: httpx.Client) -> None:
    told = client.post("/api/validate-yaml", json={"content": "---\n", "repoType": "model"})
    assert told.json() == {"errors": [], "warnings": []}


def test_many_commits_of_one_branch_at_once_all_succeed(client: httpx.Client, made: Made) -> None:
    name = made({"a": b"1"})
    with ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(lambda n: commit(client, f"models/{name}", {f"f{n}": b"x"}), range(24)))
    assert [answer.status_code for answer in answers] == [200] * 24
    assert len(client.get(f"/api/models/{name}/commits/main?limit=100").json()) >= 25
    assert len(client.get(f"/api/models/{name}/tree/main").json()) == 25
