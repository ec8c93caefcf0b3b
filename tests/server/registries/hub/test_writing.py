"""Writes as the hub's clients make them, request by request.

Lines of a commit are bounded in length and number. Pull requests are refused before anything is stored, so that a
change never goes to the branch instead. Commits of a history share the files that they do not change.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import httpx
import pytest
from tests.support.hub import commit, header, inline, send
from tests.support.serve import LiveServer, serve

from protoslice.errors import InvalidInput, LimitExceeded
from protoslice.ingest import sharing
from protoslice.ingest.sharing import LEAST_SHARED
from protoslice.server.registries.hub import commits, repositories, xet
from protoslice.server.registries.hub.commits import CommitHeader, Deletion, InlineFile, Operation, operations_of
from protoslice.server.routing import routes_of

Made = Callable[..., str]


def paths(client: httpx.Client, name: str) -> list[str]:
    """Return the paths of the files on `main`."""
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


LINES = (
    b'{"key":"header","value":{"summary":"s","description":"d","parentCommit":"abc"}}\n\n'
    b'{"key":"file","value":{"content":"aGk=","path":"a","encoding":"base64"}}\r\n'
    b'{"key":"file","value":{"content":"hi","path":"b","encoding":"utf-8"}}\n'
    b'{"key":"deletedFolder","value":{"path":"c/"}}'
)


def parsed(pieces: Iterable[bytes]) -> list[Operation]:
    """Return the operations of a body that arrives in these pieces."""

    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    async def run() -> list[Operation]:
        return [operation async for operation in operations_of(body())]

    return asyncio.run(run())


@pytest.mark.parametrize("size", [1, 7, 80, 1000])
def test_lines_are_the_same_in_any_pieces(size: int) -> None:
    assert parsed(LINES[at : at + size] for at in range(0, len(LINES), size)) == [
        CommitHeader("s", "d", "abc"),
        InlineFile("a", b"hi"),
        InlineFile("b", b"hi"),
        Deletion("c/", folder=True),
    ]


def test_a_line_without_an_end_is_not_kept() -> None:
    taken = 0

    def endless() -> Iterable[bytes]:
        nonlocal taken
        while True:
            taken += 1 << 20
            yield b"x" * (1 << 20)

    with pytest.raises(LimitExceeded):
        parsed(endless())
    assert taken < 20 << 20


def test_operations_are_counted() -> None:
    with pytest.raises(LimitExceeded):
        parsed(b'{"key":"deletedFile","value":{"path":"a"}}\n' * 1000 for _ in range(1000))


def test_a_mistake_is_told_with_its_line() -> None:
    with pytest.raises(InvalidInput, match="Line 3"):
        parsed([LINES.replace(b'"utf-8"}', b'"utf-8"')])


VALUES = {"{kind}": "models", "{revision}": "main", "{branch}": "b", "{tag}": "t", "{session}": "s", "{hash}": "0" * 64}
CHANGES = [row for router in (repositories.router, commits.router, xet.router) for row, _ in routes_of(router.routes)]


def lines(*operations: tuple[str, object]) -> bytes:
    return "\n".join(json.dumps({"key": key, "value": value}) for key, value in operations).encode()


@pytest.mark.parametrize("query", ["create_pr=1", "create_pr=true", "create_pr=True"])
def test_a_commit_to_a_pull_request_changes_nothing(client: httpx.Client, made: Made, query: str) -> None:
    name = made({"a": b"old"})
    before = client.get(f"/api/models/{name}/revision/main").json()["sha"]
    body = lines(header(), inline("a", b"new"))
    refused = client.post(f"/api/models/{name}/commit/main?{query}", content=body)
    assert refused.status_code == 422
    assert "pull requests" in refused.headers["x-error-message"].lower()
    assert client.get(f"/api/models/{name}/revision/main").json()["sha"] == before
    assert client.post(f"/api/models/{name}/commit/main?create_pr=0", content=body).status_code == 200


def test_a_commit_is_refused_before_its_body_has_come(service: LiveServer, made: Made) -> None:
    name = made({"a": b"old"})
    with service.connect() as connection:
        head = f"POST /api/models/{name}/commit/main?create_pr=1 HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n"
        connection.sendall(head.encode().replace(b"host: x", b"host: 127.0.0.1"))
        assert connection.recv(12) == b"HTTP/1.1 422"


@pytest.mark.parametrize("row", [row for row in CHANGES if row != "POST /api/validate-yaml"])
def test_every_change_refuses_a_pull_request(client: httpx.Client, made: Made, row: str) -> None:
    method, path = row.split(" ")
    path = path.replace("{name:repository}", made({"a": b"old"}))
    for name, value in VALUES.items():
        path = path.replace(name, value)
    answer = client.request(method, f"{path}?create_pr=1", json={"name": "x", "tag": "x", "files": []})
    assert (answer.status_code, "pull requests" in answer.headers["x-error-message"].lower()) == (422, True)


@pytest.mark.parametrize("kind", ["model", "dataset"])
def test_a_discussion_is_refused(client: httpx.Client, made: Made, kind: str) -> None:
    url = f"/api/{kind}s/{made(kind=kind)}/discussions"
    for wanted in (True, False):
        told = client.post(url, json={"title": "title", "description": "d", "pullRequest": wanted})
        assert (told.status_code, "not supported" in told.headers["x-error-message"]) == (422, True)


def test_refs_list_no_pull_requests(client: httpx.Client, made: Made) -> None:
    assert client.get(f"/api/models/{made()}/refs?include_prs=1").json()["pullRequests"] == []
    name = made({"a": b"1"})
    assert client.get(f"/{name}/resolve/refs%2Fpr%2F1/a").headers["x-error-code"] == "RevisionNotFound"
    assert client.post(f"/api/models/{name}/commit/refs%2Fpr%2F1", content=lines(header())).status_code == 404


FILES, COMMITS, SIZE = 36, 4, LEAST_SHARED


def test_commits_that_change_a_file_each_take_the_bytes_of_those_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Files count as large here, and each large file is shared, regardless of the number of its uploads.
    monkeypatch.setattr(sharing, "HEAVY", SIZE)
    random = Random(16)
    with (
        serve(storage=tmp_path.as_uri()) as live,
        httpx.Client(base_url=live.url, timeout=60) as client,
    ):
        client.post("/api/repos/create", json={"organization": "ann", "name": "m"}).raise_for_status()
        push(client, {f"{number:03}.bin": random.randbytes(SIZE) for number in range(FILES)})
        changed = {}
        for _ in range(COMMITS):
            path = f"{random.randrange(FILES):03}.bin"
            changed[path] = random.randbytes(SIZE)
            push(client, {path: changed[path]})
        for path, data in changed.items():
            assert client.get(f"/ann/m/resolve/main/{path}").content == data
        assert len(client.get("/api/models/ann/m/tree/main").json()) == FILES
    stored = sum(each.stat().st_size for each in (tmp_path / "objects").rglob("*") if each.is_file())
    assert stored <= 1.05 * (FILES + COMMITS) * SIZE


def push(client: httpx.Client, files: dict[str, bytes]) -> None:
    """Send files by git-lfs, as clients send all large files, and commit them."""
    named = {hashlib.sha256(data).hexdigest(): (path, data) for path, data in files.items()}
    wanted = [{"oid": oid, "size": len(data)} for oid, (_, data) in named.items()]
    body = {"operation": "upload", "transfers": ["basic"], "objects": wanted}
    told = client.post("/ann/m.git/info/lfs/objects/batch", json=body).raise_for_status().json()
    for each in told["objects"]:
        client.put(each["actions"]["upload"]["href"], content=named[each["oid"]][1]).raise_for_status()
    lines = [("lfsFile", {"path": path, "algo": "sha256", "oid": oid}) for oid, (path, _) in named.items()]
    send(client, "models/ann/m", header(), *lines).raise_for_status()
