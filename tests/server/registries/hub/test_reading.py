"""Reads as the hub's clients make them, request by request."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from urllib.parse import quote

import httpx
import pytest
from tests.support.hub import commit

Made = Callable[..., str]

FILES = {"README.md": b"# hi\n", "sub/deep/x.bin": bytes(range(256)) * 900, "sub/a%25 b.txt": b"a", "empty": b""}


def test_a_file_is_told_and_sent(client: httpx.Client, made: Made) -> None:
    name = made(FILES)
    url, data = f"/{name}/resolve/main/sub/deep/x.bin", FILES["sub/deep/x.bin"]
    head = client.head(url, headers={"accept-encoding": "identity"})
    digest = hashlib.sha256(data).hexdigest()
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(len(data)))
    assert head.headers["x-linked-etag"] == f'"{digest}"'
    assert head.headers["x-linked-size"] == str(len(data))
    assert head.headers["x-repo-commit"] == client.get(f"/api/models/{name}").json()["sha"]
    assert client.get(url).content == data
    part = client.get(url, headers={"range": "bytes=100-299"})
    assert (part.status_code, part.content) == (206, data[100:300])
    assert part.headers["x-repo-commit"] == head.headers["x-repo-commit"]
    lasting = head.headers["content-location"]
    assert client.get(lasting).content == data


@pytest.mark.parametrize("path", FILES)
def test_every_path_is_found_as_it_is_spelled(client: httpx.Client, made: Made, path: str) -> None:
    name = made(FILES)
    assert client.get(f"/{name}/resolve/main/{quote(path)}").content == FILES[path]
    told = client.post(f"/api/models/{name}/paths-info/main", data={"paths": [path], "expand": "false"})
    assert [each["path"] for each in told.json()] == [path]


def test_a_revision_may_hold_a_slash(client: httpx.Client, made: Made) -> None:
    name = made({"a": b"main"})
    assert client.post(f"/api/models/{name}/branch/feat%2Fx", json={}).status_code == 201
    told = commit(client, f"models/{name}", {"a": b"branch", "b": b"2"}, revision="feat%2Fx").json()
    for revision in ("feat%2Fx", "refs%2Fheads%2Ffeat%2Fx", told["commitOid"]):
        assert client.get(f"/{name}/resolve/{revision}/a").content == b"branch"
        assert client.get(f"/api/models/{name}/revision/{revision}").json()["sha"] == told["commitOid"]
        assert len(client.get(f"/api/models/{name}/tree/{revision}").json()) == 2
    assert client.get(f"/{name}/resolve/main/a").content == b"main"
    refs = client.get(f"/api/models/{name}/refs").json()
    assert [(ref["name"], ref["ref"]) for ref in refs["branches"]] == [
        ("feat/x", "refs/heads/feat/x"),
        ("main", "refs/heads/main"),
    ]


def test_trees_are_listed_by_folder_and_whole(client: httpx.Client, made: Made) -> None:
    name = made(FILES)

    def listed(query: str) -> list[tuple[str, str]]:
        found = client.get(f"/api/models/{name}/tree/main{query}").json()
        return [(each["path"], each["type"]) for each in found]

    assert listed("") == [("README.md", "file"), ("empty", "file"), ("sub", "directory")]
    assert listed("/sub") == [("sub/a%25 b.txt", "file"), ("sub/deep", "directory")]
    assert listed("/sub%2Fdeep") == [("sub/deep/x.bin", "file")]
    assert [path for path, _ in listed("?recursive=True&expand=False")] == [
        "README.md", "empty", "sub", "sub/a%25 b.txt", "sub/deep", "sub/deep/x.bin",
    ]  # fmt: skip


def test_long_trees_come_in_pages(client: httpx.Client, made: Made) -> None:
    name = made({f"{number:04}": b"x" for number in range(1001)})
    first = client.get(f"/api/models/{name}/tree/main?recursive=true&expand=false")
    assert len(first.json()) == 1000
    following = client.get(first.links["next"]["url"])
    assert [each["path"] for each in following.json()] == ["1000"]
    assert "link" not in following.headers


def test_history_comes_in_pages(client: httpx.Client, made: Made) -> None:
    name = made()
    for number in range(51):
        commit(client, f"models/{name}", {"a": b"%d" % number}, summary=f"number {number}")
    first = client.get(f"/api/models/{name}/commits/main")
    assert [each["title"] for each in first.json()] == [f"number {number}" for number in range(50, 0, -1)]
    following = client.get(first.links["next"]["url"])
    assert [each["title"] for each in following.json()] == ["number 0"]
    assert first.headers["x-total-count"] == following.headers["x-total-count"] == "51"


def test_a_history_tells_how_many_commits_it_has(client: httpx.Client, made: Made) -> None:
    name = made()

    def check(revision: str, count: int) -> None:
        told = client.get(f"/api/models/{name}/commits/{revision}")
        assert len(told.json()) == count
        assert told.headers["x-total-count"] == str(count)

    check("main", 0)
    for count in range(1, 4):
        commit(client, f"models/{name}", {"a": b"%d" % count})
        check("main", count)
    client.post(f"/api/models/{name}/branch/old", json={"startingPoint": "main"})
    client.post(f"/api/models/{name}/super-squash/main", json={})
    check("main", 1)
    commit(client, f"models/{name}", {"a": b"new"})
    check("main", 2)
    check("old", 3)
    commit(client, f"models/{name}", {"b": b"new"}, revision="old")
    check("old", 4)


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("/api/models/Ann/none", "RepoNotFound"),
        ("/Ann/none/resolve/main/a", "RepoNotFound"),
        ("/datasets/{name}/resolve/main/a", "RepoNotFound"),
        ("/{name}/resolve/none/a", "RevisionNotFound"),
        ("/api/models/{name}/revision/refs%2Fpr%2F1", "RevisionNotFound"),
        ("/api/models/{name}/tree/" + "f" * 40, "RevisionNotFound"),
        ("/{name}/resolve/main/none", "EntryNotFound"),
        ("/{name}/resolve/main/sub", "EntryNotFound"),
        ("/api/models/{name}/tree/main/none", "EntryNotFound"),
        ("/{name}/resolve/main/sub/deep/x.bin%2F..%2F..%2F..%2FREADME.md", "EntryNotFound"),
    ],
)
def test_what_is_missing_has_a_code(client: httpx.Client, made: Made, url: str, code: str) -> None:
    name = made(FILES)
    told = client.get(url.format(name=name))
    assert (told.status_code, told.headers["x-error-code"]) == (404, code)
    if "/resolve/" in url:
        assert ("x-repo-commit" in told.headers) == (code == "EntryNotFound")


def test_a_new_repository_is_empty_and_readable(client: httpx.Client, made: Made) -> None:
    name = made()
    assert client.get(f"/api/models/{name}/tree/main?recursive=true").json() == []
    assert client.get(f"/api/models/{name}/commits/main").json() == []
    told = client.get(f"/api/models/{name}").json()
    assert (told["id"], told["siblings"], len(told["sha"])) == (name, [], 40)


def test_spaces_hold_repositories_of_their_own(client: httpx.Client, made: Made) -> None:
    name = made({"a": b"1"})
    client.put("/v1/spaces/hub")
    assert client.get(f"/spaces/hub/api/models/{name}").status_code == 404
    owner, short = name.split("/")
    told = client.post("/spaces/hub/api/repos/create", json={"organization": owner, "name": short}).json()
    assert told["url"].endswith(f"/spaces/hub/{name}")
    assert commit(client, f"models/{name}", {"a": b"other"}).status_code == 200
    assert (
        client.post(
            f"/spaces/hub/api/models/{name}/commit/main",
            content=b'{"key":"header","value":{}}\n{"key":"file","value":{"content":"Mg==","path":"a"}}\n',
        ).status_code
        == 200
    )
    assert client.get(f"/spaces/hub/{name}/resolve/main/a").content == b"2"


@pytest.mark.parametrize("path", ["/v1/stores", "/livez", "/", "/openapi.json"])
def test_other_routes_are_not_shadowed(client: httpx.Client, path: str) -> None:
    assert client.get(path).status_code == 200
    assert client.get("/v1/stores/resolve/main/x").headers.get("x-error-code") is None
