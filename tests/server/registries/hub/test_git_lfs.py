"""git-lfs: files that are pushed are kept without a commit, and come back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from tests.server.auth.closed import bearer, closed_service, token_for
from tests.support.hub import commit, header, send
from tests.support.serve import ask

from protoslice.server.auth.permissions import Scope

Made = Callable[..., str]

DATA = bytes(range(256)) * 900
OID = hashlib.sha256(DATA).hexdigest()
AGENT = {"user-agent": "git-lfs/3.3.0 (GitHub; linux amd64; go 1.19.8)", "accept": "application/vnd.git-lfs+json"}


def asked(operation: str, *data: bytes, **more: Any) -> dict[str, Any]:
    """The body of a batch, as git-lfs sends it."""
    objects = [{"oid": hashlib.sha256(each).hexdigest(), "size": len(each)} for each in data]
    transfers = ["lfs-standalone-file", "basic", "ssh"]
    ref = {"name": "refs/heads/main"}
    body = {"operation": operation, "transfers": transfers, "ref": ref, "objects": objects, "hash_algo": "sha256"}
    return body | more


def batch(client: httpx.Client, name: str, operation: str, *data: bytes, **more: Any) -> list[dict[str, Any]]:
    url = f"/{name}.git/info/lfs/objects/batch"
    answer = client.post(url, json=asked(operation, *data, **more), headers=AGENT)
    assert (answer.status_code, answer.json()["transfer"]) == (200, "basic"), answer.text
    found: list[dict[str, Any]] = answer.json()["objects"]
    return found


def push(client: httpx.Client, name: str, data: bytes = DATA, **more: Any) -> None:
    (told,) = batch(client, name, "upload", data, **more)
    assert client.put(told["actions"]["upload"]["href"], content=data).status_code == 200


def pulled(client: httpx.Client, name: str, data: bytes = DATA) -> bytes:
    (told,) = batch(client, name, "download", data)
    return client.get(told["actions"]["download"]["href"]).content


@pytest.mark.parametrize("kind", ["model", "dataset"])
def test_a_pushed_file_comes_back_whole_and_by_range(client: httpx.Client, made: Made, kind: str) -> None:
    root = made(kind=kind)
    name = root if kind == "model" else f"datasets/{root}"
    push(client, name)
    assert pulled(client, name) == DATA
    (told,) = batch(client, name, "download", DATA)
    part = client.get(told["actions"]["download"]["href"], headers={"range": "bytes=10-19"})
    assert (part.status_code, part.content) == (206, DATA[10:20])
    (again,) = batch(client, name, "upload", DATA)
    assert "actions" not in again


@pytest.mark.parametrize("transfers", [["basic", "multipart", "xet"], ["basic"]])
def test_a_pushed_file_is_a_store_that_does_not_expire(client: httpx.Client, made: Made, transfers: list[str]) -> None:
    name, data = made(), json.dumps(transfers).encode() * 9000
    push(client, name, data, transfers=transfers)
    (told,) = batch(client, name, "download", data)
    answer = client.get(told["actions"]["download"]["href"])
    assert answer.headers["content-location"].startswith("/v1/stores/")
    assert client.get(answer.headers["content-location"]).content == data


def test_a_file_of_a_commit_is_kept_once_it_was_pushed(client: httpx.Client, made: Made) -> None:
    name = made({"a": DATA})
    assert pulled(client, name) == DATA, "files of branches need no push"
    (told,) = batch(client, name, "upload", DATA)
    assert "actions" not in told
    assert send(client, f"models/{name}", header(), ("deletedFile", {"path": "a"})).status_code == 200
    assert pulled(client, name) == DATA


def test_a_staged_file_of_another_client_can_be_pulled_and_is_kept_once_it_was_pushed(
    client: httpx.Client, made: Made
) -> None:
    name = made()
    url = f"/{name}.git/info/lfs/objects/batch"
    told = client.post(url, json=asked("upload", DATA, transfers=["basic", "multipart"])).json()["objects"][0]
    href = told["actions"]["upload"]["href"]
    assert "keep" not in href
    assert client.put(href, content=DATA).status_code == 200
    (again,) = batch(client, name, "upload", DATA)
    assert "actions" not in again
    assert pulled(client, name) == DATA


def test_a_commit_takes_a_pushed_file_which_stays(client: httpx.Client, made: Made) -> None:
    name = made()
    push(client, name)
    file = ("lfsFile", {"path": "x.bin", "algo": "sha256", "oid": OID, "size": len(DATA)})
    assert send(client, f"models/{name}", header(), file).status_code == 200
    assert client.get(f"/{name}/resolve/main/x.bin").content == DATA
    assert send(client, f"models/{name}", header(), ("deletedFile", {"path": "x.bin"})).status_code == 200
    assert pulled(client, name) == DATA
    # A client that sends it again before a commit does not take its place.
    url = f"/{name}.git/info/lfs/objects/batch"
    told = client.post(url, json=asked("upload", DATA, transfers=["basic", "multipart"])).json()["objects"][0]
    assert client.put(told["actions"]["upload"]["href"], content=DATA).status_code == 200
    answer = client.get(batch(client, name, "download", DATA)[0]["actions"]["download"]["href"])
    assert answer.content == DATA
    assert send(client, f"models/{name}", header(), file).status_code == 200


def test_a_file_that_is_missing_is_an_error_of_its_own(client: httpx.Client, made: Made) -> None:
    name, other = made({"a": DATA}), made({"a": b"of another repository"})
    there, missing = batch(client, name, "download", DATA, b"of another repository")
    assert "download" in there["actions"]
    assert (missing["error"]["code"], "actions" in missing) == (404, False)
    secret = hashlib.sha256(b"of another repository").hexdigest()
    assert client.get(f"/api/lfs-files/models/{name}/{secret}").status_code == 404
    assert client.get(f"/api/lfs-files/models/{other}/{secret}").status_code == 200
    for oid in ("none", "0" * 63, "A" * 64):
        assert client.get(f"/api/lfs-files/models/{name}/{oid}").status_code in {400, 422}
    assert client.post(f"/{name}.git/info/lfs/objects/batch", json=asked("delete", DATA)).status_code in {400, 422}


def test_other_bytes_are_not_kept(client: httpx.Client, made: Made) -> None:
    name = made()
    (told,) = batch(client, name, "upload", DATA)
    href = told["actions"]["upload"]["href"]
    assert 400 <= client.put(href, content=DATA[:-1] + b"?").status_code < 500
    assert "error" in batch(client, name, "download", DATA)[0]
    assert client.put(href, content=DATA).status_code == 200
    assert [client.put(href, content=DATA).status_code, pulled(client, name)] == [200, DATA]


async def test_readers_pull_and_do_not_push() -> None:
    async with closed_service() as app:
        writer = bearer(await token_for(app, Scope.READ, Scope.WRITE))
        reader = bearer(await token_for(app, Scope.READ))
        limited = bearer(await token_for(app, Scope.READ, Scope.WRITE, tags=("other/*",)))
        json_kind = {"content-type": "application/vnd.git-lfs+json"}
        made = json.dumps({"name": "team/x"}).encode()
        kind = {"content-type": "application/json"}
        assert (await ask(app, "POST", "/spaces/own/api/repos/create", made, writer | kind)).status == 200
        url = "/spaces/own/team/x.git/info/lfs/objects/batch"
        answers = {}
        for operation in ("upload", "download"):
            body = json.dumps(asked(operation, DATA)).encode()
            answers[operation] = [
                await ask(app, "POST", url, body, who | json_kind | AGENT) for who in ({}, reader, limited, writer)
            ]
        assert [each.status for each in answers["upload"]] == [401, 403, 403, 200]
        assert [each.status for each in answers["download"]] == [401, 200, 200, 200]
        assert "scope write" in json.loads(answers["upload"][1].body)["message"]
        href = httpx.URL(json.loads(answers["upload"][3].body)["objects"][0]["actions"]["upload"]["href"])
        assert (await ask(app, "PUT", href.path, DATA)).status == 401
        assert (await ask(app, "PUT", href.raw_path.decode(), DATA)).status == 200
        body = json.dumps(asked("download", DATA)).encode()
        told = json.loads((await ask(app, "POST", url, body, reader | json_kind)).body)["objects"][0]
        href = httpx.URL(told["actions"]["download"]["href"])
        assert (await ask(app, "GET", href.path)).status == 401
        assert (await ask(app, "GET", href.raw_path.decode())).body == DATA


def test_a_commit_may_follow_at_once(client: httpx.Client, made: Made) -> None:
    name = made()
    push(client, name)
    assert commit(client, f"models/{name}", {"other": b"x"}).status_code == 200
    assert pulled(client, name) == DATA
