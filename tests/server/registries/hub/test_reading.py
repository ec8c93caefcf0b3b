"""Reads as the hub's clients make them, request by request.

Addresses that clients print open the model's page in a browser. git's dumb protocol: refs, HEAD and objects over HTTP.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable
from urllib.parse import quote, unquote

import httpx
import pytest
from tests.server.auth.closed import bearer, closed_service, token_for
from tests.support.hub import commit
from tests.support.serve import ask

from protoslice.server.auth.permissions import Scope

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


BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.mark.parametrize("kind", ["model", "dataset"])
def test_addresses_of_a_commit_lead_to_its_store(client: httpx.Client, made: Made, kind: str) -> None:
    name = made(kind=kind)
    told = commit(client, f"{kind}s/{name}", {"sub/a b.txt": b"a"}).json()
    created = client.post("/api/repos/create", json={"name": name, "type": kind}).json()["url"]
    root = f"/{name}" if kind == "model" else f"/datasets/{name}"
    printed = [told["commitUrl"], created]
    printed += [f"{created}/{rest}" for rest in ("tree/main", "tree/main/", "tree/main/sub", "blob/main/sub/a%20b.txt")]
    for url in printed:
        assert httpx.URL(url).path.startswith(root)
        answer = client.get(url, headers=BROWSER)
        assert answer.status_code == 302, url
        place = answer.headers["location"]
        assert place.startswith("/m/")
        ref = place.removeprefix("/m/")
        assert client.get(f"/v1/stores/{ref}").json()["id"][:40] == told["commitOid"]
        assert client.head(url, headers=BROWSER).status_code == 302


def test_a_revision_with_a_slash_is_kept(client: httpx.Client) -> None:
    for path, shown in (("tree/feat%2Fx/a", "@feat/x"), ("commit/0123", "@0123"), ("tree/a%3Fb%23c", "@a?b#c")):
        place = client.get(f"/Ann/none/{path}", headers=BROWSER).headers["location"]
        assert place.startswith("/m/Ann%2Fnone%40")
        assert unquote(place) == f"/m/Ann/none{shown}"
    assert client.put("/v1/spaces/red").status_code == 201
    assert client.get("/spaces/red/Ann/none", headers=BROWSER).headers["location"] == "/spaces/red/m/Ann%2Fnone%40main"


@pytest.mark.parametrize(
    "path",
    ["/.well-known/x", "/v1/x", "/api/x", "/a/b/c", "/%2e%2e/x", "/a/%2F%2Fevil.example", "/a/b%0D%0Ax", "/datasets/a"],
)
def test_other_paths_lead_nowhere(client: httpx.Client, path: str) -> None:
    answer = client.get(path, headers=BROWSER)
    assert answer.status_code in {400, 404}
    assert "location" not in answer.headers
    assert client.post("/v1/x").status_code == 404


@pytest.mark.parametrize("accept", [None, "*/*", "application/json", "text/html"])
@pytest.mark.parametrize(
    "path", ["/v3/stores", "/v2beta/stores", "/v10/stores/tree/main", "/nope/x", "/nope/x/tree/main"]
)
def test_programs_are_not_sent_to_a_page(client: httpx.Client, path: str, accept: str | None) -> None:
    answer = client.get(path, headers={} if accept is None else {"accept": accept})
    if accept == "text/html" and not path.startswith(("/v3", "/v10")):
        assert (answer.status_code, answer.headers["vary"]) == (302, "accept")
    else:
        assert (answer.status_code, answer.headers.get("location")) == (404, None)
        assert "`/v1`" in answer.text, answer.text


async def test_a_stranger_learns_nothing_of_a_closed_service() -> None:
    async with closed_service() as app:
        answers = [await ask(app, "GET", f"/spaces/{space}/team/x", headers=BROWSER) for space in ("own", "none")]
        assert [each.status for each in answers] == [302, 302]
        assert [each.headers["location"] for each in answers] == [
            f"/spaces/{space}/m/team%2Fx%40main" for space in ("own", "none")
        ]


def fetched(client: httpx.Client, name: str, id: str) -> bytes:
    """Return an object, without its head."""
    answer = client.get(f"/{name}/objects/{id[:2]}/{id[2:]}")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-git-loose-object")
    assert answer.headers["content-disposition"] == "attachment"
    data = zlib.decompress(answer.content)
    assert hashlib.sha1(data).hexdigest() == id
    return data.partition(b"\0")[2]


@pytest.mark.parametrize("kind", ["model", "dataset"])
@pytest.mark.parametrize("suffix", ["", ".git"])
def test_a_repository_is_walked_from_its_refs(client: httpx.Client, made: Made, kind: str, suffix: str) -> None:
    name = ("datasets/" if kind == "dataset" else "") + made({"a.md": b"text", "m.bin": b"weights"}, kind) + suffix
    assert client.get(f"/{name}/HEAD").text == "ref: refs/heads/main\n"
    answer = client.get(f"/{name}/info/refs?service=git-upload-pack")
    assert answer.headers["content-type"].startswith("text/plain")
    id, ref = answer.text.removesuffix("\n").split("\t")
    assert ref == "refs/heads/main"
    tree = fetched(client, name, id).split(b"\n")[0].removeprefix(b"tree ").decode()
    entries = fetched(client, name, tree)
    start = entries.index(b"100644 a.md\0") + len(b"100644 a.md\0")
    assert fetched(client, name, entries[start : start + 20].hex()) == b"text"
    start = entries.index(b"100644 m.bin\0") + len(b"100644 m.bin\0")
    assert hashlib.sha256(b"weights").hexdigest().encode() in fetched(client, name, entries[start : start + 20].hex())


@pytest.mark.parametrize("agent", ["git/2.0 (libgit2 1.9.1)", "go-git/5.16", "git/isomorphic-git@1.35.0"])
def test_a_program_without_the_dumb_protocol_is_told_why(client: httpx.Client, made: Made, agent: str) -> None:
    name = made({"a.md": b"text"})
    answer = client.get(f"/{name}/info/refs?service=git-upload-pack", headers={"user-agent": agent})
    assert answer.headers["content-type"] == "application/x-git-upload-pack-advertisement"
    service, rest = answer.content.split(b"0000", 1)
    assert service == b"001e# service=git-upload-pack\n"
    assert int(rest[:4], 16) == len(rest)
    assert rest[4:].startswith(b"ERR this service has git's dumb protocol")
    missing = client.get("/ann/none/info/refs?service=git-upload-pack", headers={"user-agent": agent})
    assert missing.status_code == 404


def test_listed_ids_are_those_of_git(client: httpx.Client, made: Made) -> None:
    name = made({"a.md": b"text", "m.bin": b"weights"})
    client.get(f"/{name}/info/refs")
    for file in client.get(f"/api/models/{name}/tree/main").json():
        content = fetched(client, name, file["oid"])
        assert (content == b"text", len(content)) == ("lfs" not in file, file.get("lfs", {}).get("pointerSize", 4))
    told = client.get(f"/api/models/{name}?blobs=true").json()["siblings"]
    assert [("lfs" in each, each["size"]) for each in told] == [(False, 4), (True, 7)]
    assert client.get(f"/api/models/{name}").json()["siblings"] == [{"rfilename": "a.md"}, {"rfilename": "m.bin"}]


def test_a_file_of_an_old_commit_is_found_by_git_lfs(client: httpx.Client, made: Made) -> None:
    name = made({"m.bin": b"old weights"})
    client.get(f"/{name}/info/refs")
    commit(client, f"models/{name}", {"m.bin": b"new weights"})
    oid = hashlib.sha256(b"old weights").hexdigest()
    body = {"operation": "download", "objects": [{"oid": oid, "size": 11}]}
    (told,) = client.post(f"/{name}.git/info/lfs/objects/batch", json=body).json()["objects"]
    assert client.get(told["actions"]["download"]["href"]).content == b"old weights"


def test_tags_of_artifacts_are_cloned(client: httpx.Client) -> None:
    data = b"# weights"
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    client.post(f"/v2/team/only/blobs/uploads/?digest={digest}", content=data)
    layer = {"mediaType": "text/plain", "digest": digest, "size": len(data)}
    layer["annotations"] = {"org.opencontainers.image.title": "a.md"}
    manifest = {"schemaVersion": 2, "config": layer, "layers": [layer]}
    kind = {"content-type": "application/vnd.oci.image.manifest.v1+json"}
    for tag in ("v1", "latest"):
        assert client.put(f"/v2/team/only/manifests/{tag}", json=manifest, headers=kind).status_code == 201
    told = dict(line.split("\t")[::-1] for line in client.get("/team/only/info/refs").text.splitlines())
    assert set(told) == {"refs/heads/main", "refs/tags/latest", "refs/tags/v1"}
    assert client.get("/team/only/info/refs").text == client.get("/team/only/info/refs").text
    tree = fetched(client, "team/only", told["refs/tags/v1"]).split(b"\n")[0].removeprefix(b"tree ").decode()
    start = fetched(client, "team/only", tree).index(b"100644 a.md\0") + len(b"100644 a.md\0")
    assert fetched(client, "team/only", fetched(client, "team/only", tree)[start : start + 20].hex()) == data


@pytest.mark.parametrize(
    "path", ["objects/00/" + "0" * 38, "objects/info/packs", "objects/zz/x", "objects/00/" + "0" * 64]
)
def test_objects_that_are_unknown_are_not_found(client: httpx.Client, made: Made, path: str) -> None:
    assert client.get(f"/{made({'a': b'1'})}/{path}").status_code in {404, 422}


def test_failures_are_plain_text(client: httpx.Client, made: Made) -> None:
    answer = client.get(f"/{made()}/info/refs?service=git-receive-pack")
    assert (answer.status_code, answer.headers["content-type"]) == (422, "text/plain; charset=utf-8")
    assert answer.text.startswith("git push is not supported")
    assert client.get("/ann/none/info/refs").text == "No repository 'ann/none'\n"


async def test_a_closed_service_asks_git_for_a_password_and_tells_strangers_nothing() -> None:
    async with closed_service() as app:
        writer = bearer(await token_for(app, Scope.READ, Scope.WRITE))
        stranger = bearer(await token_for(app, Scope.READ, space="other"))
        body = b'{"organization":"ann","name":"m"}'
        kind = {"content-type": "application/json"}
        assert (await ask(app, "POST", "/spaces/own/api/repos/create", body, writer | kind)).status == 200
        answer = await ask(app, "GET", "/spaces/own/ann/m/info/refs")
        assert (answer.status, "Basic" in answer.headers["www-authenticate"]) == (401, True)
        assert (await ask(app, "GET", "/spaces/own/ann/m/info/refs", headers=writer)).status == 200
        for path in ("info/refs", "HEAD", "objects/00/" + "0" * 38):
            hidden = await ask(app, "GET", f"/spaces/own/ann/m/{path}", headers=stranger)
            missing = await ask(app, "GET", f"/spaces/none/ann/m/{path}", headers=stranger)
            assert hidden.status == missing.status == 404
            assert hidden.text.replace("own", "none") == missing.text == "No space 'none'\n"
