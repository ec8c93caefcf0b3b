"""git's dumb protocol: refs, HEAD and objects over HTTP."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable

import httpx
import pytest
from tests.server.auth.closed import bearer, closed_service, token_for
from tests.support.hub import commit
from tests.support.serve import ask

from protoslice.server.auth.permissions import Scope

Made = Callable[..., str]


def fetched(client: httpx.Client, name: str, id: str) -> bytes:
    """An object, without its head."""
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
