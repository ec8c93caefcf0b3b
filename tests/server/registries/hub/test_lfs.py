"""Files that are uploaded, whole or in parts, before the commit that names them.

git-lfs: pushed files are kept without a commit, and can be downloaded.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from tests.server.auth.closed import bearer, closed_service, token_for
from tests.support.hub import commit, header, send
from tests.support.serve import ask
from tests.support.stores import onnx

from protoslice.server.auth.permissions import Scope
from protoslice.server.registries.hub import lfs

Made = Callable[..., str]

DATA = onnx(200_000, 300_000)
OID = hashlib.sha256(DATA).hexdigest()


def batch(client: httpx.Client, name: str, oid: str = OID, size: int = len(DATA)) -> dict[str, Any]:
    """Return the answer about one object."""
    body = {"operation": "upload", "transfers": ["basic", "multipart"], "objects": [{"oid": oid, "size": size}]}
    kind = {"content-type": "application/vnd.git-lfs+json"}
    told = client.post(f"/{name}.git/info/lfs/objects/batch", json=body, headers=kind).json()
    assert told["transfer"] == "basic"
    found: dict[str, Any] = told["objects"][0]
    return found


def commit_object(client: httpx.Client, name: str, *paths: str, oid: str = OID) -> httpx.Response:
    """Return the answer to a commit of one object at some paths."""
    files = [("lfsFile", {"path": path, "algo": "sha256", "oid": oid, "size": len(DATA)}) for path in paths]
    return send(client, f"models/{name}", header(), *files)


def pushed(client: httpx.Client, name: str) -> None:
    """Upload the object."""
    assert client.put(batch(client, name)["actions"]["upload"]["href"], content=DATA).status_code == 200


def test_an_upload_becomes_files_of_a_commit(client: httpx.Client, made: Made) -> None:
    name = made({"a": b"1"})
    pushed(client, name)
    assert "actions" not in batch(client, name)
    told = commit_object(client, name, "model.onnx", "twice.bin")
    assert told.status_code == 200
    for path in ("model.onnx", "twice.bin"):
        assert client.get(f"/{name}/resolve/main/{path}").content == DATA
    assert client.get(f"/v1/stores/{told.json()['commitOid']}").json()["root"] == "model.onnx"
    assert "actions" not in batch(client, name)


def test_a_dataset_has_a_url_of_its_own(client: httpx.Client, made: Made) -> None:
    name = made(kind="dataset")
    href = batch(client, f"datasets/{name}")["actions"]["upload"]["href"]
    assert client.put(href, content=DATA).status_code == 200
    files = ("lfsFile", {"path": "d", "algo": "sha256", "oid": OID})
    assert send(client, f"datasets/{name}", header(), files).status_code == 200


def test_bytes_that_are_sent_again_are_taken_once(client: httpx.Client, made: Made) -> None:
    name = made()
    href = batch(client, name)["actions"]["upload"]["href"]
    assert [client.put(href, content=DATA).status_code for _ in range(2)] == [200, 200]
    assert commit_object(client, name, "x").status_code == 200


@pytest.mark.parametrize("data", [DATA[:-1] + b"?", DATA[:-1], b""])
def test_other_bytes_are_refused_and_may_be_sent_again(client: httpx.Client, made: Made, data: bytes) -> None:
    name = made()
    href = batch(client, name)["actions"]["upload"]["href"]
    assert 400 <= client.put(href, content=data).status_code < 500
    assert commit_object(client, name, "x").status_code == 400
    assert client.put(href, content=DATA).status_code == 200
    assert commit_object(client, name, "x").status_code == 200


def test_more_bytes_than_were_told_are_refused(client: httpx.Client, made: Made) -> None:
    name = made()
    href = batch(client, name)["actions"]["upload"]["href"]
    assert client.put(href, content=DATA + b"?").status_code == 413


def test_uploads_of_another_repository_are_unknown(client: httpx.Client, made: Made) -> None:
    pushed(client, made())
    name = made({"a": b"1"})
    assert "actions" in batch(client, name)
    assert commit_object(client, name, "x").status_code == 400


def test_an_upload_that_no_batch_began_is_none(client: httpx.Client, made: Made) -> None:
    name = made()
    tus = {"tus-resumable": "1.0.0", "upload-length": "3"}
    digest = f"sha-256=:{b64encode(hashlib.sha256(b'abc').digest()).decode()}:"
    others = [client.post("/v1/uploads", headers=tus | more) for more in ({}, {"repr-digest": digest})]
    for upload in (*(other.headers["location"].rpartition("/")[2] for other in others), "0" * 31, "x"):
        assert client.put(f"/api/lfs-uploads/models/{name}/{upload}", content=b"abc").status_code == 404


@pytest.mark.parametrize(
    "wanted",
    [{"oid": "../x", "size": 1}, {"oid": OID, "size": 0}, {"oid": OID, "size": -1}, {"oid": OID.upper(), "size": 1}],
)
def test_a_batch_names_digests_and_sizes(client: httpx.Client, made: Made, wanted: dict[str, object]) -> None:
    body = {"operation": "upload", "objects": [wanted]}
    assert client.post(f"/{made()}.git/info/lfs/objects/batch", json=body).status_code == 400


def test_a_file_is_no_larger_than_an_upload_may_be(client: httpx.Client, made: Made) -> None:
    body = {"operation": "upload", "objects": [{"oid": OID, "size": 1 << 62}]}
    assert client.post(f"/{made()}.git/info/lfs/objects/batch", json=body).status_code == 413


def test_people_are_shown_why_a_batch_is_refused(client: httpx.Client, made: Made) -> None:
    refused = {
        "Invalid operation 'delete'": (made(), "delete", 400),
        "team/none": ("team/none", "upload", 404),
    }
    for words, (name, operation, status) in refused.items():
        body = {"operation": operation, "objects": []}
        told = client.post(f"/{name}.git/info/lfs/objects/batch", json=body)
        assert told.status_code == status
        assert told.headers["content-type"] == "application/json", "git-lfs reads no other"
        assert words in told.json()["message"]


@pytest.mark.parametrize("path", ["a/x.git/info/lfs/objects/batch", "a/x.git/info/refs?service=git-upload-pack"])
def test_clients_read_the_code_of_the_problem_on_paths_of_git_too(client: httpx.Client, path: str) -> None:
    method = "POST" if path.endswith("batch") else "GET"
    missing = client.request(method, f"/{path}", json={"operation": "upload", "objects": []})
    assert (missing.status_code, missing.headers["x-error-code"]) == (404, "RepoNotFound")
    assert missing.headers["x-error-message"] == "No repository 'a/x'"


PARTS_DATA = onnx(700_000, 300_000)
PARTS_OID = hashlib.sha256(PARTS_DATA).hexdigest()
PART = 400_000


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lfs, "_PART_BYTES", PART)


def batch_of(client: httpx.Client, name: str, *objects: tuple[str, int], offered: str = "multipart") -> dict[str, Any]:
    """Return the answer about objects, by default about this module's file."""
    wanted = [{"oid": oid, "size": size} for oid, size in objects or ((PARTS_OID, len(PARTS_DATA)),)]
    body = {"operation": "upload", "transfers": ["basic", offered], "objects": wanted}
    told = client.post(f"/{name}.git/info/lfs/objects/batch", json=body)
    assert told.status_code == 200, told.text
    found: dict[str, Any] = told.json()
    return found


def action(client: httpx.Client, name: str) -> dict[str, Any]:
    """Return the upload action of the file."""
    told = batch_of(client, name)
    assert told["transfer"] == "multipart"
    found: dict[str, Any] = told["objects"][0]["actions"]["upload"]
    return found


def sent(client: httpx.Client, told: dict[str, Any], data: bytes = PARTS_DATA) -> list[dict[str, object]]:
    """Send all parts, the last one first; return the request that ends the upload."""
    chunk, parts = int(told["header"]["chunk_size"]), []
    for number in range(len(told["header"]) - 1, 0, -1):
        piece = data[(number - 1) * chunk : number * chunk]
        answer = client.put(told["header"][str(number)], content=piece)
        assert answer.status_code == 200, answer.text
        parts.append({"partNumber": number, "etag": answer.headers["etag"]})
    return parts


def ended(client: httpx.Client, told: dict[str, Any], parts: list[dict[str, object]]) -> httpx.Response:
    """Return the answer to the end of an upload."""
    return client.post(told["href"], json={"oid": PARTS_OID, "parts": parts})


def committed(client: httpx.Client, name: str) -> httpx.Response:
    """Return the answer to a commit of the file."""
    return send(client, f"models/{name}", header(), ("lfsFile", {"path": "m.onnx", "algo": "sha256", "oid": PARTS_OID}))


@pytest.mark.usefixtures("small_parts")
def test_a_file_is_made_of_its_parts(client: httpx.Client, made: Made) -> None:
    name = made()
    told = action(client, name)
    assert len(told["header"]) == 1 + -(-len(PARTS_DATA) // PART)
    parts = sent(client, told)
    assert "actions" in batch_of(client, name)["objects"][0]
    assert [ended(client, told, parts).status_code for _ in range(2)] == [200, 200]
    assert "actions" not in batch_of(client, name)["objects"][0]
    made_of = committed(client, name)
    assert made_of.status_code == 200
    assert client.get(f"/{name}/resolve/main/m.onnx").content == PARTS_DATA
    assert client.get(f"/v1/stores/{made_of.json()['commitOid']}").json()["root"] == "m.onnx"


@pytest.mark.usefixtures("small_parts")
def test_parts_are_for_clients_that_know_them_and_large_files(client: httpx.Client, made: Made) -> None:
    name = made()
    assert batch_of(client, name, offered="ssh")["transfer"] == "basic"
    assert batch_of(client, name, (PARTS_OID, PART))["transfer"] == "basic"
    both = batch_of(client, name, (PARTS_OID, len(PARTS_DATA)), ("1" * 64, 5))
    assert both["transfer"] == "multipart"
    # Clients of this transfer know no other way for any file of the batch.
    assert [len(each["actions"]["upload"]["header"]) for each in both["objects"]] == [4, 2]


@pytest.mark.usefixtures("small_parts")
def test_a_part_may_be_sent_again(client: httpx.Client, made: Made) -> None:
    name = made()
    told = action(client, name)
    sent(client, told)
    assert ended(client, told, sent(client, told)).status_code == 200
    assert committed(client, name).status_code == 200


@pytest.mark.usefixtures("small_parts")
def test_an_end_names_every_part_once(client: httpx.Client, made: Made) -> None:
    name = made()
    told = action(client, name)
    parts = sent(client, told)
    first, *rest = parts
    swapped = [{**first, "etag": rest[0]["etag"]}, *rest]
    for wrong in ([], rest, [*rest, {**first, "partNumber": 9}], swapped, [*rest, {**first, "etag": "none"}]):
        assert 400 <= ended(client, told, wrong).status_code < 500
        assert committed(client, name).status_code == 400
    assert ended(client, told, parts).status_code == 200


@pytest.mark.usefixtures("small_parts")
def test_other_bytes_are_no_file_and_their_parts_go(client: httpx.Client, made: Made) -> None:
    name = made()
    told = action(client, name)
    parts = sent(client, told, PARTS_DATA[:-1] + b"?")
    assert ended(client, told, parts).status_code == 460
    assert ended(client, told, parts).status_code == 410
    assert committed(client, name).status_code == 400
    assert ended(client, told, sent(client, told)).status_code == 200
    assert committed(client, name).status_code == 200


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("data", [PARTS_DATA[:PART] + b"?", PARTS_DATA[: PART - 1]])
def test_a_part_has_the_size_that_was_told(client: httpx.Client, made: Made, data: bytes) -> None:
    told = action(client, made())
    assert 400 <= client.put(told["header"]["1"], content=data).status_code < 500


@pytest.mark.usefixtures("small_parts")
def test_parts_of_another_repository_are_none_here(client: httpx.Client, made: Made) -> None:
    parts = sent(client, action(client, made()))
    name = made()
    assert ended(client, action(client, name), parts).status_code == 400
    assert committed(client, name).status_code == 400


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("{oid}/1000/100/11", 404), ("{oid}/1000/100/0", 400), ("{oid}/0/1/1", 400), ("{oid}/1000/0/1", 400),
        ("{oid}/1000/1/1", 400), ("{oid}/9223372036854775807/9223372036854775807/1", 413), ("x/1000/1000/1", 400),
        (f"{{oid}}/{10**30}/100/1", 400), ("{oid}/-5/100/1", 400),
    ],
)  # fmt: skip
def test_hostile_sizes_and_numbers_are_refused(client: httpx.Client, made: Made, end: str, status: int) -> None:
    url = f"/api/lfs-parts/models/{made()}/{end.format(oid=PARTS_OID)}"
    told = client.put(url, content=b"x")
    assert told.status_code == status, told.text
    if status != 404:
        assert client.post(url.rpartition("/")[0], json={"parts": []}).status_code == 400


@pytest.mark.usefixtures("small_parts")
def test_a_batch_of_many_large_files_has_bounded_urls(client: httpx.Client, made: Made) -> None:
    wanted = [(f"{number:064x}", 60 << 20) for number in range(256)]
    told = batch_of(client, made(), *wanted)
    headers = [each["actions"]["upload"]["header"] for each in told["objects"]]
    assert sum(len(each) - 1 for each in headers) <= 10_000
    assert all((len(each) - 1) * int(each["chunk_size"]) >= 60 << 20 for each in headers)


@pytest.mark.usefixtures("small_parts")
def test_a_file_in_parts_is_no_larger_than_an_upload_may_be(client: httpx.Client, made: Made) -> None:
    body = {"operation": "upload", "transfers": ["multipart"], "objects": [{"oid": PARTS_OID, "size": 1 << 62}]}
    assert client.post(f"/{made()}.git/info/lfs/objects/batch", json=body).status_code == 413


@pytest.mark.usefixtures("small_parts")
def test_a_dataset_has_parts_too(client: httpx.Client, made: Made) -> None:
    name = made(kind="dataset")
    told = action(client, f"datasets/{name}")
    assert urlsplit(told["href"]).path.startswith("/api/lfs-parts/datasets/")
    assert ended(client, told, sent(client, told)).status_code == 200


PLAIN = bytes(range(256)) * 900
PLAIN_OID = hashlib.sha256(PLAIN).hexdigest()
AGENT = {"user-agent": "git-lfs/3.3.0 (GitHub; linux amd64; go 1.19.8)", "accept": "application/vnd.git-lfs+json"}


def asked(operation: str, *data: bytes, **more: Any) -> dict[str, Any]:
    """Return the body of a batch, as git-lfs sends it."""
    objects = [{"oid": hashlib.sha256(each).hexdigest(), "size": len(each)} for each in data]
    transfers = ["lfs-standalone-file", "basic", "ssh"]
    ref = {"name": "refs/heads/main"}
    body = {"operation": operation, "transfers": transfers, "ref": ref, "objects": objects, "hash_algo": "sha256"}
    return body | more


def plain_batch(client: httpx.Client, name: str, operation: str, *data: bytes, **more: Any) -> list[dict[str, Any]]:
    url = f"/{name}.git/info/lfs/objects/batch"
    answer = client.post(url, json=asked(operation, *data, **more), headers=AGENT)
    assert (answer.status_code, answer.json()["transfer"]) == (200, "basic"), answer.text
    found: list[dict[str, Any]] = answer.json()["objects"]
    return found


def push(client: httpx.Client, name: str, data: bytes = PLAIN, **more: Any) -> None:
    (told,) = plain_batch(client, name, "upload", data, **more)
    assert client.put(told["actions"]["upload"]["href"], content=data).status_code == 200


def pulled(client: httpx.Client, name: str, data: bytes = PLAIN) -> bytes:
    (told,) = plain_batch(client, name, "download", data)
    return client.get(told["actions"]["download"]["href"]).content


@pytest.mark.parametrize("kind", ["model", "dataset"])
def test_a_pushed_file_comes_back_whole_and_by_range(client: httpx.Client, made: Made, kind: str) -> None:
    root = made(kind=kind)
    name = root if kind == "model" else f"datasets/{root}"
    push(client, name)
    assert pulled(client, name) == PLAIN
    (told,) = plain_batch(client, name, "download", PLAIN)
    part = client.get(told["actions"]["download"]["href"], headers={"range": "bytes=10-19"})
    assert (part.status_code, part.content) == (206, PLAIN[10:20])
    (again,) = plain_batch(client, name, "upload", PLAIN)
    assert "actions" not in again


@pytest.mark.parametrize("transfers", [["basic", "multipart", "xet"], ["basic"]])
def test_a_pushed_file_is_a_store_that_does_not_expire(client: httpx.Client, made: Made, transfers: list[str]) -> None:
    name, data = made(), json.dumps(transfers).encode() * 9000
    push(client, name, data, transfers=transfers)
    (told,) = plain_batch(client, name, "download", data)
    answer = client.get(told["actions"]["download"]["href"])
    assert answer.headers["content-location"].startswith("/v1/stores/")
    assert client.get(answer.headers["content-location"]).content == data


def test_a_file_of_a_commit_is_kept_once_it_was_pushed(client: httpx.Client, made: Made) -> None:
    name = made({"a": PLAIN})
    assert pulled(client, name) == PLAIN, "files of branches need no push"
    (told,) = plain_batch(client, name, "upload", PLAIN)
    assert "actions" not in told
    assert send(client, f"models/{name}", header(), ("deletedFile", {"path": "a"})).status_code == 200
    assert pulled(client, name) == PLAIN


def test_a_staged_file_of_another_client_can_be_pulled_and_is_kept_once_it_was_pushed(
    client: httpx.Client, made: Made
) -> None:
    name = made()
    url = f"/{name}.git/info/lfs/objects/batch"
    told = client.post(url, json=asked("upload", PLAIN, transfers=["basic", "multipart"])).json()["objects"][0]
    href = told["actions"]["upload"]["href"]
    assert "keep" not in href
    assert client.put(href, content=PLAIN).status_code == 200
    (again,) = plain_batch(client, name, "upload", PLAIN)
    assert "actions" not in again
    assert pulled(client, name) == PLAIN


def test_a_commit_takes_a_pushed_file_which_stays(client: httpx.Client, made: Made) -> None:
    name = made()
    push(client, name)
    file = ("lfsFile", {"path": "x.bin", "algo": "sha256", "oid": PLAIN_OID, "size": len(PLAIN)})
    assert send(client, f"models/{name}", header(), file).status_code == 200
    assert client.get(f"/{name}/resolve/main/x.bin").content == PLAIN
    assert send(client, f"models/{name}", header(), ("deletedFile", {"path": "x.bin"})).status_code == 200
    assert pulled(client, name) == PLAIN
    # A client that sends the file again before a commit does not use a second place.
    url = f"/{name}.git/info/lfs/objects/batch"
    told = client.post(url, json=asked("upload", PLAIN, transfers=["basic", "multipart"])).json()["objects"][0]
    assert client.put(told["actions"]["upload"]["href"], content=PLAIN).status_code == 200
    answer = client.get(plain_batch(client, name, "download", PLAIN)[0]["actions"]["download"]["href"])
    assert answer.content == PLAIN
    assert send(client, f"models/{name}", header(), file).status_code == 200


def test_a_file_that_is_missing_is_an_error_of_its_own(client: httpx.Client, made: Made) -> None:
    name, other = made({"a": PLAIN}), made({"a": b"of another repository"})
    there, missing = plain_batch(client, name, "download", PLAIN, b"of another repository")
    assert "download" in there["actions"]
    assert (missing["error"]["code"], "actions" in missing) == (404, False)
    secret = hashlib.sha256(b"of another repository").hexdigest()
    assert client.get(f"/api/lfs-files/models/{name}/{secret}").status_code == 404
    assert client.get(f"/api/lfs-files/models/{other}/{secret}").status_code == 200
    for oid in ("none", "0" * 63, "A" * 64):
        assert client.get(f"/api/lfs-files/models/{name}/{oid}").status_code in {400, 422}
    assert client.post(f"/{name}.git/info/lfs/objects/batch", json=asked("delete", PLAIN)).status_code in {400, 422}


def test_other_bytes_are_not_kept(client: httpx.Client, made: Made) -> None:
    name = made()
    (told,) = plain_batch(client, name, "upload", PLAIN)
    href = told["actions"]["upload"]["href"]
    assert 400 <= client.put(href, content=PLAIN[:-1] + b"?").status_code < 500
    assert "error" in plain_batch(client, name, "download", PLAIN)[0]
    assert client.put(href, content=PLAIN).status_code == 200
    assert [client.put(href, content=PLAIN).status_code, pulled(client, name)] == [200, PLAIN]


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
            body = json.dumps(asked(operation, PLAIN)).encode()
            answers[operation] = [
                await ask(app, "POST", url, body, who | json_kind | AGENT) for who in ({}, reader, limited, writer)
            ]
        assert [each.status for each in answers["upload"]] == [401, 403, 403, 200]
        assert [each.status for each in answers["download"]] == [401, 200, 200, 200]
        assert "scope write" in json.loads(answers["upload"][1].body)["message"]
        href = httpx.URL(json.loads(answers["upload"][3].body)["objects"][0]["actions"]["upload"]["href"])
        assert (await ask(app, "PUT", href.path, PLAIN)).status == 401
        assert (await ask(app, "PUT", href.raw_path.decode(), PLAIN)).status == 200
        body = json.dumps(asked("download", PLAIN)).encode()
        told = json.loads((await ask(app, "POST", url, body, reader | json_kind)).body)["objects"][0]
        href = httpx.URL(told["actions"]["download"]["href"])
        assert (await ask(app, "GET", href.path)).status == 401
        assert (await ask(app, "GET", href.raw_path.decode())).body == PLAIN


def test_a_commit_may_follow_at_once(client: httpx.Client, made: Made) -> None:
    name = made()
    push(client, name)
    assert commit(client, f"models/{name}", {"other": b"x"}).status_code == 200
    assert pulled(client, name) == PLAIN
